"""Kubernetes objects as plain JSON: which kinds there are, and what can be read from one.

Anything may be missing or odd. The values of environment variables are never kept: nobody can tell a harmless one
from a password. Secrets are no kind here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from bot.tools.shaping import one_line
from core.errors import ToolError

Object = dict[str, Any]

REVISION = "deployment.kubernetes.io/revision"
TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"
CAUSE = "kubernetes.io/change-cause"
REDACTED = "[redacted]"


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of objects: what people call one, which API it belongs to, and the end of its methods' names."""

    plural: str
    title: str
    group: str
    method: str
    short: Sequence[str] = ()
    cluster_wide: bool = False


_ALL = (
    Kind("pods", "pod", "core", "namespaced_pod", ("po",)),
    Kind("deployments", "deployment", "apps", "namespaced_deployment", ("deploy",)),
    Kind("statefulsets", "stateful set", "apps", "namespaced_stateful_set", ("sts",)),
    Kind("daemonsets", "daemon set", "apps", "namespaced_daemon_set", ("ds",)),
    Kind("replicasets", "replica set", "apps", "namespaced_replica_set", ("rs",)),
    Kind("jobs", "job", "batch", "namespaced_job"),
    Kind("horizontalpodautoscalers", "autoscaler", "autoscaling", "namespaced_horizontal_pod_autoscaler", ("hpa",)),
    Kind("services", "service", "core", "namespaced_service", ("svc",)),
    Kind("configmaps", "config map", "core", "namespaced_config_map", ("cm",)),
    Kind("nodes", "node", "core", "node", ("no",), cluster_wide=True),
    Kind("namespaces", "namespace", "core", "namespace", ("ns",), cluster_wide=True),
)
KINDS: Mapping[str, Kind] = {kind.plural: kind for kind in _ALL}
_NAMES: Mapping[str, Kind] = {
    name: kind
    for kind in _ALL
    for name in (kind.plural, kind.plural.removesuffix("s"), kind.title.replace(" ", ""), *kind.short)
}


def kind_of(text: str, among: Sequence[str] = tuple(KINDS)) -> Kind:
    """The kind that is meant by `pods`, `Pod` or `po`. Raises ToolError."""
    wanted = "".join(text.split()).lower()
    if wanted in ("secret", "secrets"):
        raise ToolError("secrets are never read, whoever asks. What refers to one shows its name only.")
    kind = _NAMES.get(wanted)
    if kind is None or kind.plural not in among:
        raise ToolError(f"{one_line(text, 60)!r} is no kind that it knows. The kinds are: {', '.join(among)}.")
    return kind


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
    return parts(found, "items")


def parts(value: Any, *path: str | int) -> list[Object]:
    """The objects in the list at `path`."""
    many = dig(value, *path, default=[])
    return [one for one in many if isinstance(one, dict)] if isinstance(many, list) else []


def pairs(value: Any, *path: str | int) -> dict[str, Any]:
    """The object at `path`."""
    found = dig(value, *path, default={})
    return found if isinstance(found, dict) else {}


def instant(text: Any) -> float:
    """Seconds since the epoch of a timestamp of the API, 0 if it is none."""
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except (ValueError, OverflowError):
        return 0.0


def full_name(one: Object) -> str:
    """`namespace/name`."""
    place = dig(one, "metadata", "namespace")
    return f"{place}/{dig(one, 'metadata', 'name')}" if place else str(dig(one, "metadata", "name"))


def selector_of(one: Object) -> str | None:
    """What selects the pods of a workload, as the API takes it; None if it selects nothing."""
    labels = pairs(one, "spec", "selector", "matchLabels") or pairs(one, "spec", "selector")
    return ",".join(f"{key}={text}" for key, text in labels.items() if isinstance(text, str)) or None


def revision_of(one: Object) -> str:
    """The revision that a workload runs, as its controller names it."""
    notes = pairs(one, "metadata", "annotations")
    found = notes.get(REVISION) or dig(one, "status", "updateRevision") or notes.get(TEMPLATE_GENERATION)
    return str(found or "")


def revision_number(one: Object) -> int:
    """The revision of a deployment or replica set, 0 if it has none."""
    text = str(pairs(one, "metadata", "annotations").get(REVISION))
    return int(text) if text.isascii() and text.isdigit() else 0


def redacted(value: Any) -> Any:
    """A copy without the values of environment variables."""
    if isinstance(value, list):
        return [redacted(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {
        key: [_nameless(one) for one in inner] if key == "env" and isinstance(inner, list) else redacted(inner)
        for key, inner in value.items()
    }


def _nameless(variable: Any) -> Any:
    return {**variable, "value": REDACTED} if isinstance(variable, dict) and "value" in variable else variable
