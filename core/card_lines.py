"""The lines of a card: calls, steps and helpers, short enough to be read at a glance.

A call that went wrong says how, in words that are true: cancelled is not failed, denied did not run, and unknown may
have run. What is folded away is counted, and what must not be overlooked in it is counted by name.

A read is a name and what it asks, on about one line: what it was exactly is in the ledger. A call that writes keeps
the name of each of its arguments, because people judge it by them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from typing import Any, Literal

from core.card_words import span
from core.redaction import redact, redact_values

SHOWN_STEPS = 2
SHOWN_CALLS = 6
TOOL_CHARS = 60
SUMMARY_CHARS = 110
READ_CHARS = 48
"""A read with its tool and how it went: one line of a thread on a desk, two on a phone."""
LEAST_READ_CHARS = 24
WORTH_TELLING_S = 1.0
SAID_CHARS = 240
ASKED_CHARS = 160

Line = tuple["Glyph", str]


class CallState(StrEnum):
    """Where a tool call is, or how it ended."""

    RUNNING = "running"
    ASKED = "asked"
    OK = "ok"
    ERROR = "error"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"
    DENIED = "denied"
    REFUSED = "refused"
    UNKNOWN = "unknown"
    STOPPED = "stopped"
    NOT_RUN = "not_run"


class Glyph(StrEnum):
    """The sign in front of a line."""

    ASKED = "asked"
    FOLDED = "folded"
    SAID = "said"
    NOTE = "note"
    NEXT = "next"
    RUNNING = "running"
    OK = "ok"
    FAILED = "failed"
    ENDED = "ended"
    UNKNOWN = "unknown"
    ASKING = "asking"


CALL_WORDS: dict[CallState, tuple[Glyph, str]] = {
    CallState.RUNNING: (Glyph.RUNNING, "running"),
    CallState.ASKED: (Glyph.ASKING, "waits for approval"),
    CallState.OK: (Glyph.OK, ""),
    CallState.ERROR: (Glyph.FAILED, "failed"),
    CallState.TIMEOUT: (Glyph.FAILED, "timed out"),
    CallState.CANCELLED: (Glyph.ENDED, "cancelled, nothing was read"),
    CallState.INTERRUPTED: (Glyph.ENDED, "interrupted by a restart"),
    CallState.DENIED: (Glyph.ENDED, "denied, did not run"),
    CallState.REFUSED: (Glyph.ENDED, "not allowed, did not run"),
    CallState.UNKNOWN: (Glyph.UNKNOWN, "outcome unknown, it may have run"),
    CallState.STOPPED: (Glyph.ENDED, "stopped"),
    CallState.NOT_RUN: (Glyph.ENDED, "not run"),
}


@dataclass(frozen=True, slots=True)
class CallLine:
    """One tool call. `seconds` is how long it took or has been running; `writes`: it may change something."""

    tool: str
    summary: str
    state: CallState
    seconds: float | None = None
    writes: bool = False


@dataclass(frozen=True, slots=True)
class StepLine:
    """One step: what the model said beside its calls, and the calls."""

    number: int
    calls: tuple[CallLine, ...]
    said: str = ""


@dataclass(frozen=True, slots=True)
class HelperLine:
    """A helper that the turn dispatched."""

    name: str
    state: Literal["running", "asking", "done"]
    doing: str = ""


def asked_line(text: str) -> list[Line]:
    """What was asked."""
    text = short(text, ASKED_CHARS)
    return [(Glyph.ASKED, text)] if text else []


def step_lines(steps: Sequence[StepLine], shown: int = SHOWN_STEPS) -> list[Line]:
    """The last steps in full, everything before them in one line."""
    cut = max(0, len(steps) - shown)
    lines = folded(steps[:cut], earlier=True)
    for step in steps[cut:]:
        if said := _said(step.said):
            lines.append((Glyph.SAID, said))
        lines += [_call(call) for call in step.calls[:SHOWN_CALLS]]
        if hidden := step.calls[SHOWN_CALLS:]:
            lines.append(_hidden(hidden))
    return lines


@lru_cache(maxsize=512)
def _said(text: str) -> str:
    """What the model said beside its calls, without secrets that it repeats. A card is drawn many times."""
    return short(redact(text), SAID_CHARS)


def _hidden(calls: Sequence[CallLine]) -> Line:
    running = any(map(_runs, calls))
    return (Glyph.RUNNING if running else Glyph.FOLDED, f"and {count(len(calls), 'more call')}{_troubles(calls)}")


def folded(steps: Sequence[StepLine], *, earlier: bool = False) -> list[Line]:
    """Steps in one line."""
    if not steps:
        return []
    calls = [call for step in steps for call in step.calls]
    name = "earlier step" if earlier else "step"
    return [(Glyph.FOLDED, f"{count(len(steps), name)}, {count(len(calls), 'call')}{_troubles(calls)}")]


def _troubles(calls: Sequence[CallLine]) -> str:
    """What a folded line must not hide. A failure on the way to an answer is no reason to do the work again."""
    unknown = sum(call.state is CallState.UNKNOWN for call in calls)
    failed = sum(call.state in (CallState.ERROR, CallState.TIMEOUT) for call in calls)
    parts = [f"{unknown} with unknown outcome" if unknown else "", f"{failed} failed on the way" if failed else ""]
    said = ", ".join(part for part in parts if part)
    return f" ({said})" if said else ""


def asks(arguments: Mapping[str, Any], *, writes: bool) -> str:
    """What a call asks, redacted: the texts among the arguments of a read, every argument of a write by its name."""
    shown = redact_values(arguments)
    if writes:
        words = " ".join(f"{name}={_plain(value)}" for name, value in shown.items())
    else:
        words = ", ".join(value for value in shown.values() if isinstance(value, str) and value)
    return redact(" ".join(words.split()))


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def tool_words(tool: str) -> str:
    """The name of a tool as words: `prometheus_query` reads as "prometheus query"."""
    return short(tool.replace("_", " "), TOOL_CHARS) or "(no name)"


def _call(call: CallLine) -> Line:
    glyph, words = CALL_WORDS[call.state]
    quick = call.state is CallState.OK and (call.seconds or 0.0) < WORTH_TELLING_S
    took = span(call.seconds) if call.seconds is not None and not quick else ""
    went = f"{words} after {took}" if words == "timed out" and took else ", ".join(p for p in (words, took) if p)
    after = f" ({went})" if went else ""
    tool = tool_words(call.tool)
    if call.writes:
        summary = short(call.summary, SUMMARY_CHARS)
    else:
        summary = ends(call.summary, max(LEAST_READ_CHARS, READ_CHARS - len(tool) - len(after)))
    return glyph, f"{tool}: {summary}{after}" if summary else f"{tool}{after}"


def helper_lines(helpers: Sequence[HelperLine]) -> list[Line]:
    """One line for each helper."""
    glyphs = {"running": Glyph.RUNNING, "asking": Glyph.ASKING, "done": Glyph.OK}
    words = {"running": "working", "asking": "waits for an answer", "done": "done"}
    return [
        (
            glyphs[helper.state],
            f"{short(helper.name, TOOL_CHARS)}: {short(helper.doing, SUMMARY_CHARS) or words[helper.state]}",
        )
        for helper in helpers
    ]


def settled_step(step: StepLine, left_open: CallState) -> StepLine:
    """A call of a settled turn can't be running, whatever its row still says."""
    calls = (replace(call, state=left_open, seconds=None) if _is_open(call) else call for call in step.calls)
    return replace(step, calls=tuple(calls))


def _is_open(call: CallLine) -> bool:
    return call.state in (CallState.RUNNING, CallState.ASKED)


def _runs(call: CallLine) -> bool:
    return call.state is CallState.RUNNING


def count(number: int, what: str) -> str:
    """`1 call`, `3 calls`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def short(text: str, limit: int) -> str:
    """One line, at most `limit` characters."""
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[: limit - 1].rstrip()}…"


def ends(text: str, limit: int) -> str:
    """One line, at most `limit` characters: what is too long loses its middle, because both ends of a query tell."""
    line = " ".join(text.split())
    if len(line) <= limit:
        return line
    tail = limit // 3
    return f"{line[: limit - tail - 1].rstrip()}…{line[-tail:].lstrip()}"
