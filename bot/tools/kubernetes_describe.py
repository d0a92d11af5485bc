"""One object as `describe` tells it: the essentials of its spec, its conditions, and whatever else the kind has.

Of environment variables the names are told, and where a value comes from, never the value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from bot.tools.kubernetes_objects import CAUSE, Kind, Object, dig, full_name, instant, pairs, parts, revision_of
from bot.tools.kubernetes_text import COLUMNS, ready_of, rows_text
from bot.tools.shaping import age, one_line, table
from core.redaction import redact

MOST_PODS = 10
MOST_NAMES = 40
MOST_CHARS_OF_A_LINE = 600
RESTARTED = "kubectl.kubernetes.io/restartedAt"
OWNED = frozenset({"deployments", "statefulsets", "daemonsets", "replicasets", "jobs"})
"""What has pods of its own."""

KEEPERS: Mapping[str, str] = {
    "argocd.argoproj.io/tracking-id": "Argo CD",
    "argocd.argoproj.io/instance": "Argo CD",
    "kustomize.toolkit.fluxcd.io/name": "Flux",
    "helm.toolkit.fluxcd.io/name": "Flux",
    "meta.helm.sh/release-name": "Helm",
}
"""Annotations and labels by which tools mark what they keep as it is written elsewhere."""


def describe_text(kind: Kind, one: Object, pods: Sequence[Object], now: float) -> str:
    """Everything but the events."""
    created = instant(dig(one, "metadata", "creationTimestamp"))
    head = f"{kind.title} {full_name(one)}" + (f", {age(now - created)} old" if created else "")
    told = [head, *_common(one), *_by_kind(kind)(one, now), *_conditions(one)]
    if pods:
        shown = sorted(pods, key=lambda pod: -instant(dig(pod, "metadata", "creationTimestamp")))[:MOST_PODS]
        told += [f"pods ({len(pods)}, newest first)", rows_text("pods", shown, now)]
    return redact("\n".join(told))


def keeper(one: Object) -> str | None:
    """The tool that keeps this object as it is written elsewhere, and may undo a change."""
    notes = pairs(one, "metadata", "annotations") | pairs(one, "metadata", "labels")
    found = next((tool for mark, tool in KEEPERS.items() if mark in notes), None)
    return found or str(notes.get("app.kubernetes.io/managed-by") or "") or None


def _line(name: str, value: str) -> Iterator[str]:
    if value:
        yield f"{name}: {one_line(value, MOST_CHARS_OF_A_LINE)}"


def _joined(found: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in found.items())


def _common(one: Object) -> Iterator[str]:
    notes = pairs(one, "metadata", "annotations")
    owners = parts(one, "metadata", "ownerReferences")
    yield from _line("labels", _joined(pairs(one, "metadata", "labels")))
    yield from _line("owned by", ", ".join(f"{dig(owner, 'kind')}/{dig(owner, 'name')}" for owner in owners))
    yield from _line("kept by", keeper(one) or "")
    yield from _line("change cause", str(notes.get(CAUSE) or ""))
    yield from _line("is being deleted since", str(dig(one, "metadata", "deletionTimestamp")))


def _workload(one: Object, now: float) -> Iterator[str]:
    counts = {
        "updated": dig(one, "status", "updatedReplicas", default=dig(one, "status", "updatedNumberScheduled")),
        "available": dig(one, "status", "availableReplicas", default=dig(one, "status", "numberAvailable")),
        "unavailable": dig(one, "status", "unavailableReplicas", default=dig(one, "status", "numberUnavailable")),
    }
    more = "".join(f", {count} {name}" for name, count in counts.items() if count != "")
    yield f"replicas: {ready_of(one, now)} ready{more}"
    yield from _line("revision", revision_of(one))
    if dig(one, "spec", "paused") is True:
        yield "paused: changes of the template are not rolled out"
    if dig(one, "status", "observedGeneration") != dig(one, "metadata", "generation"):
        yield "the controller has not seen the last change yet"
    yield from _line("strategy", strategy(one))
    yield from _line("pods restarted by a person at", str(template_notes(one).get(RESTARTED) or ""))
    yield from _pod_spec(dig(one, "spec", "template", "spec", default={}))


def template_notes(one: Object) -> dict[str, Any]:
    return pairs(one, "spec", "template", "metadata", "annotations")


def strategy(one: Object) -> str:
    """How pods are replaced: `RollingUpdate (maxSurge 1, maxUnavailable 0)`."""
    found = pairs(one, "spec", "strategy") or pairs(one, "spec", "updateStrategy")
    details = ", ".join(f"{key} {value}" for key, value in pairs(found, "rollingUpdate").items())
    return f"{found.get('type', '')}{f' ({details})' if details else ''}"


def _pod(one: Object, now: float) -> Iterator[str]:
    where = f"{dig(one, 'spec', 'nodeName', default='no node yet')}, ip {dig(one, 'status', 'podIP', default='-')}"
    yield f"phase: {dig(one, 'status', 'phase')} on {where}"
    why = [str(dig(one, "status", part)) for part in ("reason", "message")]
    yield from _line("why", ": ".join(part for part in why if part))
    yield from _pod_spec(dig(one, "spec", default={}))
    for status in [*parts(one, "status", "initContainerStatuses"), *parts(one, "status", "containerStatuses")]:
        yield from _line(f"state of {dig(status, 'name')}", _state(status, now))


def _state(status: Object, now: float) -> str:
    said = [_of_state(pairs(status, "state"), now), f"restarted {dig(status, 'restartCount', default=0)} times"]
    if last := pairs(status, "lastState"):
        said.append(f"before that {_of_state(last, now)}")
    return ("ready, " if status.get("ready") is True else "not ready, ") + ", ".join(said)


def _of_state(state: Object, now: float) -> str:
    for name, found in state.items():
        began = instant(dig(found, "finishedAt") or dig(found, "startedAt"))
        code = f" with exit code {dig(found, 'exitCode')}" if dig(found, "exitCode") != "" else ""
        why = [str(dig(found, part)) for part in ("reason", "message")]
        reasons = ": ".join(part for part in why if part)
        return f"{name}{code}{f' ({reasons})' if reasons else ''}{f' {age(now - began)} ago' if began else ''}"
    return "unknown"


def _pod_spec(spec: Any) -> Iterator[str]:
    yield from _line("service account", str(dig(spec, "serviceAccountName")))
    for kind in ("initContainers", "containers"):
        for container in parts(spec, kind):
            yield from _container(container, "container" if kind == "containers" else "init container")
    volumes = [f"{dig(one, 'name')} ({_source(one)})" for one in parts(spec, "volumes")]
    yield from _line("volumes", ", ".join(volumes))


def _container(one: Object, title: str) -> Iterator[str]:
    yield f"{title} {dig(one, 'name')}: {dig(one, 'image')}"
    for name in ("command", "args"):
        words = dig(one, name, default=[])
        yield from _line(f"  {name}", " ".join(str(word) for word in words) if isinstance(words, list) else "")
    ports = [f"{dig(port, 'containerPort')}/{dig(port, 'protocol', default='TCP')}" for port in parts(one, "ports")]
    yield from _line("  ports", ", ".join(ports))
    for name in ("requests", "limits"):
        yield from _line(f"  {name}", _joined(pairs(one, "resources", name)))
    for name in ("readinessProbe", "livenessProbe", "startupProbe"):
        yield from _line(f"  {name}", _probe(pairs(one, name)))
    yield from _line("  env (names only)", ", ".join(_variable(each) for each in parts(one, "env")[:MOST_NAMES]))
    yield from _line("  env from", ", ".join(_source(each) for each in parts(one, "envFrom")))
    mounts = [f"{dig(each, 'mountPath')} from {dig(each, 'name')}" for each in parts(one, "volumeMounts")]
    yield from _line("  mounts", ", ".join(mounts))


def _probe(probe: Object) -> str:
    if not probe:
        return ""
    http, numbers = pairs(probe, "httpGet"), {key: value for key, value in probe.items() if isinstance(value, int)}
    what = f"GET {http.get('path', '/')} on {http.get('port', '')}" if http else next(iter(probe), "")
    return f"{what} ({_joined(numbers)})" if numbers else what


def _variable(one: Object) -> str:
    for kind, source in pairs(one, "valueFrom").items():
        origin = dig(source, "name") or dig(source, "fieldPath") or dig(source, "resource")
        key = f"/{dig(source, 'key')}" if dig(source, "key") else ""
        return f"{dig(one, 'name')} (from {kind.removesuffix('KeyRef').removesuffix('Ref')} {origin}{key})"
    return str(dig(one, "name"))


def _source(one: Object) -> str:
    """Where a volume or a set of variables comes from: `configMap gateway-routes`."""
    for kind, found in one.items():
        if isinstance(found, dict):
            name = dig(found, "name") or dig(found, "secretName") or dig(found, "claimName") or dig(found, "path")
            return f"{kind.removesuffix('Ref')} {name}".rstrip()
    return "unknown"


def _node(one: Object, now: float) -> Iterator[str]:
    for name in ("capacity", "allocatable"):
        yield from _line(name, _joined(pairs(one, "status", name)))
    taints = [f"{dig(taint, 'key')}:{dig(taint, 'effect')}" for taint in parts(one, "spec", "taints")]
    yield from _line("taints", ", ".join(taints))
    if dig(one, "spec", "unschedulable") is True:
        yield "cordoned: no new pods are put on it"
    info = pairs(one, "status", "nodeInfo")
    yield from _line("system", ", ".join(str(info[key]) for key in ("kubeletVersion", "osImage") if key in info))


def _config_map(one: Object, now: float) -> Iterator[str]:
    sizes = {**pairs(one, "data"), **pairs(one, "binaryData")}
    yield from _line("keys", ", ".join(f"{key} ({len(str(text))} characters)" for key, text in sizes.items()))
    yield "its texts: kubernetes_get with its name"


def _row(plural: str) -> Callable[[Object, float], Iterator[str]]:
    """What the table of the kind has to say, one column a line, and how its pods are made if it makes any."""

    def told(one: Object, now: float) -> Iterator[str]:
        for name, value in COLUMNS[plural][1:-1]:
            yield from _line(name, value(one, now))
        yield from _pod_spec(dig(one, "spec", "template", "spec", default={}))

    return told


_TELLERS: Mapping[str, Callable[[Object, float], Iterator[str]]] = {
    "pods": _pod,
    "deployments": _workload,
    "statefulsets": _workload,
    "daemonsets": _workload,
    "replicasets": _workload,
    "nodes": _node,
    "configmaps": _config_map,
}


def _by_kind(kind: Kind) -> Callable[[Object, float], Iterator[str]]:
    return _TELLERS.get(kind.plural) or _row(kind.plural)


def _conditions(one: Object) -> Iterator[str]:
    found = parts(one, "status", "conditions")
    if found:
        rows = [
            [str(dig(each, part)) for part in ("type", "status", "lastTransitionTime", "reason", "message")]
            for each in found
        ]
        yield f"conditions\n{table(['type', 'status', 'since', 'reason', 'message'], rows)}"
