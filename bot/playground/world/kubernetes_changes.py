"""What a PATCH changes in the playground: it is understood as one of the things that the incident's world can live
through (a rollback, a restart, another scale), so that metrics, logs and objects change together. The API server's
part, JSON patches (RFC 6902) with their tests, is as in Kubernetes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from bot.playground.world.incident import Incident
from bot.playground.world.shapes import Object
from bot.playground.world.workloads import RESTARTED, pod_template

PATCHED = frozenset({"deployments", "statefulsets"})
JSON_PATCH = "application/json-patch+json"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
CAUSE = "kubernetes.io/change-cause"
GENERIC = "the server rejected our request due to an error in our request"
MOST_REPLICAS = 100
Parameters = Mapping[str, Sequence[str]]


class Refused(Exception):
    """An answer as a Status object."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code, self.reason, self.message = code, reason, message


def status_object(error: Refused) -> Object:
    return {
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": error.message, "reason": error.reason, "code": error.code,
    }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Body:
    """What a request brought, and whether its account may change anything."""

    content_type: str
    body: bytes
    may_change: bool = True


def reviewed(body: Body) -> Object:
    """Whether the account may do what it asks for: a review of its own rights."""
    try:
        review = json.loads(body.body)
        about = review["spec"]["resourceAttributes"]
        allowed = about["verb"] == "patch" and about["resource"] in PATCHED and body.may_change
    except (ValueError, KeyError, TypeError) as error:
        raise Refused(400, "BadRequest", "the request is no SelfSubjectAccessReview of a resource") from error
    return {**review, "status": {"allowed": allowed}}


def apply(kind: str, before: Object, patch: Body, given: Parameters, incident: Incident, now: float) -> None:
    """Make the change, or refuse it whole."""
    if "dryRun" in given:
        raise Refused(400, "BadRequest", "the playground has no dry run")
    after = _patched(before, patch)
    try:
        _understood(kind, before, after, incident, now)
    except (KeyError, TypeError, AttributeError) as error:
        raise _invalid(kind, before["metadata"]["name"], "it is no such object any more") from error


def _understood(kind: str, before: Object, after: Object, incident: Incident, now: float) -> None:
    name, was, wanted = before["metadata"]["name"], before["spec"], after["spec"]
    if _without(after) != _without(before):
        raise _invalid(kind, name, "the playground changes only replicas, the pod template and the change cause")
    replicas = wanted["replicas"]
    if not isinstance(replicas, int) or isinstance(replicas, bool) or not 0 <= replicas <= MOST_REPLICAS:
        raise _invalid(kind, name, f"spec.replicas: Invalid value: {replicas}")
    if kind == "statefulsets":
        _change_the_bot(name, was, wanted, incident, now)
        return
    if wanted["template"] != was["template"]:
        notes, said = before["metadata"]["annotations"], after["metadata"]["annotations"].get(CAUSE, "")
        told = said if said != notes.get(CAUSE) else ""
        _roll_out(name, was["template"], wanted["template"], told, incident, now)
    if replicas != was["replicas"]:
        incident.scale(name, replicas, now)


def _roll_out(name: str, was: Object, wanted: Object, cause: str, incident: Incident, now: float) -> None:
    for earlier in reversed(incident.rollouts[name]):
        if pod_template(name, earlier.template) == wanted:
            incident.roll_back(name, earlier.revision, now, cause)
            return
    if _unstamped(was) != _unstamped(wanted):
        raise _invalid("deployments", name, "spec.template: the playground runs only templates that it knows")
    incident.restart(name, str(wanted["metadata"]["annotations"][RESTARTED]), now)


def _change_the_bot(name: str, was: Object, wanted: Object, incident: Incident, now: float) -> None:
    if wanted["replicas"] != was["replicas"]:
        raise _invalid("statefulsets", name, "spec.replicas: the playground's deploybot runs once")
    if _unstamped(was["template"]) != _unstamped(wanted["template"]):
        raise _invalid("statefulsets", name, "spec.template: the playground runs only templates that it knows")
    if was["template"] != wanted["template"]:
        incident.restarts.append((now, str(wanted["template"]["metadata"]["annotations"][RESTARTED])))


def _unstamped(template: Object) -> Object:
    """A template without the mark of its restart."""
    kept = deepcopy(template)
    notes = kept["metadata"].get("annotations", {})
    notes.pop(RESTARTED, None)
    if not notes:
        kept["metadata"].pop("annotations", None)
    return kept


def _without(one: Object) -> Object:
    """An object without what may be changed."""
    kept = deepcopy(one)
    for part in ("replicas", "template"):
        kept.get("spec", {}).pop(part, None)
    kept.get("metadata", {}).get("annotations", {}).pop(CAUSE, None)
    return kept


def _invalid(kind: str, name: str, why: str) -> Refused:
    title = {"deployments": "Deployment", "statefulsets": "StatefulSet"}[kind]
    return Refused(422, "Invalid", f'{title}.apps "{name}" is invalid: {why}')


def _patched(before: Object, patch: Body) -> Object:
    if patch.content_type != JSON_PATCH:
        raise Refused(415, "UnsupportedMediaType", f"the playground takes {JSON_PATCH}, not {patch.content_type!r}")
    try:
        operations = json.loads(patch.body)
        after: Any = deepcopy(before)
        for one in operations:
            STEPS[one["op"]](after, [_unescaped(part) for part in one["path"].split("/")[1:]], one)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise Refused(422, "Invalid", GENERIC) from error
    if not isinstance(after, dict):
        raise Refused(422, "Invalid", GENERIC)
    return after


def _unescaped(part: str) -> str:
    return part.replace("~1", "/").replace("~0", "~")


def _place(whole: Any, path: Sequence[str]) -> tuple[Any, Any]:
    """What holds the place that `path` leads to, and the place's key in it."""
    for step in path[:-1]:
        whole = whole[int(step) if isinstance(whole, list) else step]
    return whole, int(path[-1]) if isinstance(whole, list) and path[-1] != "-" else path[-1]


def _test(whole: Any, path: Sequence[str], given: Object) -> None:
    holder, key = _place(whole, path)
    if holder[key] != given["value"]:
        raise ValueError(f"testing value /{'/'.join(path)} failed: test failed")


def _add(whole: Any, path: Sequence[str], given: Object) -> None:
    holder, key = _place(whole, path)
    if isinstance(holder, list):
        holder.insert(len(holder) if key == "-" else key, given["value"])
    else:
        holder[key] = given["value"]


def _replace(whole: Any, path: Sequence[str], given: Object) -> None:
    holder, key = _place(whole, path)
    holder[key]  # it must be there
    holder[key] = given["value"]


def _remove(whole: Any, path: Sequence[str], given: Object) -> None:
    holder, key = _place(whole, path)
    del holder[key]


STEPS: Mapping[str, Callable[[Any, Sequence[str], Object], None]] = {
    "test": _test,
    "add": _add,
    "replace": _replace,
    "remove": _remove,
}
