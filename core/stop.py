"""Stops: what a stop reaches, and what becomes of what waits. (How a text is read as one: `core.stop_text`.)

A stop is a fact that stays true, not an event that passes by. It carries Slack's own timestamp T, and it reaches a
turn if and only if everything that the turn has consumed is older than T, whatever the order in which the two
arrive: a stop that comes first waits as a tombstone, and a question asked after T is never touched by it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from core.control import StopFact
from core.messages import Level, older, ts_order
from core.stop_text import StopWord, recognise, without_mention
from core.stop_words import DEFAULT, StopWords

__all__ = [
    "DEFAULT",
    "DUPLICATE",
    "FATES",
    "Aim",
    "Duplicate",
    "Fate",
    "StopFact",
    "StopWord",
    "StopWords",
    "Waiting",
    "aim_of_click",
    "escalate",
    "fate_of",
    "reaches",
    "recognise",
    "without_mention",
]

CANCEL_AFTER_S: Final = 2
CANCEL_WITHIN_S: Final = 30
_MICRO: Final = 1_000_000


class Duplicate(StrEnum):
    """The answer for a stop that says nothing new."""

    DUPLICATE = "duplicate"


DUPLICATE: Final = Duplicate.DUPLICATE


def reaches(stop_ts: str, consumed: Iterable[str]) -> bool:
    """Whether a stop at `stop_ts` reaches the turn that consumed the messages with these Slack timestamps."""
    return all(older(ts, stop_ts) for ts in consumed)


def escalate(previous: StopFact | None, new: StopFact) -> Level | Duplicate:
    """The level at which `new` counts, after the last stop of the thread that counted.

    A second stop of the same person 2 to 30 s after the first is a cancel; sooner it is a duplicate, unless it asks
    for more than the first did (Stop, and at once Cancel).
    """
    if previous is None or previous.author != new.author:
        return new.level
    apart = abs(_micros(new.ts) - _micros(previous.ts))
    if apart > CANCEL_WITHIN_S * _MICRO:
        return new.level
    if apart >= CANCEL_AFTER_S * _MICRO:
        return Level.TASK
    more = new.level is Level.TASK and previous.level is Level.STEP
    return Level.TASK if more else DUPLICATE


def _micros(ts: str) -> int:
    seconds, micros = ts_order(ts)
    return seconds * _MICRO + micros


# -- what waits ------------------------------------------------------------------------------------------------------


class Waiting(StrEnum):
    """What a message that nobody consumed yet is waiting as."""

    START = "start"
    STEER = "steer"
    QUEUE = "queue"
    NOTE = "note"
    HELPER_REPORT = "helper_report"


class Fate(StrEnum):
    """What a stop makes of it."""

    STOPPED = "stopped"
    BECOMES_NOTE = "becomes_note"
    STAYS = "stays"


FATES: Mapping[Waiting, Mapping[Level, Fate]] = MappingProxyType(
    {
        Waiting.START: {Level.STEP: Fate.STOPPED, Level.TASK: Fate.STOPPED},
        Waiting.STEER: {Level.STEP: Fate.STOPPED, Level.TASK: Fate.STOPPED},
        Waiting.QUEUE: {Level.STEP: Fate.BECOMES_NOTE, Level.TASK: Fate.STOPPED},
        Waiting.NOTE: {Level.STEP: Fate.STAYS, Level.TASK: Fate.STAYS},
        Waiting.HELPER_REPORT: {Level.STEP: Fate.BECOMES_NOTE, Level.TASK: Fate.BECOMES_NOTE},
    }
)


def fate_of(kind: Waiting, ts: str, stop: StopFact) -> Fate:
    """What `stop` makes of a waiting message of Slack time `ts`: nothing, if the message is not older."""
    return FATES[kind][stop.level] if older(ts, stop.ts) else Fate.STAYS


# -- clicks on cards that have ended ---------------------------------------------------------------------------------


class Aim(StrEnum):
    """Which turn a click on a card means."""

    THIS = "this"
    SUCCESSOR = "successor"
    ENDED = "ended"


def aim_of_click(click_ts: str, *, settled: str | None, successor_consumed: Iterable[str] | None) -> Aim:
    """Which turn a stop button means that sits on the card of a turn with settle reason `settled` (None: it runs).

    The card of a steered turn passes the click on to its successor if the successor knows nothing newer than the
    click; a successor that was itself steered is asked again by the caller, with its own successor.
    """
    if settled is None:
        return Aim.THIS
    passed_on = settled == "steered" and successor_consumed is not None
    return Aim.SUCCESSOR if passed_on and reaches(click_ts, successor_consumed or ()) else Aim.ENDED
