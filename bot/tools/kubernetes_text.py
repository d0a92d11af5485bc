"""Kubernetes objects as a model should read them. Objects are plain JSON; anything may be missing or odd."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import yaml

from bot.tools.kubernetes_objects import CAUSE, Object, dig, instant, items, pairs, parts, redacted, revision_of
from bot.tools.shaping import age, left_out, moment, one_line, table

Column = tuple[str, Callable[[Object, float], str]]

MOST_OBJECTS = 60
MOST_EVENTS = 60
MOST_LINE_CHARS = 600
NOISE = ("managedFields", "uid", "resourceVersion", "selfLink", "generateName")
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def _at(*path: str | int) -> Callable[[Object, float], str]:
    return lambda one, now: str(dig(one, *path))


def _age(one: Object, now: float) -> str:
    created = instant(dig(one, "metadata", "creationTimestamp"))
    return age(now - created) if created else ""


def annotation(name: str) -> Callable[[Object, float], str]:
    return _at("metadata", "annotations", name)


def ready_of(one: Object, now: float) -> str:
    """`ready/wanted` of what runs pods."""
    ready = dig(one, "status", "readyReplicas", default=dig(one, "status", "numberReady", default=0))
    wanted = dig(one, "spec", "replicas", default=dig(one, "status", "desiredNumberScheduled", default=0))
    return f"{ready}/{wanted}"


def _containers(one: Object) -> list[Object]:
    return parts(one, "status", "containerStatuses")


def _pod_ready(one: Object, now: float) -> str:
    statuses = _containers(one)
    return f"{sum(status.get('ready') is True for status in statuses)}/{len(statuses)}"


def _pod_state(one: Object, now: float) -> str:
    """The phase, or the reason for which a container waits or ended."""
    if dig(one, "metadata", "deletionTimestamp"):
        return "Terminating"
    for status in _containers(one):
        if reason := dig(status, "state", "waiting", "reason") or dig(status, "state", "terminated", "reason"):
            return str(reason)
    return str(dig(one, "status", "reason") or dig(one, "status", "phase"))


def _restarts(one: Object, now: float) -> str:
    total = sum(count for status in _containers(one) if isinstance(count := status.get("restartCount"), int))
    ended = [dig(status, "lastState", "terminated", "reason") for status in _containers(one)]
    why = ", ".join(str(reason) for reason in ended if reason)
    return f"{total} (last: {why})" if why else str(total)


def _ports(one: Object, now: float) -> str:
    return ", ".join(f"{dig(port, 'port')}->{dig(port, 'targetPort')}" for port in parts(one, "spec", "ports"))


def _pairs(*path: str) -> Callable[[Object, float], str]:
    def value(one: Object, now: float) -> str:
        return ",".join(f"{key}={text}" for key, text in pairs(one, *path).items())

    return value


def _keys(one: Object, now: float) -> str:
    return ", ".join(key for part in ("data", "binaryData") for key in pairs(one, part))


def _finished(one: Object, now: float) -> str:
    """How a job ended, or that it runs."""
    for condition in parts(one, "status", "conditions"):
        if dig(condition, "type") in ("Complete", "Failed") and dig(condition, "status") == "True":
            return str(dig(condition, "type"))
    return f"{dig(one, 'status', 'active', default=0)} active"


def scaled(one: Object, now: float) -> str:
    """What an autoscaler scales."""
    return f"{dig(one, 'spec', 'scaleTargetRef', 'kind')}/{dig(one, 'spec', 'scaleTargetRef', 'name')}"


def between(one: Object, now: float) -> str:
    return f"{dig(one, 'spec', 'minReplicas', default=1)}-{dig(one, 'spec', 'maxReplicas')}"


def _revision(one: Object, now: float) -> str:
    return revision_of(one)


def _node_state(one: Object, now: float) -> str:
    """Ready or not, and every pressure that is on."""
    states = {str(dig(one, "type")): dig(one, "status") for one in parts(one, "status", "conditions")}
    wrong = [kind for kind, status in states.items() if kind != "Ready" and status == "True"]
    ready = "Ready" if states.get("Ready") == "True" else "NotReady"
    cordoned = ["SchedulingDisabled"] if dig(one, "spec", "unschedulable") is True else []
    return ",".join([ready, *cordoned, *wrong])


NAME_COLUMN: Column = ("name", _at("metadata", "name"))
IMAGE: Column = ("image", _at("spec", "template", "spec", "containers", 0, "image"))
AGE: Column = ("age", _age)
READY: Column = ("ready", ready_of)
REVISION: Column = ("revision", _revision)
CHANGE: Column = ("change cause", annotation(CAUSE))
COLUMNS: Mapping[str, Sequence[Column]] = {
    "pods": (
        NAME_COLUMN, ("ready", _pod_ready), ("status", _pod_state), ("restarts", _restarts), AGE,
        ("node", _at("spec", "nodeName")),
    ),
    "deployments": (
        NAME_COLUMN, READY, ("updated", _at("status", "updatedReplicas")), REVISION, IMAGE, CHANGE, AGE,
    ),
    "statefulsets": (
        NAME_COLUMN, READY, ("updated", _at("status", "updatedReplicas")), REVISION, IMAGE, AGE,
    ),
    "daemonsets": (
        NAME_COLUMN, READY, ("updated", _at("status", "updatedNumberScheduled")), REVISION, IMAGE, AGE,
    ),
    "replicasets": (NAME_COLUMN, READY, REVISION, IMAGE, CHANGE, AGE),
    "jobs": (
        NAME_COLUMN, ("status", _finished), ("succeeded", _at("status", "succeeded")),
        ("failed", _at("status", "failed")), IMAGE, AGE,
    ),
    "horizontalpodautoscalers": (
        NAME_COLUMN, ("scales", scaled), ("replicas", between), ("now", _at("status", "currentReplicas")),
        ("wanted", _at("status", "desiredReplicas")), AGE,
    ),
    "services": (
        NAME_COLUMN, ("type", _at("spec", "type")), ("cluster ip", _at("spec", "clusterIP")), ("ports", _ports),
        ("selector", _pairs("spec", "selector")), AGE,
    ),
    "configmaps": (NAME_COLUMN, ("keys", _keys), AGE),
    "nodes": (
        NAME_COLUMN, ("status", _node_state), ("cpu", _at("status", "capacity", "cpu")),
        ("memory", _at("status", "capacity", "memory")), ("version", _at("status", "nodeInfo", "kubeletVersion")),
        AGE,
    ),
    "namespaces": (NAME_COLUMN, ("status", _at("status", "phase")), AGE),
}  # fmt: skip


def objects_text(kind: str, place: str, found: Any, now: float) -> str:
    """A list as a table, the newest object first."""
    objects = sorted(items(found), key=lambda one: -instant(dig(one, "metadata", "creationTimestamp")))
    if not objects:
        return f"No {kind} {place}."
    shown = objects[:MOST_OBJECTS]
    text = f"{len(objects)} {kind} {place}, newest first\n{rows_text(kind, shown, now)}"
    return text + left_out(len(shown), len(objects), kind, "ask for one by name") + _more(found)


def rows_text(kind: str, objects: Sequence[Object], now: float) -> str:
    """The table alone."""
    columns = COLUMNS[kind]
    return table([head for head, _ in columns], [[value(one, now) for _, value in columns] for one in objects])


def _more(found: Any) -> str:
    return "\n[the list was cut by the API: there are more]" if dig(found, "metadata", "continue") else ""


class Plain(yaml.SafeDumper):
    """YAML without aliases, texts of several lines as they are."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


Plain.add_representer(str, _represent_text)


def yaml_text(value: Any) -> str:
    return yaml.dump(value, Dumper=Plain, sort_keys=False, allow_unicode=True, width=200)


def object_text(one: Object) -> str:
    """One object as YAML, without what the API server keeps for itself and without values of the environment."""
    kept = {key: value for key, value in pairs(one, "metadata").items() if key not in NOISE}
    if isinstance(notes := kept.get("annotations"), dict):
        kept["annotations"] = {key: value for key, value in notes.items() if key != LAST_APPLIED}
    shown = {**redacted(one), "metadata": kept}
    if isinstance(binary := shown.get("binaryData"), dict):
        shown["binaryData"] = {key: f"({len(str(value)) * 3 // 4} bytes, not shown)" for key, value in binary.items()}
    return yaml_text(shown)


def _event_time(event: Object) -> float:
    times = (
        dig(event, "series", "lastObservedTime"),
        dig(event, "lastTimestamp"),
        dig(event, "eventTime"),
        dig(event, "firstTimestamp"),
        dig(event, "metadata", "creationTimestamp"),
    )
    return next((found for text in times if text and (found := instant(text))), 0.0)


def events_text(found: Any, namespace: str, name: str | None, most: int = MOST_EVENTS) -> str:
    """Events as a table, newest first."""
    events = sorted(items(found), key=lambda event: -_event_time(event))
    if name is not None:
        events = [event for event in events if _concerns(event, name)]
    about = f" about {name}" if name else ""
    place = f"in {namespace}{about}" if namespace else about.strip()
    if not events:
        return f"No events {place}. The cluster forgets them after an hour or so." + _more(found)
    shown = events[:most]
    head = ["last seen", "times", "type", "object", "reason", "message"]
    text = f"{len(events)} events {place}, newest first\n{table(head, [_event(one) for one in shown])}"
    return text + left_out(len(shown), len(events), "events", "give the name of an object") + _more(found)


def _concerns(event: Object, name: str) -> bool:
    about = str(dig(event, "involvedObject", "name"))
    return about == name or about.startswith(f"{name}-")


def _event(event: Object) -> list[str]:
    at = moment(_event_time(event))
    about = f"{dig(event, 'involvedObject', 'kind')}/{dig(event, 'involvedObject', 'name')}"
    times = str(dig(event, "series", "count") or dig(event, "count", default=1))
    kind, reason, message = (str(dig(event, part)) for part in ("type", "reason", "message"))
    return [at, times, kind, about, reason, message]


def logs_text(text: str, pod: str, asked: int, when: str = "") -> str:
    """The lines of a pod, newest first; `when` says which part of its life they are from."""
    lines = [one_line(line, MOST_LINE_CHARS) for line in text.splitlines() if line.strip()]
    if not lines:
        return f"{pod} has logged nothing{when}."
    more = f" (the last {asked}; there may be more)" if len(lines) >= asked else ""
    return "\n".join([f"{len(lines)} lines of {pod}{when}, newest first{more}", *reversed(lines)])
