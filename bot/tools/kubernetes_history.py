"""Revisions of a deployment: which there are, when and why they came, and what each changed in the pod template."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from bot.tools.kubernetes_objects import (
    CAUSE,
    REDACTED,
    REVISION,
    Object,
    dig,
    full_name,
    pairs,
    parts,
    revision_number,
)
from bot.tools.kubernetes_text import AGE, IMAGE, annotation, ready_of
from bot.tools.shaping import left_out, one_line, table

MOST_REVISIONS = 8
MOST_CHANGES = 20
HASH = "pod-template-hash"
Leaves = dict[str, str]


def revisions(deployment: Object, sets: Sequence[Object]) -> list[Object]:
    """The replica sets of a deployment, one a revision, the newest first."""
    owned = [one for one in sets if _owned(one, deployment) and revision_number(one) > 0]
    return sorted(owned, key=lambda one: -revision_number(one))


def history_text(deployment: Object, sets: Sequence[Object], now: float) -> str:
    """Revisions of a deployment, newest first, and what each one changed in the pod template."""
    owned = revisions(deployment, sets)
    current = dig(deployment, "metadata", "annotations", REVISION, default="unknown")
    ready = ready_of(deployment, now)
    text = f"deployment {full_name(deployment)}: revision {current} is current, {ready} ready"
    if not owned:
        return f"{text}\nThe cluster keeps no replica set of it, so there is no history."
    text += _progress(deployment)
    shown = owned[:MOST_REVISIONS]
    rows = [_row(one, now) for one in shown]
    text += "\n" + table(["revision", "template first used", "age", "ready", "image", "change cause"], rows)
    text += left_out(len(shown), len(owned), "revisions", "they are older")
    changes = [_changes(older, newer) for newer, older in pairwise(shown)]
    return "\n".join([text, "what each revision changed in the pod template, newest first", *changes]).rstrip()


def _progress(deployment: Object) -> str:
    """What the controller says of the last rollout."""
    for condition in parts(deployment, "status", "conditions"):
        if dig(condition, "type") == "Progressing":
            said = one_line(str(dig(condition, "message")))
            return f"\nlast rollout: {said} ({dig(condition, 'lastUpdateTime')})"
    return ""


def _row(one: Object, now: float) -> list[str]:
    created, number = str(dig(one, "metadata", "creationTimestamp")), str(revision_number(one))
    return [number, created, AGE[1](one, now), ready_of(one, now), IMAGE[1](one, now), annotation(CAUSE)(one, now)]


def _owned(one: Object, deployment: Object) -> bool:
    wanted = dig(deployment, "metadata", "uid")
    return any(dig(owner, "uid") == wanted for owner in parts(one, "metadata", "ownerReferences"))


def _changes(older: Object, newer: Object) -> str:
    before, after = (_flat(dig(one, "spec", "template")) for one in (older, newer))
    paths = [path for path in sorted(before.keys() | after.keys()) if before.get(path) != after.get(path)]
    lines = [f"  {path}: {_told(before, path)} -> {_told(after, path)}" for path in paths[:MOST_CHANGES]]
    what = f"{revision_number(older)} -> {revision_number(newer)}:"
    more = left_out(len(lines), len(paths), "changes", "read both replica sets by name")
    return "\n".join([what, *lines]) + more if lines else f"{what} nothing"


def _told(leaves: Leaves, path: str) -> str:
    """A leaf as it may be shown: that a variable has another value is told, which one is not."""
    if path not in leaves:
        return "(not set)"
    hidden = ".env." in path and path.endswith(".value")
    return REDACTED if hidden else one_line(leaves[path], 200)


def _flat(value: Any, path: str = "") -> Leaves:
    """Every leaf by its path; elements of a list go by their name where they have one."""
    if isinstance(value, dict):
        inner = [(str(key), one) for key, one in value.items() if key != HASH]
    elif isinstance(value, list):
        inner = [(str(dig(one, "name") or index), one) for index, one in enumerate(value)]
    else:
        return {path: str(value)}
    return {leaf: text for key, one in inner for leaf, text in _flat(one, f"{path}.{key}" if path else key).items()}


def template_of(replica_set: Object) -> Object:
    """The pod template as the deployment had it: without the label that tells replica sets apart."""
    template, metadata = pairs(replica_set, "spec", "template"), pairs(replica_set, "spec", "template", "metadata")
    labels = {key: text for key, text in pairs(metadata, "labels").items() if key != HASH}
    return {**template, "metadata": {**metadata, "labels": labels}}
