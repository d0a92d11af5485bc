"""The Kubernetes objects of the playground at a moment, as the API server writes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from bot.playground.world.events import events
from bot.playground.world.incident import (
    GUILTY_LOOKING,
    HOSTS,
    Incident,
    Pod,
    Rollout,
    mix,
    replica_set,
    suffix,
)
from bot.playground.world.logs import BACKUP_POD, stamp

Object = dict[str, Any]
NAMESPACES = ("default", "ops", "shop")
PORTS = {"gateway": 8443, "checkout": 8080, "catalog": 8080}

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


def uid(*parts: object) -> str:
    digits = f"{mix(*parts):016x}{mix(parts, 2):016x}"
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:32]}"


def _seconds(t: float) -> str:
    return stamp(t)[:19] + "Z"


def _meta(kind: str, name: str, namespace: str | None, created: float, **more: Any) -> Object:
    place = {"namespace": namespace} if namespace else {}
    return {
        "name": name,
        **place,
        "uid": uid(kind, namespace, name),
        "resourceVersion": str(8_000_000 + mix(kind, name, created) % 900_000),
        "creationTimestamp": _seconds(created),
        **more,
    }


def _owner(kind: str, name: str, namespace: str) -> list[Object]:
    version = "batch/v1" if kind == "Job" else "apps/v1"
    return [
        {"apiVersion": version, "kind": kind, "name": name, "uid": uid(kind, namespace, name), "controller": True}
    ]


def _containers(rollout_name: str, image: str, args: tuple[str, ...]) -> list[Object]:
    container: Object = {
        "name": rollout_name,
        "image": image,
        "ports": [{"containerPort": PORTS[rollout_name], "protocol": "TCP"}],
        "resources": {"requests": {"cpu": "500m", "memory": "512Mi"}, "limits": {"memory": "1Gi"}},
        "readinessProbe": {"httpGet": {"path": "/healthz", "port": PORTS[rollout_name]}, "periodSeconds": 10},
    }
    if args:
        container["args"] = list(args)
    if rollout_name == "gateway":
        container["volumeMounts"] = [{"name": "routes", "mountPath": "/etc/gateway", "readOnly": True}]
    else:
        container["envFrom"] = [{"configMapRef": {"name": f"{rollout_name}-config"}}]
    return [container]


def _pod_spec(name: str, image: str, args: tuple[str, ...]) -> Object:
    spec: Object = {"containers": _containers(name, image, args), "serviceAccountName": name}
    if name == "gateway":
        spec["volumes"] = [{"name": "routes", "configMap": {"name": "gateway-routes"}}]
    return spec


def _pods(incident: Incident, t: float) -> Iterator[Object]:
    for name in incident.rollouts:
        yield from (_pod(pod) for pod in incident.pods(name) if pod.lived(t))
    if t >= incident.backup_began:
        yield _ops_pod(BACKUP_POD, "backup", GUILTY_LOOKING, incident.backup_began, ("Job", "nightly-backup-29341"))
    yield _ops_pod("deploybot-0", "deploybot", "web-1", incident.day - 30 * 86_400, ("StatefulSet", "deploybot"))


def _status(host: str, ip: str, since: float, container: str, image: str) -> Object:
    ready = {"lastTransitionTime": _seconds(since), "status": "True"}
    return {
        "phase": "Running",
        "podIP": ip,
        "hostIP": f"10.0.0.{10 + HOSTS.index(host)}",
        "startTime": _seconds(since - 10),
        "conditions": [{"type": kind, **ready} for kind in ("PodScheduled", "ContainersReady", "Ready")],
        "containerStatuses": [
            {
                "name": container, "ready": True, "started": True, "restartCount": 0, "image": image,
                "state": {"running": {"startedAt": _seconds(since - 3)}}, "lastState": {},
            }
        ],
    }  # fmt: skip


def _pod(pod: Pod) -> Object:
    name, template = pod.deployment, pod.template
    labels = {"app": name, "pod-template-hash": pod.replica_set.rpartition("-")[2]}
    owner = _owner("ReplicaSet", pod.replica_set, "shop")
    return {
        "metadata": _meta("Pod", pod.name, "shop", pod.since - 10, labels=labels, ownerReferences=owner),
        "spec": {**_pod_spec(name, template.image, template.args), "nodeName": pod.host},
        "status": _status(pod.host, pod.ip, pod.since, name, template.image),
    }


def _ops_pod(name: str, container: str, host: str, since: float, owner: tuple[str, str]) -> Object:
    image = f"images.shop.example/ops/{container}:2.4"
    return {
        "metadata": _meta("Pod", name, "ops", since - 4, labels={"app": owner[1].removesuffix("-29341")},
                          ownerReferences=_owner(*owner, "ops")),
        "spec": {"containers": [{"name": container, "image": image, "resources": {}}], "nodeName": host},
        "status": _status(host, f"10.42.{HOSTS.index(host) + 1}.{30 + mix(name) % 9}", since, container, image),
    }  # fmt: skip


def current(incident: Incident, name: str, t: float) -> Rollout:
    """The newest rollout of a deployment that has begun at `t`."""
    begun = [rollout for rollout in incident.rollouts[name] if rollout.at <= t]
    return begun[-1]


def _revision(rollout: Rollout) -> Object:
    return {
        "deployment.kubernetes.io/revision": str(rollout.revision),
        "kubernetes.io/change-cause": rollout.template.cause
        if rollout.revision == rollout.template.revision
        else f"rollback to revision {rollout.template.revision} ({rollout.template.cause})",
    }


def _deployments(incident: Incident, t: float) -> Iterator[Object]:
    for name, history in incident.rollouts.items():
        now = current(incident, name, t)
        fresh = sum(now.at + after <= t for after in now.ready_after_s)
        done = fresh == len(HOSTS)
        progress = {
            "type": "Progressing",
            "status": "True",
            "reason": "NewReplicaSetAvailable" if done else "ReplicaSetUpdated",
            "message": f'ReplicaSet "{replica_set(name, now.template)}" has successfully progressed.'
            if done
            else f'ReplicaSet "{replica_set(name, now.template)}" is progressing.',
            "lastUpdateTime": _seconds(now.at + max(now.ready_after_s)) if done else _seconds(now.at),
        }
        available = {"type": "Available", "status": "True", "reason": "MinimumReplicasAvailable"}
        yield {
            "metadata": _meta("Deployment", name, "shop", history[0].at - 100 * 86_400, generation=now.revision,
                              labels={"app": name}, annotations=_revision(now)),
            "spec": {
                "replicas": 3,
                "selector": {"matchLabels": {"app": name}},
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
                "revisionHistoryLimit": 10,
                "template": {"metadata": {"labels": {"app": name}},
                             "spec": _pod_spec(name, now.template.image, now.template.args)},
            },
            "status": {
                "observedGeneration": now.revision, "replicas": 3, "updatedReplicas": fresh, "readyReplicas": 3,
                "availableReplicas": 3, "conditions": [available, progress],
            },
        }  # fmt: skip


def _replica_sets(incident: Incident, t: float) -> Iterator[Object]:
    for name, history in incident.rollouts.items():
        begun = [rollout for rollout in history if rollout.at <= t]
        latest = {rollout.template: rollout for rollout in begun}
        for template, rollout in latest.items():
            born = next(past.at for past in begun if past.template == template)
            set_name = replica_set(name, template)
            alive = sum(pod.lived(t) for pod in incident.pods(name) if pod.replica_set == set_name)
            labels = {"app": name, "pod-template-hash": set_name.rpartition("-")[2]}
            yield {
                "metadata": _meta("ReplicaSet", set_name, "shop", born, labels=labels, annotations=_revision(rollout),
                                  ownerReferences=_owner("Deployment", name, "shop")),
                "spec": {
                    "replicas": alive,
                    "selector": {"matchLabels": labels},
                    "template": {"metadata": {"labels": labels},
                                 "spec": _pod_spec(name, template.image, template.args)},
                },
                "status": {"replicas": alive, "readyReplicas": alive, "availableReplicas": alive},
            }  # fmt: skip


def _services(incident: Incident, t: float) -> Iterator[Object]:
    for index, (name, port) in enumerate(PORTS.items()):
        kind = "LoadBalancer" if name == "gateway" else "ClusterIP"
        yield {
            "metadata": _meta("Service", name, "shop", incident.day - 210 * 86_400, labels={"app": name}),
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
    note = {"shop.example/last-change": f"{_seconds(changed)} {current(incident, 'gateway', t).template.cause}"}
    created = incident.day - 200 * 86_400
    yield {"metadata": _meta("ConfigMap", "gateway-routes", "shop", created, annotations=note), "data": data}
    settings = {
        "checkout-config": {
            "DB_POOL_SIZE": "40",
            "PAYMENT_URL": "http://payments.shop.svc",
            "LOG_LEVEL": "info",
        },
        "catalog-config": {"DB_POOL_SIZE": "40", "SEARCH_INDEX": "catalog-v10", "LOG_LEVEL": "info"},
    }
    for name, values in settings.items():
        yield {"metadata": _meta("ConfigMap", name, "shop", created), "data": values}


def _nodes(incident: Incident, t: float) -> Iterator[Object]:
    healthy = {"MemoryPressure": "False", "DiskPressure": "False", "PIDPressure": "False", "Ready": "True"}
    for index, host in enumerate(HOSTS):
        yield {
            "metadata": _meta("Node", host, None, incident.day - 240 * 86_400,
                              labels={"kubernetes.io/hostname": host, "kubernetes.io/os": "linux"}),
            "spec": {"podCIDR": f"10.42.{index + 1}.0/24"},
            "status": {
                "capacity": {"cpu": "4", "memory": "16384000Ki", "pods": "110"},
                "allocatable": {"cpu": "3800m", "memory": "15360000Ki", "pods": "110"},
                "conditions": [{"type": kind, "status": status, "lastHeartbeatTime": _seconds(t - 20)}
                               for kind, status in healthy.items()],
                "addresses": [{"type": "InternalIP", "address": f"10.0.0.{10 + index}"},
                              {"type": "Hostname", "address": host}],
                "nodeInfo": {"kubeletVersion": "v1.34.2", "osImage": "Debian GNU/Linux 12 (bookworm)",
                             "containerRuntimeVersion": "containerd://2.1.4"},
            },
        }  # fmt: skip


def _namespaces(incident: Incident, t: float) -> Iterator[Object]:
    for name in NAMESPACES:
        meta = _meta("Namespace", name, None, incident.day - 240 * 86_400)
        yield {"metadata": meta, "status": {"phase": "Active"}}


def _events(incident: Incident, t: float) -> Iterator[Object]:
    for event in events(incident):
        if event.first > t or event.first < t - 3 * 3600:
            continue
        count = 1 if not event.every_s else 1 + int((min(t, event.last) - event.first) / event.every_s)
        last = event.first + (count - 1) * event.every_s
        name = f"{event.name}.{suffix(16, event.name, event.reason, event.first)}"
        yield {
            "metadata": _meta("Event", name, event.namespace, event.first),
            "involvedObject": {"kind": event.kind, "namespace": event.namespace, "name": event.name,
                               "uid": uid(event.kind, event.namespace, event.name)},
            "reason": event.reason, "message": event.message, "type": event.type, "count": count,
            "firstTimestamp": _seconds(event.first), "lastTimestamp": _seconds(last),
            "source": {"component": event.component},
        }  # fmt: skip


BUILDERS: dict[str, Callable[[Incident, float], Iterator[Object]]] = {
    "pods": _pods,
    "deployments": _deployments,
    "replicasets": _replica_sets,
    "services": _services,
    "configmaps": _config_maps,
    "nodes": _nodes,
    "namespaces": _namespaces,
    "events": _events,
}
