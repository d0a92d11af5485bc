"""Kubernetes objects as a model should read them. Objects are plain JSON; anything may be missing or odd."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any

import yaml

from bot.tools.shaping import age, left_out, moment, one_line, table

Object = dict[str, Any]
Column = tuple[str, Callable[[Object, float], str]]

MOST_OBJECTS = 60
MOST_EVENTS = 60
MOST_REVISIONS = 8
MOST_CHANGES = 20
MOST_LINE_CHARS = 600
NOISE = ("managedFields", "uid", "resourceVersion", "selfLink", "generateName")
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
REVISION = "deployment.kubernetes.io/revision"
CAUSE = "kubernetes.io/change-cause"


def dig(value: Any, *path: str | int, default: Any = "") -> Any:
    """What lies at `path`, or `default` where the path ends early."""
    for step in path:
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        else:
            return default
    return default if value is None else value


def items(found: Any) -> list[Object]:
    """The objects of a list."""
    many = dig(found, "items", default=[])
    return [one for one in many if isinstance(one, dict)] if isinstance(many, list) else []


def instant(text: Any) -> float:
    """Seconds since the epoch of a timestamp of the API, 0 if it is none."""
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except (ValueError, OverflowError):
        return 0.0


def _at(*path: str | int) -> Callable[[Object, float], str]:
    return lambda one, now: str(dig(one, *path))


def _age(one: Object, now: float) -> str:
    created = instant(dig(one, "metadata", "creationTimestamp"))
    return age(now - created) if created else ""


def _annotation(name: str) -> Callable[[Object, float], str]:
    return _at("metadata", "annotations", name)


def _of(top: str, bottom: str) -> Callable[[Object, float], str]:
    """`ready/wanted` of a deployment or replica set."""
    return lambda one, now: f"{dig(one, 'status', top, default=0)}/{dig(one, 'spec', bottom, default=0)}"


def _containers(one: Object) -> list[Object]:
    found = dig(one, "status", "containerStatuses", default=[])
    return [status for status in found if isinstance(status, dict)] if isinstance(found, list) else []


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
    ports = dig(one, "spec", "ports", default=[])
    if not isinstance(ports, list):
        return ""
    return ", ".join(f"{dig(port, 'port')}->{dig(port, 'targetPort')}" for port in ports)


def _pairs(*path: str) -> Callable[[Object, float], str]:
    def value(one: Object, now: float) -> str:
        found = dig(one, *path, default={})
        return ",".join(f"{key}={text}" for key, text in found.items()) if isinstance(found, dict) else ""

    return value


def _keys(one: Object, now: float) -> str:
    found = [dig(one, part, default={}) for part in ("data", "binaryData")]
    return ", ".join(key for part in found if isinstance(part, dict) for key in part)


def _node_state(one: Object, now: float) -> str:
    """Ready or not, and every pressure that is on."""
    conditions = dig(one, "status", "conditions", default=[])
    states = {str(dig(one, "type")): dig(one, "status") for one in conditions} if isinstance(conditions, list) else {}
    wrong = [kind for kind, status in states.items() if kind != "Ready" and status == "True"]
    ready = "Ready" if states.get("Ready") == "True" else "NotReady"
    cordoned = ["SchedulingDisabled"] if dig(one, "spec", "unschedulable") is True else []
    return ",".join([ready, *cordoned, *wrong])


NAME_COLUMN: Column = ("name", _at("metadata", "name"))
IMAGE: Column = ("image", _at("spec", "template", "spec", "containers", 0, "image"))
AGE: Column = ("age", _age)
COLUMNS: Mapping[str, Sequence[Column]] = {
    "pods": (
        NAME_COLUMN, ("ready", _pod_ready), ("status", _pod_state), ("restarts", _restarts), AGE,
        ("node", _at("spec", "nodeName")),
    ),
    "deployments": (
        NAME_COLUMN, ("ready", _of("readyReplicas", "replicas")), ("updated", _at("status", "updatedReplicas")),
        ("revision", _annotation(REVISION)), IMAGE, ("change cause", _annotation(CAUSE)), AGE,
    ),
    "replicasets": (
        NAME_COLUMN, ("ready", _of("readyReplicas", "replicas")), ("revision", _annotation(REVISION)), IMAGE,
        ("change cause", _annotation(CAUSE)), AGE,
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
}  # fmt: skip


def objects_text(kind: str, place: str, found: Any, now: float) -> str:
    """A list as a table, the newest object first."""
    objects = sorted(items(found), key=lambda one: -instant(dig(one, "metadata", "creationTimestamp")))
    if not objects:
        return f"No {kind} {place}."
    columns, shown = COLUMNS[kind], objects[:MOST_OBJECTS]
    rows = [[value(one, now) for _, value in columns] for one in shown]
    text = f"{len(objects)} {kind} {place}, newest first\n{table([head for head, _ in columns], rows)}"
    return text + left_out(len(shown), len(objects), kind, "ask for one by name") + _more(found)


def _more(found: Any) -> str:
    return "\n[the list was cut by the API: there are more]" if dig(found, "metadata", "continue") else ""


class Plain(yaml.SafeDumper):
    """YAML without aliases, texts of several lines as they are."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


Plain.add_representer(str, _represent_text)


def object_text(one: Object) -> str:
    """One object as YAML, without what the API server keeps for itself."""
    metadata = dig(one, "metadata", default={})
    kept = {key: value for key, value in metadata.items() if key not in NOISE} if isinstance(metadata, dict) else {}
    if isinstance(notes := kept.get("annotations"), dict):
        kept["annotations"] = {key: value for key, value in notes.items() if key != LAST_APPLIED}
    shown = {**one, "metadata": kept}
    if isinstance(binary := shown.get("binaryData"), dict):
        shown["binaryData"] = {key: f"({len(str(value)) * 3 // 4} bytes, not shown)" for key, value in binary.items()}
    return yaml.dump(shown, Dumper=Plain, sort_keys=False, allow_unicode=True, width=200)


def _event_time(event: Object) -> float:
    times = (
        dig(event, "series", "lastObservedTime"),
        dig(event, "lastTimestamp"),
        dig(event, "eventTime"),
        dig(event, "firstTimestamp"),
        dig(event, "metadata", "creationTimestamp"),
    )
    return next((found for text in times if text and (found := instant(text))), 0.0)


def events_text(found: Any, namespace: str, name: str | None) -> str:
    """Events as a table, newest first."""
    events = sorted(items(found), key=lambda event: -_event_time(event))
    if name is not None:
        events = [event for event in events if _concerns(event, name)]
    about = f" about {name}" if name else ""
    if not events:
        return f"No events in {namespace}{about}. The cluster forgets them after an hour or so." + _more(found)
    shown = events[:MOST_EVENTS]
    head = ["last seen", "times", "type", "object", "reason", "message"]
    text = f"{len(events)} events in {namespace}{about}, newest first\n{table(head, [_event(one) for one in shown])}"
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


def logs_text(text: str, pod: str, asked: int) -> str:
    """The lines of a pod, newest first."""
    lines = [one_line(line, MOST_LINE_CHARS) for line in text.splitlines() if line.strip()]
    if not lines:
        return f"{pod} has logged nothing."
    more = f" (the last {asked}; there may be more)" if len(lines) >= asked else ""
    return "\n".join([f"{len(lines)} lines of {pod}, newest first{more}", *reversed(lines)])


def history_text(deployment: Object, sets: list[Object], now: float) -> str:
    """Revisions of a deployment, newest first, and what each one changed in the pod template."""
    full_name = f"{dig(deployment, 'metadata', 'namespace')}/{dig(deployment, 'metadata', 'name')}"
    owned = [one for one in sets if _owned(one, deployment) and _revision(one) > 0]
    owned.sort(key=lambda one: -_revision(one))
    current = dig(deployment, "metadata", "annotations", REVISION, default="unknown")
    ready = _of("readyReplicas", "replicas")(deployment, now)
    text = f"deployment {full_name}: revision {current} is current, {ready} ready"
    if not owned:
        return f"{text}\nThe cluster keeps no replica set of it, so there is no history."
    text += _progress(deployment)
    shown = owned[:MOST_REVISIONS]
    rows = [_history_row(one, now) for one in shown]
    text += "\n" + table(["revision", "template first used", "age", "ready", "image", "change cause"], rows)
    text += left_out(len(shown), len(owned), "revisions", "they are older")
    changes = [_changes(older, newer) for newer, older in pairwise(shown)]
    return "\n".join([text, "what each revision changed in the pod template, newest first", *changes]).rstrip()


def _progress(deployment: Object) -> str:
    """What the controller says of the last rollout."""
    conditions = dig(deployment, "status", "conditions", default=[])
    for condition in conditions if isinstance(conditions, list) else []:
        if dig(condition, "type") == "Progressing":
            said = one_line(str(dig(condition, "message")))
            return f"\nlast rollout: {said} ({dig(condition, 'lastUpdateTime')})"
    return ""


def _history_row(one: Object, now: float) -> list[str]:
    created = str(dig(one, "metadata", "creationTimestamp"))
    ready = _of("readyReplicas", "replicas")(one, now)
    return [str(_revision(one)), created, _age(one, now), ready, IMAGE[1](one, now), _annotation(CAUSE)(one, now)]


def _owned(one: Object, deployment: Object) -> bool:
    owners, wanted = dig(one, "metadata", "ownerReferences", default=[]), dig(deployment, "metadata", "uid")
    return isinstance(owners, list) and any(dig(owner, "uid") == wanted for owner in owners)


def _revision(one: Object) -> int:
    text = str(dig(one, "metadata", "annotations", REVISION))
    return int(text) if text.isascii() and text.isdigit() else 0


def _changes(older: Object, newer: Object) -> str:
    before, after = _flat(dig(older, "spec", "template")), _flat(dig(newer, "spec", "template"))
    paths = [path for path in sorted(before.keys() | after.keys()) if before.get(path) != after.get(path)]
    lines = [
        f"  {path}: {one_line(before.get(path, '(not set)'), 200)} -> {one_line(after.get(path, '(not set)'), 200)}"
        for path in paths[:MOST_CHANGES]
    ]
    what = f"{_revision(older)} -> {_revision(newer)}:"
    more = left_out(len(lines), len(paths), "changes", "read both replica sets by name")
    return "\n".join([what, *lines]) + more if lines else f"{what} nothing"


def _flat(value: Any, path: str = "") -> dict[str, str]:
    """Every leaf by its path; elements of a list go by their name where they have one."""
    if isinstance(value, dict):
        parts = [(str(key), one) for key, one in value.items() if key != "pod-template-hash"]
    elif isinstance(value, list):
        parts = [(str(dig(one, "name") or index), one) for index, one in enumerate(value)]
    else:
        return {path: str(value)}
    return {leaf: text for key, one in parts for leaf, text in _flat(one, f"{path}.{key}" if path else key).items()}
