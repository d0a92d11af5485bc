"""The Kubernetes objects of the playground at a moment, as the API server writes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bot.playground.world.events import events
from bot.playground.world.incident import HOSTS, Incident, suffix
from bot.playground.world.shapes import Object, meta, seconds, uid
from bot.playground.world.workloads import PORTS, current, deployments, jobs, pods, replica_sets, stateful_sets

NAMESPACES = ("default", "ops", "shop")

ROUTES = """\
# shop/gateway routes, revision {revision}
routes:
  - match: /checkout
    upstream: http://checkout.shop.svc:8080
    timeout: {checkout}
    retries: 0
  - match: /catalog
    upstream: http://catalog.shop.svc:8080
    timeout: 2s
    retries: 1
{more}"""
CATALOG_V2 = """\
  - match: /catalog/v2
    upstream: http://catalog.shop.svc:8080
    timeout: 2s
    retries: 1
"""


def objects(kind: str, incident: Incident, t: float) -> list[Object]:
    """All objects of one kind (a plural, as in the URL) that exist at `t`. Raises KeyError for other kinds."""
    return list(BUILDERS[kind](incident, t))


def _services(incident: Incident, t: float) -> Iterator[Object]:
    for index, (name, port) in enumerate(PORTS.items()):
        kind = "LoadBalancer" if name == "gateway" else "ClusterIP"
        yield {
            "metadata": meta("Service", name, "shop", incident.day - 210 * 86_400, labels={"app": name}),
            "spec": {
                "type": kind, "selector": {"app": name}, "clusterIP": f"10.96.14.{40 + index}",
                "ports": [{"name": "http", "port": port, "targetPort": port, "protocol": "TCP"}],
            },
            "status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.20"}]} if name == "gateway" else {}},
        }  # fmt: skip


def _config_maps(incident: Incident, t: float) -> Iterator[Object]:
    data, changed = {}, incident.day - 200 * 86_400
    for rollout in incident.rollouts["gateway"]:
        template, revision = rollout.template, rollout.template.revision
        if rollout.at - 20 > t or rollout.revision != revision or f"r{revision}.yaml" not in template.args[0]:
            continue
        limit = f"{template.checkout_limit_s * 1000:.0f}ms" if template.checkout_limit_s < 1 else "3s"
        more = CATALOG_V2 if revision >= 41 else ""
        data[f"routes-r{revision}.yaml"] = ROUTES.format(revision=revision, checkout=limit, more=more)
        changed = rollout.at - 20
    note = {"shop.example/last-change": f"{seconds(changed)} {current(incident, 'gateway', t).template.cause}"}
    created = incident.day - 200 * 86_400
    yield {"metadata": meta("ConfigMap", "gateway-routes", "shop", created, annotations=note), "data": data}
    settings = {
        "checkout-config": {
            "DB_POOL_SIZE": "40",
            "PAYMENT_URL": "http://payments.shop.svc",
            "LOG_LEVEL": "info",
        },
        "catalog-config": {"DB_POOL_SIZE": "40", "SEARCH_INDEX": "catalog-v10", "LOG_LEVEL": "info"},
    }
    for name, values in settings.items():
        yield {"metadata": meta("ConfigMap", name, "shop", created), "data": values}


def _nodes(incident: Incident, t: float) -> Iterator[Object]:
    healthy = {"MemoryPressure": "False", "DiskPressure": "False", "PIDPressure": "False", "Ready": "True"}
    for index, host in enumerate(HOSTS):
        yield {
            "metadata": meta("Node", host, None, incident.day - 240 * 86_400,
                              labels={"kubernetes.io/hostname": host, "kubernetes.io/os": "linux"}),
            "spec": {"podCIDR": f"10.42.{index + 1}.0/24"},
            "status": {
                "capacity": {"cpu": "4", "memory": "16384000Ki", "pods": "110"},
                "allocatable": {"cpu": "3800m", "memory": "15360000Ki", "pods": "110"},
                "conditions": [{"type": kind, "status": status, "lastHeartbeatTime": seconds(t - 20)}
                               for kind, status in healthy.items()],
                "addresses": [{"type": "InternalIP", "address": f"10.0.0.{10 + index}"},
                              {"type": "Hostname", "address": host}],
                "nodeInfo": {"kubeletVersion": "v1.34.2", "osImage": "Debian GNU/Linux 12 (bookworm)",
                             "containerRuntimeVersion": "containerd://2.1.4"},
            },
        }  # fmt: skip


def _namespaces(incident: Incident, t: float) -> Iterator[Object]:
    for name in NAMESPACES:
        about = meta("Namespace", name, None, incident.day - 240 * 86_400)
        yield {"metadata": about, "status": {"phase": "Active"}}


def _events(incident: Incident, t: float) -> Iterator[Object]:
    for event in events(incident):
        if event.first > t or event.first < t - 3 * 3600:
            continue
        count = 1 if not event.every_s else 1 + int((min(t, event.last) - event.first) / event.every_s)
        last = event.first + (count - 1) * event.every_s
        name = f"{event.name}.{suffix(16, event.name, event.reason, event.first)}"
        yield {
            "metadata": meta("Event", name, event.namespace, event.first),
            "involvedObject": {"kind": event.kind, "namespace": event.namespace, "name": event.name,
                               "uid": uid(event.kind, event.namespace, event.name)},
            "reason": event.reason, "message": event.message, "type": event.type, "count": count,
            "firstTimestamp": seconds(event.first), "lastTimestamp": seconds(last),
            "source": {"component": event.component},
        }  # fmt: skip


BUILDERS: dict[str, Callable[[Incident, float], Iterator[Object]]] = {
    "pods": pods,
    "deployments": deployments,
    "replicasets": replica_sets,
    "statefulsets": stateful_sets,
    "jobs": jobs,
    "daemonsets": lambda incident, t: iter(()),
    "horizontalpodautoscalers": lambda incident, t: iter(()),
    "services": _services,
    "configmaps": _config_maps,
    "nodes": _nodes,
    "namespaces": _namespaces,
    "events": _events,
}
