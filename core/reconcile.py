"""The reconciler: what can be left lying about by a bug or a crash, and what it means. `storage.sweeps` looks for it.

Nothing here is part of the normal way of a turn. Each find is counted and logged, because it says that something
above it failed; then it is put right, or handed to whoever can put it right (a worker, the writer).

    state_disagrees   the session's column says something else than its turns     the turns are right
    words_left_behind words still wait for a turn that has settled                free again, or stopped by their stop
    words_unheard     words wait in a session where nothing runs                  their turn starts
    turn_out_of_date  nobody began a turn for half an hour                        not run: its card asks whether it is
                                                                                  still wanted
    turn_unclaimed    a turn waits and no worker took it                          the bell is rung
    lease_ran_out     a worker went silent with its turn                          the bell is rung, another one claims
    wait_overdue      a wait for people ran out and no worker took the turn up    its requests end, the bell is rung
    card_unfinished   a settled turn's card is open and the writer leaves it      due again
    card_given_up     ... and Slack takes other messages, but not this one        released, its error is kept
    post_unclear      a post has no outcome                                       the writer looks it up

They are swept in this order, so that what one of them frees is taken up by the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from core.card_words import span
from core.messages import SessionState
from core.settle import Outcome, Reason
from core.turn import TurnState


class Find(StrEnum):
    """What a sweep can find; the list is closed."""

    STATE_DISAGREES = "state_disagrees"
    WORDS_LEFT_BEHIND = "words_left_behind"
    WORDS_UNHEARD = "words_unheard"
    TURN_OUT_OF_DATE = "turn_out_of_date"
    TURN_UNCLAIMED = "turn_unclaimed"
    LEASE_RAN_OUT = "lease_ran_out"
    WAIT_OVERDUE = "wait_overdue"
    CARD_UNFINISHED = "card_unfinished"
    CARD_GIVEN_UP = "card_given_up"
    POST_UNCLEAR = "post_unclear"


@dataclass(frozen=True, slots=True)
class Rule:
    """One sweep: how old a thing must be to be found, how often it is looked for, and what operators read of it."""

    after_s: float
    every_s: float
    means: str


RULES: Mapping[Find, Rule] = {
    Find.STATE_DISAGREES: Rule(
        0, 60, "A session's state was not that of its turns; it was corrected. This is a bug: please report it."
    ),
    Find.WORDS_LEFT_BEHIND: Rule(
        0, 60, "Words waited for a turn that had settled; they were freed. This is a bug: please report it."
    ),
    Find.WORDS_UNHEARD: Rule(
        0, 30, "Words waited where nothing ran; their turn was started. This is a bug: please report it."
    ),
    Find.TURN_OUT_OF_DATE: Rule(
        1800, 60, "Nobody began these turns in time, so they were not run, and their cards say so. Were workers down?"
    ),
    Find.TURN_UNCLAIMED: Rule(
        60, 15, "Turns wait and no worker takes them; the bell was rung. Are workers down, or out of slots?"
    ),
    Find.LEASE_RAN_OUT: Rule(
        60, 15, "A worker went silent with its turn; the bell was rung for another one. Are workers down?"
    ),
    Find.WAIT_OVERDUE: Rule(
        60, 15, "Requests for approval ran out and no worker took their turns up; they were ended. Are workers down?"
    ),
    Find.CARD_UNFINISHED: Rule(
        30, 15, "Cards of settled turns are still open; they are due again. Does the writer run, does Slack answer?"
    ),
    Find.CARD_GIVEN_UP: Rule(
        600, 60, "Slack takes other messages but not these final cards; they were released, with the error kept."
    ),
    Find.POST_UNCLEAR: Rule(
        120, 30, "Nobody knows whether these posts reached Slack; the writer looks them up. Does Slack answer?"
    ),
}

CARD_LAST_S = 86_400.0
"""After this long a card that can't be finished is released even if Slack took nothing else meanwhile."""


def right_state(turn: TurnState | None, *, helpers_at_work: bool) -> SessionState:
    """The state of a session whose only unsettled turn, if it has one, is in state `turn`."""
    match turn:
        case TurnState.WAITING | TurnState.RUNNING:
            return SessionState.RUNNING
        case TurnState.SUSPENDED:
            return SessionState.SUSPENDED
        case _:
            return SessionState.WAITING if helpers_at_work else SessionState.IDLE


def out_of_date(waited_s: float, behind: int) -> Outcome:
    """How a turn ends that nobody began in time: `behind` other requests waited with it and are not run either.

    Its limit was the wait, so it timed out. Not `abandoned`: no worker died of it; not `cancelled`: nobody said stop.
    """
    known = f"Nobody was there to begin: this waited {span(waited_s)}, so I ask first. Nothing was run."
    if behind:
        them = "One message that waited behind it was" if behind == 1 else f"{behind} messages behind it were"
        known += f" {them} not taken up either; send again what is still wanted."
    return Outcome(Reason.TIMED_OUT, known=f"{known} Is it still wanted?")
