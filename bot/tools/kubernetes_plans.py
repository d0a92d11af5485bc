"""What a change of a workload would be, worked out from the objects alone: the patch, and the words for people.

Each change names what it replaces (a revision, a number of replicas), so what a person approved stays bound to what
was there when they did, whoever runs it and however much later. The patch then tests in the API server itself that
the object is still the one that the plan was made from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bot.tools.kubernetes_describe import RESTARTED, keeper, strategy, template_notes
from bot.tools.kubernetes_diff import template_diff
from bot.tools.kubernetes_history import revisions, template_of
from bot.tools.kubernetes_objects import (
    CAUSE,
    REVISION,
    Kind,
    Object,
    dig,
    full_name,
    instant,
    pairs,
    revision_number,
    revision_of,
)
from bot.tools.kubernetes_text import IMAGE, between, ready_of, scaled
from bot.tools.shaping import age, moment, one_line
from core.errors import ToolError
from core.redaction import redact


@dataclass(frozen=True, slots=True)
class Plan:
    """A change: the JSON patch with its tests, what a person decides on, what is said of it, and how it is seen."""

    steps: list[Object]
    shown: str
    done: str
    happened: Callable[[Object], bool]


def rollback(kind: Kind, one: Object, sets: Sequence[Object], old: int, wanted: int | None, now: float) -> Plan:
    """Bring the template of an earlier revision back. Raises ToolError when there is nothing to do, or no way."""
    what = _name(kind, one)
    _at_revision(what, one, str(old))
    _rolled_out(what, one)
    known = {revision_number(each): each for each in revisions(one, sets)}
    target = wanted if wanted is not None else max((number for number in known if number < old), default=None)
    if target is None:
        raise ToolError(f"{what} has no revision before {old}, so there is nothing to roll back to.")
    if target == old:
        raise ToolError(f"{what} is at revision {target} already: nothing to roll back.")
    if target not in known:
        kept = ", ".join(str(number) for number in known) or "none"
        raise ToolError(f"{what} has no revision {target}. The cluster keeps these: {kept}.")
    before, after = pairs(one, "spec", "template"), template_of(known[target])
    if before == after:
        raise ToolError(f"{what} runs the template of revision {target} already: nothing to roll back.")
    cause = one_line(f"rollback to revision {target} ({_cause(known[target]) or 'no change cause'})", 300)
    steps = [
        *_tests(one),
        {"op": "test", "path": f"/metadata/annotations/{_escaped(REVISION)}", "value": str(old)},
        {"op": "replace", "path": "/spec/template", "value": after},
        {"op": "add", "path": f"/metadata/annotations/{_escaped(CAUSE)}", "value": cause},
    ]
    ends = [f"{number}: {_told(known.get(number), now)}" for number in (old, target)]
    shown = [
        f"Roll back {what}: revision {old} → the template of revision {target}, as a new revision",
        *ends,
        *_replaced(one),
        "Only the pod template goes back: config maps, secrets and databases that it uses stay as they are.",
        template_diff(before, after, f"{full_name(one)} revision {old}", f"{full_name(one)} revision {target}"),
    ]
    done = f"{what}: rolled back from revision {old} to the template of revision {target}."
    return Plan(steps, redact("\n".join(shown)), done, lambda seen: pairs(seen, "spec", "template") == after)


def restart(kind: Kind, one: Object, revision: str, now: float) -> Plan:
    """Replace every pod by one made from the same template. Raises ToolError."""
    what, notes = _name(kind, one), template_notes(one)
    _at_revision(what, one, revision)
    _rolled_out(what, one)
    if strategy(one).startswith("OnDelete"):
        raise ToolError(f"{what} replaces a pod only when somebody deletes it (OnDelete): nothing would happen.")
    if dig(one, "spec", "replicas", default=1) == 0:
        raise ToolError(f"{what} is scaled to 0: there is no pod to restart.")
    stamp = moment(now)
    if notes.get(RESTARTED) == stamp:
        raise ToolError(f"{what} was restarted in this very second: nothing was changed.")
    marked = {**notes, RESTARTED: stamp}
    add = {"op": "add", "path": "/spec/template/metadata/annotations", "value": marked}
    before = pairs(one, "spec", "template")
    after = {**before, "metadata": {**pairs(before, "metadata"), "annotations": marked}}
    name, image = full_name(one), IMAGE[1](one, now)
    shown = [
        f"Restart {what}: every pod is replaced by a new one of the same template (revision {revision}, {image})",
        f"ready now: {ready_of(one, now)}",
        *_replaced(one),
        template_diff(before, after, name, f"{name}, with the time of the restart").replace(stamp, "(that moment)"),
    ]
    done = f"{what}: restart begun, every pod is being replaced."
    return Plan([*_tests(one), add], redact("\n".join(shown)), done, lambda seen: template_notes(seen) == marked)


def scale(kind: Kind, one: Object, old: int, wanted: int, autoscalers: Sequence[Object] | None, now: float) -> Plan:
    """Another number of pods. `autoscalers`: those of the namespace, None if they can't be read. Raises ToolError."""
    what, runs = _name(kind, one), dig(one, "spec", "replicas", default=1)
    if runs != old:
        raise ToolError(
            f"{what} is scaled to {runs} now, not to {old}, so nothing was changed. Look again before you decide."
        )
    if wanted == old:
        raise ToolError(f"{what} is scaled to {wanted} already: nothing to change.")
    shown = [f"Scale {what}: replicas {old} → {wanted}"]
    if wanted == 0:
        shown.append(f"SCALE TO ZERO: no pod of {full_name(one)} is left, everything that it serves stops.")
    elif wanted < old:
        shown.append(f"{old - wanted} of its pods are stopped.")
    shown.append(f"ready now: {ready_of(one, now)}, {IMAGE[1](one, now)}")
    shown += [*_scalers(kind, one, autoscalers), *_kept(one)]
    path = "/spec/replicas"
    steps: list[Object] = [
        {"op": "test", "path": "/metadata/uid", "value": dig(one, "metadata", "uid")},
        {"op": "test", "path": path, "value": old},
        {"op": "replace", "path": path, "value": wanted},
    ]
    done = f"{what}: scaled from {old} to {wanted} replicas."
    return Plan(steps, redact("\n".join(shown)), done, lambda seen: dig(seen, "spec", "replicas") == wanted)


def _name(kind: Kind, one: Object) -> str:
    return f"{kind.title} {full_name(one)}"


def _escaped(key: str) -> str:
    """A key as a step of a JSON pointer."""
    return key.replace("~", "~0").replace("/", "~1")


def _tests(one: Object) -> list[Object]:
    """The object is the same one, and runs the same template."""
    return [
        {"op": "test", "path": "/metadata/uid", "value": dig(one, "metadata", "uid")},
        {"op": "test", "path": "/spec/template", "value": pairs(one, "spec", "template")},
    ]


def _at_revision(what: str, one: Object, revision: str) -> None:
    runs = revision_of(one)
    if runs != revision:
        raise ToolError(
            f"{what} runs revision {runs or 'unknown'} now, not {one_line(revision, 80)}, so nothing was changed. "
            "Look again before you decide."
        )


def _rolled_out(what: str, one: Object) -> None:
    """A change would be rolled out, and the controller knows the last one, so that the revision is the real one."""
    seen, made = dig(one, "status", "observedGeneration"), dig(one, "metadata", "generation")
    if isinstance(seen, int) and isinstance(made, int) and seen < made:
        raise ToolError(f"{what} was changed a moment ago and its controller has not seen it yet. Look again.")
    if dig(one, "spec", "paused") is True:
        raise ToolError(f"{what} is paused, so a changed template would not be rolled out. Somebody must resume it.")


def _cause(one: Object) -> str:
    return str(pairs(one, "metadata", "annotations").get(CAUSE) or "")


def _told(one: Object | None, now: float) -> str:
    """What a revision is: its change cause and its age."""
    if one is None:
        return "the cluster keeps no replica set of it"
    created = instant(dig(one, "metadata", "creationTimestamp"))
    first = f", first used {age(now - created)} ago" if created else ""
    return f"{one_line(_cause(one), 200) or 'no change cause'}{first}"


def _replaced(one: Object) -> list[str]:
    """How pods are replaced, and who may undo it."""
    how = strategy(one)
    if how.startswith("Recreate"):
        return ["Recreate: all its pods stop before the first new one starts.", *_kept(one)]
    return [*([f"pods are replaced by {how}"] if how else []), *_kept(one)]


def _kept(one: Object) -> list[str]:
    tool = keeper(one)
    return [f"{tool} keeps it as it is written elsewhere and may undo this: change it there too."] if tool else []


def _scalers(kind: Kind, one: Object, autoscalers: Sequence[Object] | None) -> list[str]:
    if autoscalers is None:
        return ["Whether an autoscaler manages it could not be read."]
    mine = f"{kind.title.title().replace(' ', '')}/{dig(one, 'metadata', 'name')}"
    return [
        f"The autoscaler {dig(each, 'metadata', 'name')} manages it ({between(each, 0)}) and may change it back."
        for each in autoscalers
        if scaled(each, 0) == mine
    ]
