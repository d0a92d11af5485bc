"""The remediation ladder: what is tried when a turn genuinely produced no answer. A cut turn never comes here.

    1  ask again for the answer from what was found, without tools
    2  the same with a larger output limit, if the output limit was the cause
    3  the fallback model, if there is one
    4  an honest summary written by us from the tool results, posted as such, with a diagnosis for the operators

The rung is a column of the turn and is written together with what is said to the model, so a drain or a crash goes
on at the same rung. What the ladder says to the model are marked user-side entries; its own summary is never an
assistant entry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum


class Rung(IntEnum):
    """Where on the ladder a turn is; 0 is the ground."""

    GROUND = 0
    ASK_AGAIN = 1
    LARGER_OUTPUT = 2
    FALLBACK_MODEL = 3
    SUMMARY = 4


class EmptyCause(StrEnum):
    """Why there was no answer."""

    NOTHING = "nothing"
    MAX_TOKENS = "max_tokens"
    STEP_LIMIT = "step_limit"
    TIME_LIMIT = "time_limit"


NOT_WHOLE: Mapping[str, EmptyCause] = {
    "max_tokens": EmptyCause.MAX_TOKENS,
    "model_context_window_exceeded": EmptyCause.NOTHING,
    "pause_turn": EmptyCause.NOTHING,
}
"""Stop reasons of messages that are not whole: neither is their text an answer, nor are their calls run."""


def next_rung(rung: Rung, cause: EmptyCause, *, has_fallback: bool) -> Rung:
    """The rung to climb to after `rung` gave no answer."""
    if rung is Rung.GROUND:
        return Rung.ASK_AGAIN
    if rung is Rung.ASK_AGAIN and cause is EmptyCause.MAX_TOKENS:
        return Rung.LARGER_OUTPUT
    if rung < Rung.FALLBACK_MODEL and has_fallback:
        return Rung.FALLBACK_MODEL
    return Rung.SUMMARY


ASKS: dict[Rung, str] = {
    Rung.ASK_AGAIN: "Your last message had no text. Please write your answer now from what you found so far.",
    Rung.LARGER_OUTPUT: "Your answer was cut off by its length limit. Please write it again; it may be longer now.",
    Rung.FALLBACK_MODEL: "There is still no answer. Please write it now from what was found so far.",
}

CUT_OFF = "Your last message was cut off by its length limit. Please write your answer now, in fewer words."

LIMIT_ASKS: dict[EmptyCause, str] = {
    EmptyCause.STEP_LIMIT: "The limit of steps for this turn is reached. Please give your answer now, without tools.",
    EmptyCause.TIME_LIMIT: "The time for this turn is nearly over. Please give your answer now, without tools.",
}


def ask(rung: Rung, cause: EmptyCause) -> str:
    """What the ladder says to the model on `rung`, marked as ours."""
    text = LIMIT_ASKS[cause] if rung is Rung.GROUND else ASKS[rung]
    if rung is Rung.ASK_AGAIN and cause is EmptyCause.MAX_TOKENS:
        text = CUT_OFF
    return f"[Pilothouse, automatic] {text}"


@dataclass(frozen=True, slots=True)
class Looked:
    """One call of the turn, as it is remembered. `digest` is that of tool and arguments; `changed` says that
    something may be different since."""

    tool: str
    summary: str
    status: str
    output: str
    step: int = 0
    digest: str = ""
    changed: bool = False


MOST_LISTED = 12
EXCERPT = 160


def summary(looked: Sequence[Looked]) -> str:
    """Rung 4: what was looked at and what it returned, in Markdown, without claiming a conclusion."""
    if not looked:
        return (
            "I have no answer: the model gave none that is complete, and nothing had been looked at yet. "
            "Nothing was changed. Press *Retry* or ask in other words."
        )
    lines = [
        "I have no conclusion: the model gave no complete answer, also when it was asked again. "
        "Nothing below is interpreted; it is what was looked at.",
        "",
        *[_line(call) for call in looked[:MOST_LISTED]],
    ]
    if len(looked) > MOST_LISTED:
        lines.append(f"- and {len(looked) - MOST_LISTED} more calls")
    lines += ["", "Press *Retry* to let it try again from here, or reply with what to look at."]
    return "\n".join(lines)


def _line(call: Looked) -> str:
    first = " ".join(call.output.split())[:EXCERPT].replace("`", "'")
    found = f": `{first}`" if first and call.status == "ok" else ""
    arguments = call.summary.replace("`", "'")
    return f"- {call.tool} `{arguments or '-'}` ({call.status}){found}"
