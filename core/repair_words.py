"""Every word that the suture puts into a history, and the few that it recognises.

Each text begins with a mark, so that the model, people and programs can tell it from what was really said.
None holds a time, a random id or a counter: the same history gives the same words on every machine.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

MARK: Final = "[suture]"


class Fate(StrEnum):
    """What the audit rows know about a call; the list is closed."""

    NOT_RECORDED = "not_recorded"
    NOT_STARTED = "not_started"
    CANCELLED = "cancelled"
    DECLINED = "declined"
    APPROVAL_OPEN = "approval_open"
    CUT_BY_LIMIT = "cut_by_limit"
    NO_SUCH_TOOL = "no_such_tool"
    INTERRUPTED = "interrupted"
    IN_FLIGHT = "in_flight"
    RESULT = "result"


@dataclass(frozen=True, slots=True)
class Known:
    """What is known about one call beside the history.

    `writes` is None when nobody knows whether the tool changes something. `by` names who cancelled or
    declined. `result` is the real result's text, for the fate `result` only.
    """

    fate: Fate = Fate.NOT_RECORDED
    writes: bool | None = None
    result: str = ""
    is_error: bool = False
    by: str = ""


CHECK_FIRST: Final = "Check the current state before repeating it."
EFFECT: Final[Mapping[bool | None, str]] = {
    None: f"It may or may not have taken effect. {CHECK_FIRST}",
    False: "It only reads, so it can be repeated.",
    True: f"It writes: its effect is unknown. {CHECK_FIRST}",
}
STOPPED_EFFECT: Final[Mapping[bool | None, str]] = {
    None: "Its effect is unknown.",
    False: "It only reads, and nothing was read.",
    True: f"It writes: its effect is unknown. {CHECK_FIRST}",
}


def placeholder(known: Known) -> str:
    """The text of the result that closes a call whose real result nobody has."""
    match known.fate:
        case Fate.NOT_STARTED:
            text = "This call was not started. Nothing was run."
        case Fate.CANCELLED:
            who = known.by or "The user"
            effect = STOPPED_EFFECT[known.writes]
            text = f"{who} stopped this step while the call was running. {effect}"
        case Fate.DECLINED:
            text = f"{known.by or 'A human'} declined this call. It was not run."
        case Fate.APPROVAL_OPEN:
            text = "Approval for this call was still open when a newer message arrived. It was not run."
        case Fate.CUT_BY_LIMIT:
            text = "The output limit cut this call off. Its arguments are incomplete and it was not run."
        case Fate.NO_SUCH_TOOL:
            text = "No tool with this name was available. It was not run."
        case Fate.INTERRUPTED:
            text = f"A restart interrupted this call. {EFFECT[known.writes]}"
        case _:
            text = f"The result of this call was not recorded. {EFFECT[known.writes]}"
    return f"{MARK} {text}"


def _any_of(texts: Mapping[bool | None, str]) -> str:
    return "|".join(re.escape(text) for text in texts.values())


_KNOWS_NOTHING: Final = re.compile(
    rf"\[suture\] (?:The result of this call was not recorded|A restart interrupted this call)\. "
    rf"(?:{_any_of(EFFECT)})"
)
_KNOWS_SOMETHING: Final = re.compile(
    r"\[suture\] (?:"
    rf"[^\n]{{1,200}} stopped this step while the call was running\. (?:{_any_of(STOPPED_EFFECT)})"
    r"|[^\n]{1,200} declined this call\. It was not run\."
    r"|This call was not started\. Nothing was run\."
    r"|Approval for this call was still open when a newer message arrived\. It was not run\."
    r"|The output limit cut this call off\. Its arguments are incomplete and it was not run\."
    r"|No tool with this name was available\. It was not run\.)"
)


def _only_text(block: Mapping[str, Any]) -> str:
    content = block.get("content")
    if isinstance(content, list) and len(content) == 1 and isinstance(content[0], Mapping):
        content = content[0].get("text")
    return content if isinstance(content, str) else ""


def is_placeholder(result: Mapping[str, Any]) -> bool:
    """Whether this tool result is one of ours that stands for a missing one. A tool's own output never is:
    ours are errors, and match a whole sentence of the list."""
    text = _only_text(result)
    known = _KNOWS_NOTHING.fullmatch(text) or _KNOWS_SOMETHING.fullmatch(text)
    return bool(result.get("is_error")) and known is not None


def knows_nothing(result: Mapping[str, Any]) -> bool:
    """Whether a placeholder says nothing that would be lost with it."""
    return is_placeholder(result) and _KNOWS_NOTHING.fullmatch(_only_text(result)) is not None


def marked(text: str) -> str:
    """`text` with our mark in front, once."""
    return text if text.startswith(MARK) else f"{MARK} {text}"


NO_OUTPUT: Final = f"{MARK} The tool returned no output."
EMPTY_FIRST: Final = f"{MARK} The message that stood here first was empty: the summary or text is missing."
EARLIER: Final = f"{MARK} Earlier messages are not included."
CONTINUE: Final = f"{MARK} The previous reply ends here. Continue if it is not complete."
PICTURE_MOVED: Final = f"{MARK} The tool reported an error; what it sent along follows behind the results."
OWN_NOTES: Final = frozenset({NO_OUTPUT, EMPTY_FIRST, EARLIER, CONTINUE, PICTURE_MOVED})


def orphan(call_id: Any, text: str) -> str:
    return f"{MARK} A result is kept here as data whose call does not stand in front of it ({call_id}): {text}"


def late(call_id: Any, text: str) -> str:
    return f"{MARK} The result of an earlier call arrived late and is kept here as data ({call_id}): {text}"


def raw_arguments(value: Any) -> str:
    return f"{MARK} Raw arguments as received: {as_text(value)}"


def posted_before(text: str) -> str:
    return f"{MARK} Posted in this thread before the conversation, kept as data: {text}"


def foreign_role(role: Any, text: str) -> str:
    return f"{MARK} A message of the role {role}, kept as data: {text}"


def foreign_block(kind: Any, value: Any) -> str:
    return f"{MARK} {kind}: {as_text(value)}"


def picture_removed(why: str) -> str:
    return f"{MARK} An image was removed: {why}."


def cut(text: str, keep: int) -> str:
    """Head and tail of `text`, `keep` characters together, with its true size in between."""
    lines = text.count("\n") + 1
    note = f"\n{MARK} cut here, {len(text)} characters in {lines} lines in total\n"
    head = keep - keep // 4
    return text[:head] + note + (text[len(text) - keep // 4 :] if keep >= 4 else "")


def as_text(value: Any) -> str:
    """A JSON value to read: strings stay as they are, character for character, even inside."""
    return value if isinstance(value, str) else _nested(value)


def _nested(value: Any) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, Mapping):
        return "{" + ", ".join([f'"{key}": {_nested(each)}' for key, each in value.items()]) + "}"
    if isinstance(value, list):
        return "[" + ", ".join([_nested(each) for each in value]) + "]"
    return json.dumps(value)
