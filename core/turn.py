"""What a turn, an attempt and a session can do: three tables, and the only functions that move along them.

A *turn* is one run of the agent, from a trigger to exactly one settle. It can take several *attempts*, each one
stretch on one worker. A *session* is the thread that the turns belong to.

    turn      waiting -> running -> settled, with a detour over suspended
    attempt   running -> finished | cut | drained | suspended | crashed, with the stamp of the cut
    session   idle <-> running <-> suspended, waiting

An illegal move raises `IllegalMove` and changes nothing. A stamp is written in the transaction of the cut, so that
nobody downstream has to guess from the outside whether a turn without an answer was cut or came up empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

from core.errors import IllegalMove
from core.messages import SessionState


class TurnState(StrEnum):
    """Where a turn is."""

    WAITING = "waiting"
    RUNNING = "running"
    SUSPENDED = "suspended"
    SETTLED = "settled"


class TurnMove(StrEnum):
    """What can happen to a turn."""

    CLAIM = "claim"
    HAND_OVER = "hand_over"
    SUSPEND = "suspend"
    RESUME = "resume"
    SETTLE = "settle"


class AttemptEnd(StrEnum):
    """How one stretch on one worker ended. Only `crashed` counts against the turn."""

    FINISHED = "finished"
    CUT = "cut"
    DRAINED = "drained"
    SUSPENDED = "suspended"
    CRASHED = "crashed"


class Stamp(StrEnum):
    """Why an attempt was cut."""

    STEER = "steer"
    DRAIN = "drain"
    DISPATCH = "dispatch"
    AWAIT = "await"
    STOP = "stop"


class SessionMove(StrEnum):
    """What can happen to a session."""

    START = "start"
    SUSPEND = "suspend"
    RESUME = "resume"
    WAIT_FOR_HELPERS = "wait_for_helpers"
    END = "end"


TURN_MOVES: Mapping[TurnState, Mapping[TurnMove, TurnState]] = {
    TurnState.WAITING: {TurnMove.CLAIM: TurnState.RUNNING, TurnMove.SETTLE: TurnState.SETTLED},
    TurnState.RUNNING: {
        TurnMove.CLAIM: TurnState.RUNNING,
        TurnMove.HAND_OVER: TurnState.RUNNING,
        TurnMove.SUSPEND: TurnState.SUSPENDED,
        TurnMove.SETTLE: TurnState.SETTLED,
    },
    TurnState.SUSPENDED: {TurnMove.RESUME: TurnState.RUNNING, TurnMove.SETTLE: TurnState.SETTLED},
    TurnState.SETTLED: {},
}

SESSION_MOVES: Mapping[SessionState, Mapping[SessionMove, SessionState]] = {
    SessionState.IDLE: {SessionMove.START: SessionState.RUNNING},
    SessionState.RUNNING: {
        SessionMove.START: SessionState.RUNNING,
        SessionMove.SUSPEND: SessionState.SUSPENDED,
        SessionMove.WAIT_FOR_HELPERS: SessionState.WAITING,
        SessionMove.END: SessionState.IDLE,
    },
    SessionState.SUSPENDED: {
        SessionMove.RESUME: SessionState.RUNNING,
        SessionMove.START: SessionState.RUNNING,
        SessionMove.END: SessionState.IDLE,
    },
    SessionState.WAITING: {SessionMove.START: SessionState.RUNNING, SessionMove.END: SessionState.IDLE},
}

ATTEMPT_STAMPS: Mapping[AttemptEnd, frozenset[Stamp | None]] = {
    AttemptEnd.FINISHED: frozenset({None}),
    AttemptEnd.CUT: frozenset({Stamp.STEER, Stamp.DISPATCH, Stamp.AWAIT, Stamp.STOP}),
    AttemptEnd.DRAINED: frozenset({Stamp.DRAIN}),
    AttemptEnd.SUSPENDED: frozenset({None}),
    AttemptEnd.CRASHED: frozenset({None, *Stamp}),
}

S = TypeVar("S", bound=StrEnum)
M = TypeVar("M", bound=StrEnum)

CRASHES_THAT_ABANDON = 3


def _move(table: Mapping[S, Mapping[M, S]], state: S, move: M) -> S:
    after = table[state].get(move)
    if after is None:
        raise IllegalMove(f"{move.value} is no move from {state.value}")
    return after


def move_turn(state: TurnState, move: TurnMove) -> TurnState:
    """The state of a turn after `move`; raises `IllegalMove`."""
    return _move(TURN_MOVES, state, move)


def move_session(state: SessionState, move: SessionMove) -> SessionState:
    """The state of a session after `move`; raises `IllegalMove`."""
    return _move(SESSION_MOVES, state, move)


def end_attempt(end: AttemptEnd, stamp: Stamp | None) -> tuple[AttemptEnd, Stamp | None]:
    """The end of an attempt with its stamp; raises `IllegalMove` for a pair that says two things at once."""
    if stamp not in ATTEMPT_STAMPS[end]:
        raise IllegalMove(f"an attempt that {end.value} can't be stamped {stamp}")
    return end, stamp


def end_for(stamp: Stamp) -> AttemptEnd:
    """How an attempt ends that was cut with `stamp`: drained goes on elsewhere, everything else is over."""
    return AttemptEnd.DRAINED if stamp is Stamp.DRAIN else AttemptEnd.CUT


def picture() -> str:
    """The turn table as lines `state --move--> state`, for the README and for `pilothouse policy show`."""
    return "\n".join(
        f"{before.value} --{move.value}--> {after.value}"
        for before, moves in TURN_MOVES.items()
        for move, after in moves.items()
    )
