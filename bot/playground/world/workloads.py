"""What runs in the playground's cluster: pods, and the deployments, replica sets and stateful sets behind them."""

from __future__ import annotations

from collections.abc import Iterator

from bot.playground.world.incident import (
    GUILTY_LOOKING,
    HOSTS,
    Incident,
    Pod,
    Rollout,
    Template,
    mix,
    replica_set,
    suffix,
)
from bot.playground.world.logs import BACKUP_POD
from bot.playground.world.shapes import Object, meta, owner, seconds

BACKUP_JOB = "nightly-backup-29341"
RESTARTED = "kubectl.kubernetes.io/restartedAt"
PORTS = {"gateway": 8443, "checkout": 8080, "catalog": 8080}


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


def pod_template(name: str, template: Template) -> Object:
    """What a deployment's pods are made from."""
    note = {"annotations": {RESTARTED: template.restarted}} if template.restarted else {}
    return {
        "metadata": {"labels": {"app": name}, **note},
        "spec": _pod_spec(name, template.image, template.args),
    }


def pods(incident: Incident, t: float) -> Iterator[Object]:
    for name in incident.rollouts:
        yield from (_pod(pod) for pod in incident.all_pods(name) if pod.lived(t))
    if t >= incident.backup_began:
        yield _ops_pod(BACKUP_POD, "backup", GUILTY_LOOKING, incident.backup_began, ("Job", BACKUP_JOB))
    began = max((at + 6 for at, _ in incident.restarts), default=incident.day - 30 * 86_400)
    if began <= t:
        yield _ops_pod("deploybot-0", "deploybot", "web-1", began, ("StatefulSet", "deploybot"))


def stateful_sets(incident: Incident, t: float) -> Iterator[Object]:
    notes = {RESTARTED: incident.restarts[-1][1]} if incident.restarts else {}
    ready = int(not incident.restarts or incident.restarts[-1][0] + 6 <= t)
    revision, labels = f"deploybot-{suffix(9, 'deploybot', *notes.values())}", {"app": "deploybot"}
    generation = 4 + len(incident.restarts)
    image = "images.shop.example/ops/deploybot:2.4"
    token = {"name": "GIT_TOKEN", "valueFrom": {"secretKeyRef": {"name": "deploybot-git", "key": "token"}}}
    yield {
        "metadata": meta("StatefulSet", "deploybot", "ops", incident.day - 90 * 86_400, labels=labels,
                          generation=generation, version=generation),
        "spec": {
            "replicas": 1, "serviceName": "deploybot", "selector": {"matchLabels": labels},
            "updateStrategy": {"type": "RollingUpdate"},
            "template": {
                "metadata": {"labels": labels, **({"annotations": notes} if notes else {})},
                "spec": {"containers": [{"name": "deploybot", "image": image, "resources": {}, "env": [token]}]},
            },
        },
        "status": {"observedGeneration": generation, "replicas": 1, "readyReplicas": ready, "updatedReplicas": ready,
                   "currentRevision": revision, "updateRevision": revision},
    }  # fmt: skip


def jobs(incident: Incident, t: float) -> Iterator[Object]:
    """The backup that keeps a host busy."""
    if t < incident.backup_began:
        return
    labels = {"app": "nightly-backup"}
    image = "images.shop.example/ops/backup:2.4"
    yield {
        "metadata": meta("Job", BACKUP_JOB, "ops", incident.backup_began - 4, labels=labels),
        "spec": {
            "parallelism": 1, "completions": 1, "backoffLimit": 1, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels},
                         "spec": {"containers": [{"name": "backup", "image": image, "resources": {}}]}},
        },
        "status": {"active": 1, "startTime": seconds(incident.backup_began - 4)},
    }  # fmt: skip


def _status(host: str, ip: str, since: float, container: str, image: str) -> Object:
    ready = {"lastTransitionTime": seconds(since), "status": "True"}
    return {
        "phase": "Running",
        "podIP": ip,
        "hostIP": f"10.0.0.{10 + HOSTS.index(host)}",
        "startTime": seconds(since - 10),
        "conditions": [{"type": kind, **ready} for kind in ("PodScheduled", "ContainersReady", "Ready")],
        "containerStatuses": [
            {
                "name": container, "ready": True, "started": True, "restartCount": 0, "image": image,
                "state": {"running": {"startedAt": seconds(since - 3)}}, "lastState": {},
            }
        ],
    }  # fmt: skip


def _pod(pod: Pod) -> Object:
    name, template = pod.deployment, pod.template
    labels = {"app": name, "pod-template-hash": pod.replica_set.rpartition("-")[2]}
    owners = owner("ReplicaSet", pod.replica_set, "shop")
    return {
        "metadata": meta("Pod", pod.name, "shop", pod.since - 10, labels=labels, ownerReferences=owners),
        "spec": {**_pod_spec(name, template.image, template.args), "nodeName": pod.host},
        "status": _status(pod.host, pod.ip, pod.since, name, template.image),
    }


def _ops_pod(name: str, container: str, host: str, since: float, by: tuple[str, str]) -> Object:
    image = f"images.shop.example/ops/{container}:2.4"
    return {
        "metadata": meta("Pod", name, "ops", since - 4, labels={"app": by[1].removesuffix("-29341")},
                          ownerReferences=owner(*by, "ops")),
        "spec": {"containers": [{"name": container, "image": image, "resources": {}}], "nodeName": host},
        "status": _status(host, f"10.42.{HOSTS.index(host) + 1}.{30 + mix(name) % 9}", since, container, image),
    }  # fmt: skip


def current(incident: Incident, name: str, t: float) -> Rollout:
    """The newest rollout of a deployment that has begun at `t`."""
    begun = [rollout for rollout in incident.rollouts[name] if rollout.at <= t]
    return begun[-1]


def _revision(rollout: Rollout) -> Object:
    template = rollout.template
    said = f"rollback to revision {template.revision} ({template.cause})"
    return {
        "deployment.kubernetes.io/revision": str(rollout.revision),
        "kubernetes.io/change-cause": rollout.cause
        or (template.cause if rollout.revision == template.revision else said),
    }


def deployments(incident: Incident, t: float) -> Iterator[Object]:
    for name, history in incident.rollouts.items():
        now = current(incident, name, t)
        wanted, generation = incident.replicas(name, t), incident.generation(name, t)
        alive = [pod for pod in incident.all_pods(name) if pod.lived(t)]
        fresh = sum(pod.template == now.template for pod in alive)
        done = fresh == wanted
        progress = {
            "type": "Progressing",
            "status": "True",
            "reason": "NewReplicaSetAvailable" if done else "ReplicaSetUpdated",
            "message": f'ReplicaSet "{replica_set(name, now.template)}" has successfully progressed.'
            if done
            else f'ReplicaSet "{replica_set(name, now.template)}" is progressing.',
            "lastUpdateTime": seconds(now.at + max(now.ready_after_s)) if done else seconds(now.at),
        }
        available = {"type": "Available", "status": "True", "reason": "MinimumReplicasAvailable"}
        yield {
            "metadata": meta("Deployment", name, "shop", history[0].at - 100 * 86_400, generation=generation,
                              labels={"app": name}, annotations=_revision(now), version=(generation, fresh)),
            "spec": {
                "replicas": wanted,
                "selector": {"matchLabels": {"app": name}},
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
                "revisionHistoryLimit": 10,
                "template": pod_template(name, now.template),
            },
            "status": {
                "observedGeneration": generation, "replicas": max(len(alive), wanted), "updatedReplicas": fresh,
                "readyReplicas": len(alive), "availableReplicas": len(alive), "conditions": [available, progress],
            },
        }  # fmt: skip


def replica_sets(incident: Incident, t: float) -> Iterator[Object]:
    for name, history in incident.rollouts.items():
        begun = [rollout for rollout in history if rollout.at <= t]
        latest = {rollout.template: rollout for rollout in begun}
        for template, rollout in latest.items():
            born = next(past.at for past in begun if past.template == template)
            set_name = replica_set(name, template)
            alive = sum(pod.lived(t) for pod in incident.all_pods(name) if pod.replica_set == set_name)
            labels = {"app": name, "pod-template-hash": set_name.rpartition("-")[2]}
            made_from = pod_template(name, template)
            made_from["metadata"]["labels"] = labels
            yield {
                "metadata": meta("ReplicaSet", set_name, "shop", born, labels=labels, annotations=_revision(rollout),
                                  ownerReferences=owner("Deployment", name, "shop")),
                "spec": {
                    "replicas": alive,
                    "selector": {"matchLabels": labels},
                    "template": made_from,
                },
                "status": {"replicas": alive, "readyReplicas": alive, "availableReplicas": alive},
            }  # fmt: skip
