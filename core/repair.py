"""The suture: an unsendable history in, a valid request out, with every stitch reported.

It runs in front of each request as the last line of defence. It is

    the identity   on a valid history, byte for byte
    deterministic  no clock, no random id, nothing that differs between two machines
    idempotent     what comes out is valid, so it comes out of a second run as it is
    honest         no words of a person and no real result are dropped: they are moved, joined, or turned into
                   marked text. No value is made up. What closes a call says what is known about it.

`PASSES` is the whole of it, in order; each pass is a pure function of the lines (and of a scene that is written
to, never read back across histories), lives in the module that its line names, and is tested by name. The order
matters: bytes and fields, then roles, then blocks that can't be sent, then neighbours, then calls and results in
one pass over one list of calls, then the ends, then the thinking behind the first changed place, and last what
the request as a whole asks for. The validator judges the outcome: what it still refuses is `NotRepairable`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from core.fake_signer import signer_of
from core.messages import Block
from core.repair_blocks import empty, errors_hold_text, no_pictures, pictures, place, unusable
from core.repair_bytes import writable
from core.repair_ends import first, last, systems
from core.repair_lines import Line, NotRepairable, Pass, Repair, Scene, join, write_all
from core.repair_pairs import pair
from core.repair_proof import undo
from core.repair_read import read
from core.repair_request import marks, size, tools, transcript
from core.repair_server import server
from core.repair_thinking import Flat, arrived, flat_messages, modes, strip, without_all
from core.repair_words import MARK, OWN_NOTES, Fate, Known, is_placeholder
from core.validator import Problem, Profile, Verify, problems

__all__ = [
    "MARK",
    "PASSES",
    "Fate",
    "Known",
    "NotRepairable",
    "Repair",
    "Sutured",
    "suture",
]


@dataclass(frozen=True, slots=True)
class Sutured:
    """What can be sent. `repairs` is empty exactly when nothing had to change.

    `changes` are parts of the request that have to change with the messages (thinking off for a tool loop whose
    thinking is lost, tool names made unique). `deferred` are people's words that may not be sent while a server
    tool is running: they belong to the next message.
    """

    messages: list[dict[str, Any]]
    repairs: list[Repair]
    changes: dict[str, Any] = field(default_factory=dict)
    deferred: list[Block] = field(default_factory=list)


def _strip_behind_edits(lines: list[Line], scene: Scene) -> list[Line]:
    return strip(lines, _as_given(scene), scene)


def _as_given(scene: Scene) -> Flat:
    return flat_messages(scene.request["messages"])


def _nothing_said(lines: list[Line], scene: Scene) -> list[Line]:
    """A request that would hold our own words only is not one that anybody asked for."""
    if not any(line.role == "user" and any(map(_is_substance, line.blocks)) for line in lines):
        raise NotRepairable("Nothing that a person said is left in this history: there is nothing to answer.")
    return lines


def _is_substance(block: Mapping[str, Any]) -> bool:
    if block["type"] == "text":
        return block["text"] not in OWN_NOTES
    return block["type"] != "tool_result" or not is_placeholder(block)


PASSES: Final[Sequence[Pass]] = (
    place,
    unusable,
    pictures,
    empty,
    systems,
    join,
    _nothing_said,
    pair,
    join,
    errors_hold_text,
    server,
    empty,
    systems,
    join,
    first,
    join,
    undo,
    _strip_behind_edits,
    empty,
    systems,
    join,
    modes,
    empty,
    systems,
    join,
    last,
    arrived,
    tools,
    transcript,
    marks,
    size,
)


def suture(
    request_or_messages: Mapping[str, Any] | Sequence[Any],
    *,
    profile: Profile = Profile.EVERYWHERE,
    known: Mapping[str, Known] | None = None,
    in_flight: Collection[str] = (),
    verify: Verify | None = None,
    without_thinking: bool = False,
    without_pictures: bool = False,
) -> Sutured:
    """The messages as they can be sent, and what had to be done for it.

    `known` is what the records say about calls, by id; `in_flight` are calls that still run. `verify` checks
    thinking signatures where somebody can; `without_thinking` takes all thinking out, for a request that was
    refused for its signatures, `without_pictures` all pictures, for one that was refused for them. Raises
    `NotRepairable` when a call without a result still runs, when nothing that a person said is left, and when the
    validator refuses the outcome.
    """
    request = _request_of(request_or_messages)
    signer = signer_of(request)
    verify = verify or (signer.verify if signer is not None else None)
    broken = frozenset(problem.rule for problem in problems(request, profile, verify=verify))
    scene = Scene(request, profile, known or {}, _running(request, in_flight), verify, broken)
    valid = not broken
    asked = without_thinking or without_pictures
    if valid and not asked and not _has_news(scene):
        return Sutured(list(request["messages"]), [])
    passes: Sequence[Pass] = PASSES
    if asked:
        first = ((no_pictures,) if without_pictures else ()) + ((_without_thinking,) if without_thinking else ())
        passes = (*first, *PASSES)
    elif valid:
        passes = (arrived,)
    try:
        return _sewn(scene, passes)
    except RecursionError:
        raise NotRepairable("A value is nested too deeply: shorten it where it came in.") from None


def _sewn(scene: Scene, passes: Sequence[Pass]) -> Sutured:
    lines = read(writable(scene.request, scene), scene)
    for each in passes:
        lines = each(lines, scene)
    left = _problems_of(lines, scene)
    if any(problem.rule == "R72" for problem in left):
        scene.broken = frozenset({"R72"})
        lines = size(lines, scene)
        left = _problems_of(lines, scene)
    if left:
        raise NotRepairable(f"The history is still refused after the repair: {_listed(left)}")
    return Sutured(write_all(lines), scene.repairs, scene.changes, scene.deferred)


def _problems_of(lines: list[Line], scene: Scene) -> list[Problem]:
    request = {**scene.request, **scene.changes, "messages": write_all(lines)}
    return problems(request, scene.profile, verify=scene.verify)


def _without_thinking(lines: list[Line], scene: Scene) -> list[Line]:
    return without_all(lines, "R42", scene)


def _request_of(given: Mapping[str, Any] | Sequence[Any]) -> Mapping[str, Any]:
    request: Mapping[str, Any] = given if isinstance(given, Mapping) else {"messages": list(given)}
    messages = request.get("messages")
    if isinstance(messages, tuple):
        return _request_of({**request, "messages": list(messages)})
    if not isinstance(messages, list) or not messages:
        raise NotRepairable("The history holds no messages: there is nothing to answer.")
    return request


def _running(request: Mapping[str, Any], in_flight: Collection[str]) -> frozenset[str]:
    named = request.get("in_flight")
    return frozenset(in_flight) | frozenset(map(str, named) if isinstance(named, list) else ())


def _has_news(scene: Scene) -> bool:
    """Whether the records hold a real result for a call: only then a valid history may have to change."""
    return any(known.fate is Fate.RESULT for known in scene.known.values())


def _listed(left: Sequence[Problem]) -> str:
    return "; ".join(f"{problem.rule} {problem.problem}" for problem in left[:3])
