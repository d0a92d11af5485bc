"""The Kubernetes REST API over the objects of the playground: list and get, pod logs, JSON patches, and Status
objects for the rest. The service account of the playground may read everything but secrets, and patch what runs pods.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from bot.playground.world.incident import Incident
from bot.playground.world.kubernetes_changes import (
    PATCHED,
    REVIEWS,
    Body,
    Parameters,
    Refused,
    apply,
    reviewed,
    status_object,
)
from bot.playground.world.logs import Stream, stamp
from bot.playground.world.objects import objects

ACCOUNT = "system:serviceaccount:pilothouse:reader"
KINDS = {
    "pods": ("v1", "Pod"),
    "services": ("v1", "Service"),
    "configmaps": ("v1", "ConfigMap"),
    "events": ("v1", "Event"),
    "nodes": ("v1", "Node"),
    "namespaces": ("v1", "Namespace"),
    "deployments": ("apps/v1", "Deployment"),
    "replicasets": ("apps/v1", "ReplicaSet"),
    "statefulsets": ("apps/v1", "StatefulSet"),
    "daemonsets": ("apps/v1", "DaemonSet"),
    "jobs": ("batch/v1", "Job"),
    "horizontalpodautoscalers": ("autoscaling/v2", "HorizontalPodAutoscaler"),
}
CLUSTER_WIDE = frozenset({"nodes", "namespaces"})
PATHS = re.compile(
    r"/(?P<group>api/v1|apis/apps/v1|apis/batch/v1|apis/autoscaling/v2)(?:/namespaces/(?P<namespace>[^/]+)(?=/))?/(?P<kind>[a-z]+)"
    r"(?:/(?P<name>[^/]+)(?:/(?P<part>[a-z]+))?)?"
)
LABEL = re.compile(r"\s*([\w./-]+)\s*(?:(!=|==?)\s*([\w.-]*)|\s+(in|notin)\s+\(([^)]*)\))?\s*(?:,|$)")
FIELD = re.compile(r"([\w.]+)(!=|==?)(.*)", re.DOTALL)
MOST_LOG_LINES = 20_000


@dataclass(frozen=True, slots=True)
class Asked:
    """One request, taken apart."""

    kind: str
    namespace: str | None
    name: str | None
    part: str | None


def answer(
    method: str,
    path: str,
    given: Parameters,
    token: bool,
    incident: Incident,
    streams: Sequence[Stream],
    now: float,
    body: Body,
) -> web.Response:
    """Answer one request; `path` is what follows the prefix, `token` whether the right one was shown."""
    try:
        if not token:
            raise Refused(401, "Unauthorized", "Unauthorized")
        if path in ("/readyz", "/livez", "/healthz"):
            return web.Response(text="ok")
        if path.rstrip("/") == "/version":
            return web.json_response(
                {"major": "1", "minor": "34", "gitVersion": "v1.34.2", "platform": "linux/amd64"}
            )
        if (method, path) == ("POST", REVIEWS):
            return web.json_response(reviewed(body), status=201)
        asked = _taken_apart(method, path, body.may_change)
        if method == "PATCH":
            apply(asked.kind, _answered(asked, {}, incident, now), body, given, incident, now)
            return web.json_response(_answered(asked, {}, incident, now))
        if asked.part == "log":
            return web.Response(text=_log(asked, given, incident, streams, now))
        return web.json_response(_answered(asked, given, incident, now))
    except Refused as error:
        return web.json_response(status_object(error), status=error.code)


def _taken_apart(method: str, path: str, may_change: bool) -> Asked:
    found = PATHS.fullmatch(path)
    if found is None:
        raise Refused(404, "NotFound", "the server could not find the requested resource")
    group, kind, namespace = found["group"], found["kind"], found["namespace"]
    asked = Asked(kind, namespace, found["name"], found["part"])
    version = group.partition("/")[2]
    patched = method == "PATCH" and may_change and asked.name and not asked.part and kind in PATCHED
    if (method != "GET" and not patched) or kind not in KINDS:
        verb = {"GET": "get" if asked.name else "list", "POST": "create", "PUT": "update"}.get(method, method.lower())
        where = f' in the namespace "{namespace}"' if namespace else " at the cluster scope"
        group = version.rpartition("/")[0]
        subject = f'{kind} "{asked.name}"' if asked.name else kind
        words = f'{subject} is forbidden: User "{ACCOUNT}" cannot {verb} resource "{kind}" in API group "{group}"'
        raise Refused(403, "Forbidden", words + where)
    if not _exists(asked, version):
        raise Refused(404, "NotFound", "the server could not find the requested resource")
    return asked


def _exists(asked: Asked, version: str) -> bool:
    if KINDS[asked.kind][0] != version or asked.part not in (None, "log"):
        return False
    if asked.part == "log" and asked.kind != "pods":
        return False
    if asked.namespace is not None:
        return asked.kind not in CLUSTER_WIDE
    return asked.name is None or asked.kind in CLUSTER_WIDE


def _answered(asked: Asked, given: Parameters, incident: Incident, now: float) -> dict[str, Any]:
    version, kind = KINDS[asked.kind]
    found = [
        one
        for one in objects(asked.kind, incident, now)
        if asked.namespace in (None, one["metadata"].get("namespace"))
    ]
    if asked.name is not None:
        one = next((one for one in found if one["metadata"]["name"] == asked.name), None)
        if one is None:
            plural = asked.kind if version == "v1" else f"{asked.kind}.{version.partition('/')[0]}"
            raise Refused(404, "NotFound", f'{plural} "{asked.name}" not found')
        return {"apiVersion": version, "kind": kind, **one}
    found = [one for one in found if _labelled(one, given) and _fielded(one, given)]
    begin, limit = _number(given, "continue", 0), _number(given, "limit", 0)
    page = found[begin : begin + limit] if limit else found[begin:]
    left = len(found) - begin - len(page)
    meta: dict[str, Any] = {"resourceVersion": str(8_900_000 + int(now) % 99_999)}
    if left:
        meta |= {"continue": str(begin + len(page)), "remainingItemCount": left}
    return {"apiVersion": version, "kind": f"{kind}List", "metadata": meta, "items": page}


def _number(given: Parameters, name: str, default: int) -> int:
    text = given.get(name, [""])[0]
    if not text:
        return default
    if not text.isascii() or not text.isdigit():
        raise Refused(400, "BadRequest", f"invalid {name} parameter {text!r}")
    return int(text)


def _labelled(one: dict[str, Any], given: Parameters) -> bool:
    text, labels, place = given.get("labelSelector", [""])[0], one["metadata"].get("labels", {}), 0
    while place < len(text):
        found = LABEL.match(text, place)
        if found is None or found.end() == place:
            raise Refused(400, "BadRequest", f"unable to parse requirement: {text[place:]!r}")
        key, sign, value, word, choices = found.groups()
        place = found.end()
        if sign and (labels.get(key) == value) != (sign != "!="):
            return False
        if word and (labels.get(key) in [choice.strip() for choice in choices.split(",")]) != (word == "in"):
            return False
        if not sign and not word and key not in labels:
            return False
    return True


def _fielded(one: dict[str, Any], given: Parameters) -> bool:
    for part in filter(None, given.get("fieldSelector", [""])[0].split(",")):
        found = FIELD.fullmatch(part)
        if found is None:
            raise Refused(400, "BadRequest", f"invalid field selector {part!r}")
        path, sign, value = found.groups()
        field: Any = one
        for step in path.split("."):
            field = field.get(step, "") if isinstance(field, dict) else ""
        if (str(field) == value) != (sign != "!="):
            return False
    return True


def _log(asked: Asked, given: Parameters, incident: Incident, streams: Sequence[Stream], now: float) -> str:
    pod = _answered(Asked("pods", asked.namespace, asked.name, None), {}, incident, now)
    containers = [container["name"] for container in pod["spec"]["containers"]]
    container = given.get("container", containers)[0]
    if container not in containers:
        raise Refused(400, "BadRequest", f"container {container} is not valid for pod {asked.name}")
    if given.get("previous", ["false"])[0].lower() == "true":
        raise Refused(
            400, "BadRequest", f'previous terminated container "{container}" in pod "{asked.name}" not found'
        )
    wanted = _number(given, "tailLines", MOST_LOG_LINES)
    since_s = _number(given, "sinceSeconds", 24 * 3600)
    lines = []
    for stream in streams:
        if stream.labels["pod"] == asked.name:
            for (t, line), _ in zip(stream.backwards(now - since_s, now), range(wanted), strict=False):
                lines.append(f"{stamp(t)[:-1]}000000Z {line}" if given.get("timestamps") else line)
    return "".join(f"{line}\n" for line in reversed(lines))
