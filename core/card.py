"""What the card of a turn says, computed from committed facts and from nothing else.

A card is the one message from which people learn, in the middle of the night, whether somebody is working, what was
done, who stopped it and what to do next. So it promises:

    *  it is open exactly while its turn is unsettled or a helper that the turn dispatched is not done;
    *  a card that is not open shows nothing that runs: what was running is stopped or interrupted, and says so;
    *  each way to end has a sentence of its own: what happened, what is known, what to do next;
    *  a stop and a redirection are neutral, never a failure;
    *  long runs stay short: older steps are folded into one line.

Nothing here knows Slack. People are written `@{U123}`; glyphs are names, and whoever draws the card chooses signs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal

from core.card_lines import (
    CallLine,
    CallState,
    Glyph,
    HelperLine,
    Line,
    StepLine,
    asked_line,
    count,
    folded,
    helper_lines,
    settled_step,
    short,
    step_lines,
)
from core.card_words import ENDINGS, Ending, ended_at, money, person, span
from core.errors import IllegalMove
from core.messages import Level, TurnId, UserId

__all__ = [
    "Button",
    "CallLine",
    "CallState",
    "CardFacts",
    "CardView",
    "Glyph",
    "HelperLine",
    "StepLine",
    "view",
]

KNOWN_CHARS = 900
DOING_CHARS = 160

AT_ONCE = "Starting. It begins as soon as a worker is free."
AFTER_QUIET = "Starting with your words. It waits a moment, in case more of them follow."

Tone = Literal["working", "stopping", "done", "neutral", "problem"]


class Button(StrEnum):
    """What can be pressed; the value is the `action_id`."""

    STOP_STEP = "stop_step"
    CANCEL_TASK = "cancel_task"
    RETRY = "retry"
    REDIRECT_NOW = "redirect_now"
    APPROVE = "approve"
    DENY = "deny"
    STOP_HELPER = "stop_helper"


@dataclass(frozen=True, slots=True)
class CardFacts:
    """Everything that a card may say. `reason` and `detail` are the values of the settle; times in seconds.

    `doing` completes "Investigating: ..." or, while suspended, "Waiting for ...", without a full stop.
    `quiet`: a turn that waits until nobody has written for a moment.
    `resumed`: an earlier attempt drained or crashed. `rung`: the rung of the remediation ladder, 0 before it.
    `ended_by`, `ended_step`: who steered or stopped, at which step. `answer_fallback`: the answer that Slack refused
    as a message. `request_ts`, `request_link`: the post that asks for approval.
    `deleted`: how many messages people deleted after this turn had read them.
    """

    turn_id: TurnId
    asked_by: UserId
    asked_text: str
    state: Literal["waiting", "running", "suspended", "settled"]
    steps: tuple[StepLine, ...] = ()
    max_steps: int = 0
    elapsed_s: float = 0.0
    cost_usd: float = 0.0
    model: str = ""
    doing: str = "thinking"
    stopping_by: UserId | None = None
    stop_level: Level | None = None
    quiet: bool = False
    resumed: bool = False
    rung: int = 0
    reason: str | None = None
    detail: str | None = None
    ended_by: UserId | None = None
    ended_step: int = 0
    answer_posted: bool = False
    answer_link: str | None = None
    answer_fallback: str | None = None
    helpers: tuple[HelperLine, ...] = ()
    known: str = ""
    deleted: int = 0
    request_ts: str | None = None
    request_link: str | None = None


@dataclass(frozen=True, slots=True)
class CardView:
    """What is drawn. `headline` and `footer` are ours, `lines` may quote anybody; `link` is (label, address).

    Raises `IllegalMove` for a card that is not open and yet shows something that runs.
    """

    turn_id: TurnId
    headline: str
    lines: tuple[tuple[Glyph, str], ...]
    footer: str
    buttons: tuple[Button, ...]
    tone: Tone
    open: bool
    link: tuple[str, str] | None = None
    answer: str = ""

    def __post_init__(self) -> None:
        running = [text for glyph, text in self.lines if glyph is Glyph.RUNNING]
        if running and not self.open:
            raise IllegalMove(f"a released card can't show a running line: {running[0]}")


def view(facts: CardFacts) -> CardView:
    """The card for these facts."""
    return _ended(facts) if facts.state == "settled" else _unsettled(facts)


# ---------------------------------------------------------------------------------------------- while it runs


def _unsettled(facts: CardFacts) -> CardView:
    lines = [
        *asked_line(facts.asked_text),
        *_going_on(facts),
        *step_lines(facts.steps, shown=1),
        *helper_lines(facts.helpers),
    ]
    link = ("Open the request", facts.request_link) if facts.request_link else None
    stopping = facts.stopping_by is not None
    return CardView(
        facts.turn_id,
        _stopping(facts) if stopping else _working(facts),
        tuple(lines),
        _footer(facts),
        _unsettled_buttons(facts),
        "stopping" if stopping else "working",
        True,
        link,
    )


def _working(facts: CardFacts) -> str:
    doing = short(facts.doing, DOING_CHARS)
    match facts.state:
        case "waiting":
            return AFTER_QUIET if facts.quiet else AT_ONCE
        case "suspended":
            waiting = doing if doing.startswith("waiting") else f"waiting for {doing}"
            return f"{waiting[:1].upper()}{waiting[1:]}."
        case _:
            return f"Investigating: {doing}."


def _stopping(facts: CardFacts) -> str:
    what = "the task" if facts.stop_level is Level.TASK else "this step"
    return f"Stopping {what} for {person(facts.stopping_by)}. Nothing new starts; running calls are ending."


def _unsettled_buttons(facts: CardFacts) -> tuple[Button, ...]:
    if facts.stop_level is Level.TASK:
        return ()
    if facts.stopping_by is not None:
        return (Button.CANCEL_TASK,)
    return (Button.STOP_STEP, Button.CANCEL_TASK)


def _going_on(facts: CardFacts) -> list[Line]:
    lines: list[Line] = []
    if facts.resumed:
        lines.append((Glyph.NOTE, "Picked up again after a restart. Nothing that was found is lost."))
    if facts.rung:
        lines.append((Glyph.NOTE, f"No answer yet, asking again (try {facts.rung} of 4)."))
    if facts.deleted:
        lines.append((Glyph.NOTE, _DELETED.format(messages=count(facts.deleted, "message"))))
    return lines


_DELETED = "{messages} deleted after I had read it, so this still goes by it. Write stop if it should not."


# ---------------------------------------------------------------------------------------------- when it has ended


def _ended(facts: CardFacts) -> CardView:
    ending = ENDINGS.get((facts.reason or "", facts.detail or ""), ENDINGS.get((facts.reason or "", "")))
    if ending is None:
        raise IllegalMove(f"no card for a turn that settled {facts.reason}")
    helping = any(helper.state != "done" for helper in facts.helpers)
    return CardView(
        facts.turn_id,
        _headline(facts, ending, helping=helping),
        tuple(_ended_lines(facts, ending)),
        _footer(facts),
        _ended_buttons(facts, ending, helping=helping),
        _tone(ending, helping=helping, stopping=facts.stopping_by is not None),
        helping,
        _answer_link(facts),
        facts.answer_fallback or "",
    )


def _headline(facts: CardFacts, ending: Ending, *, helping: bool) -> str:
    if helping and facts.stopping_by is not None:
        return _stopping(facts)
    if facts.reason == "dispatched" and helping:
        waiting = sum(helper.state != "done" for helper in facts.helpers)
        return f"{count(waiting, 'helper')} at work. This goes on with what they report."
    if facts.reason == "completed":
        return _answered(facts)
    happened = ending.happened.format(by=person(facts.ended_by), at=ended_at(facts.ended_step))
    if facts.reason == "empty" and facts.answer_posted:
        happened += " What was looked at is summed up below."
    return happened


def _answered(facts: CardFacts) -> str:
    if facts.answer_fallback:
        return "Answered. Slack did not take the answer as a message, so it is here."
    if facts.answer_posted or facts.answer_link:
        return "Answered below."
    return "Answered. The answer follows in this thread."


def _answer_link(facts: CardFacts) -> tuple[str, str] | None:
    return ("Open the answer", facts.answer_link) if facts.answer_link else None


def _tone(ending: Ending, *, helping: bool, stopping: bool) -> Tone:
    if helping:
        return "stopping" if stopping else "working"
    return ending.tone


def _ended_buttons(facts: CardFacts, ending: Ending, *, helping: bool) -> tuple[Button, ...]:
    if helping:
        return _unsettled_buttons(facts)
    return (Button.RETRY,) if ending.retry else ()


def _ended_lines(facts: CardFacts, ending: Ending) -> list[Line]:
    left_open = CallState.INTERRUPTED if facts.reason == "abandoned" else CallState.STOPPED
    steps = tuple(settled_step(step, left_open) for step in facts.steps)
    lines = asked_line(facts.asked_text)
    if ending.says_known and facts.known:
        lines.append((Glyph.NOTE, f"Known: {short(facts.known, KNOWN_CHARS)}"))
    if ending.next_step:
        lines.append((Glyph.NEXT, ending.next_step))
    lines += _looked_at(steps, ending)
    return [*lines, *helper_lines(facts.helpers)]


def _looked_at(steps: tuple[StepLine, ...], ending: Ending) -> list[Line]:
    """An answer needs no list of calls; a stop or a redirection shows the last step; a problem shows more."""
    match ending.tone:
        case "done":
            return folded(steps)
        case "neutral":
            return step_lines(tuple(replace(step, said="") for step in steps), shown=1)
        case _:
            return step_lines(steps)


def _footer(facts: CardFacts) -> str:
    step = ""
    if facts.steps:
        number = facts.steps[-1].number
        limit = f" of {facts.max_steps}" if facts.max_steps and facts.state != "settled" else ""
        step = f"Step {number}{limit}" if facts.state != "settled" else count(number, "step")
    took = span(facts.elapsed_s) if facts.elapsed_s > 0 else ""
    cost = money(facts.cost_usd) if facts.cost_usd > 0 else ""
    asked = f"asked by {person(facts.asked_by)}" if facts.asked_by else ""
    return " · ".join(part for part in (step, took, cost, facts.model, asked) if part)
