"""What the cluster reports about itself: events of the rollouts, and some that mean nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from bot.playground.world.incident import GUILTY_LOOKING, HOSTS, Incident, Pod, Rollout, replica_set
from bot.playground.world.logs import BACKUP_POD


@dataclass(frozen=True, slots=True)
class Event:
    """One event; repeated every `every_s` until `last` if that is not 0."""

    first: float
    namespace: str
    kind: str
    name: str
    reason: str
    message: str
    component: str
    type: str = "Normal"
    every_s: float = 0.0
    last: float = math.inf


def events(incident: Incident) -> Iterator[Event]:
    """All events, in no order."""
    for name, rollouts in incident.rollouts.items():
        for rollout in rollouts:
            yield from _of_rollout(incident, name, rollout)
        yield from _of_scales(incident, name)
        for pod in incident.all_pods(name):
            yield from _of_pod(pod)
    yield from _of_backup(incident)


def _of_rollout(incident: Incident, name: str, rollout: Rollout) -> Iterator[Event]:
    history = incident.rollouts[name]
    before = history[history.index(rollout) - 1] if history.index(rollout) else None
    fresh = replica_set(name, rollout.template)
    for index, ready_after_s in enumerate(rollout.ready_after_s):
        step = ready_after_s - 12 if index else 0.0
        up = f"Scaled up replica set {fresh} to {index + 1} from {index}"
        at = rollout.at + max(step, 0.0)
        yield Event(at, "shop", "Deployment", name, "ScalingReplicaSet", up, "deployment-controller")
        if before:
            old, left = replica_set(name, before.template), len(HOSTS) - index - 1
            down = f"Scaled down replica set {old} to {left} from {left + 1}"
            at = rollout.at + ready_after_s
            yield Event(at, "shop", "Deployment", name, "ScalingReplicaSet", down, "deployment-controller")
    if name == "gateway" and rollout.revision == rollout.template.revision and not rollout.template.restarted:
        words = f"ConfigMap gateway-routes updated by deploybot: {rollout.template.cause}"
        yield Event(rollout.at - 20, "shop", "ConfigMap", "gateway-routes", "Updated", words, "deploybot")


def _of_scales(incident: Incident, name: str) -> Iterator[Event]:
    for (_, before), (at, after) in pairwise(incident.scales[name]):
        running = next(rollout for rollout in reversed(incident.rollouts[name]) if rollout.at <= at)
        which = replica_set(name, running.template)
        words = f"Scaled {'up' if after > before else 'down'} replica set {which} to {after} from {before}"
        yield Event(at, "shop", "Deployment", name, "ScalingReplicaSet", words, "deployment-controller")


def _of_pod(pod: Pod) -> Iterator[Event]:
    began, image = pod.since - 10, pod.template.image
    about = ("shop", "Pod", pod.name)
    where = f"Successfully assigned shop/{pod.name} to {pod.host}"
    yield Event(began, *about, "Scheduled", where, "default-scheduler")
    yield Event(began + 2, *about, "Pulled", f'Container image "{image}" already present on machine', "kubelet")
    yield Event(began + 3, *about, "Created", f"Created container: {pod.deployment}", "kubelet")
    yield Event(began + 3, *about, "Started", f"Started container {pod.deployment}", "kubelet")
    if pod.until != math.inf:
        yield Event(pod.until, *about, "Killing", f"Stopping container {pod.deployment}", "kubelet")


def _of_backup(incident: Incident) -> Iterator[Event]:
    began = incident.backup_began
    job, pod = ("ops", "Job", "nightly-backup-29341"), ("ops", "Pod", BACKUP_POD)
    yield Event(began - 4, *job, "SuccessfulCreate", f"Created pod: {BACKUP_POD}", "job-controller")
    where = f"Successfully assigned ops/{BACKUP_POD} to {GUILTY_LOOKING}"
    yield Event(began - 4, *pod, "Scheduled", where, "default-scheduler")
    yield Event(began, *pod, "Started", "Started container backup", "kubelet")
    words = "Readiness probe took 1.2s, more than usual, but succeeded"
    for slow in incident.pods("checkout"):
        if slow.host == GUILTY_LOOKING and slow.since < began + 700 < slow.until:
            about = ("shop", "Pod", slow.name)
            yield Event(began + 700, *about, "ProbeWarning", words, "kubelet", "Warning", 540.0, slow.until)
