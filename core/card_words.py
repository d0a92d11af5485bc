"""The sentences of a card that has ended: what happened, and what to do next. One row for each way to end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from core.messages import UserId


@dataclass(frozen=True, slots=True)
class Ending:
    """One row. `happened` may name `{by}` and `{at}`; `says_known` adds what is known."""

    happened: str
    next_step: str = ""
    tone: Literal["done", "neutral", "problem"] = "neutral"
    retry: bool = False
    says_known: bool = False


def _problem(happened: str, next_step: str, *, retry: bool = True) -> Ending:
    return Ending(happened, next_step, "problem", retry, says_known=True)


ENDINGS: dict[tuple[str, str], Ending] = {
    ("completed", ""): Ending("Answered below.", tone="done"),
    ("steered", ""): Ending("Redirected by {by}{at}, continued below."),
    ("stopped_step", ""): Ending("Stopped by {by}{at}. Reply here to go on from there."),
    ("cancelled", ""): Ending("Stopped by {by}{at}. The task is over; mention me here to start again."),
    ("dispatched", ""): Ending("The helpers are done, continued below."),
    ("awaiting", ""): Ending("Asked a question and ended here. It goes on with the answer."),
    ("empty", ""): _problem(
        "No answer. The model gave none, even when it was asked again.",
        "Press Retry, or reply here with where to look.",
    ),
    ("timed_out", ""): _problem(
        "Reached its limit{at}, before there was an answer.",
        "Press Retry, or reply here with something narrower.",
    ),
    ("abandoned", ""): _problem(
        "Given up{at}: the worker crashed three times on this turn.",
        "Nothing runs any more. Tell the operators of this bot before you press Retry.",
    ),
    ("failed", "refused_by_model"): _problem(
        "The model declined to answer this.",
        "It was not asked again. Reply here and ask it in another way.",
    ),
    ("failed", "channel_archived"): _problem(
        "Ended{at}: this place took no more messages while the turn ran.",
        "Ask again in a channel that is open.",
        retry=False,
    ),
    ("failed", "outcome_unknown"): _problem(
        "Ended{at}: it is not known whether a change was made.",
        "Check first whether it happened. It is not run again by itself; reply here with what you found.",
        retry=False,
    ),
    ("failed", "structural_400"): _problem(
        "The model's API refused this conversation as it stands.",
        "Press Retry once; if it comes back, mention me in a new thread. The operators have the details.",
    ),
    ("failed", "provider"): _problem(
        "The model could not be reached{at}, also after retries.",
        "Press Retry in a few minutes. Nothing runs in the meantime.",
    ),
    ("failed", "internal"): _problem(
        "Ended{at} by a fault of this bot.",
        "Press Retry. If it comes back, tell the operators; they have the details.",
    ),
    ("failed", ""): _problem("Ended{at} by a fault.", "Press Retry. If it comes back, tell the operators."),
}


def person(user: UserId | None) -> str:
    """A person as a token that every surface can draw; what is no person (an alert's bot) by its plain id."""
    if not user:
        return "an operator"
    return f"@{{{user}}}" if user[0] in "UW" else user


def ended_at(step: int) -> str:
    """` at step 3`, or that there was no step yet."""
    return f" at step {step}" if step > 0 else " before the first step"


def span(seconds: float) -> str:
    """A duration that can be read at a glance: 0.4 s, 41 s, 2 min 5 s, 1 h 3 min."""
    if seconds < 10:
        tenths = f"{max(0.0, seconds):.1f}".removesuffix(".0")
        return f"{tenths} s"
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def money(dollars: float) -> str:
    """`$0.04`; a cost that is not nothing never reads as nothing."""
    return f"${dollars:.2f}" if dollars >= 0.01 else "under $0.01"
