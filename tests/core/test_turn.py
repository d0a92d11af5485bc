"""What a turn, an attempt and a session can do: every legal move, and that every other one raises."""

from __future__ import annotations

from itertools import pairwise, product

import pytest

from core.errors import IllegalMove
from core.messages import SessionState
from core.turn import (
    ATTEMPT_STAMPS,
    CRASHES_THAT_ABANDON,
    SESSION_MOVES,
    TURN_MOVES,
    AttemptEnd,
    SessionMove,
    Stamp,
    TurnMove,
    TurnState,
    end_attempt,
    end_for,
    move_session,
    move_turn,
    picture,
)

T, M = TurnState, TurnMove
S, N = SessionState, SessionMove

LEGAL_TURN = {
    (T.WAITING, M.CLAIM): T.RUNNING,
    (T.WAITING, M.SETTLE): T.SETTLED,
    (T.RUNNING, M.CLAIM): T.RUNNING,
    (T.RUNNING, M.HAND_OVER): T.RUNNING,
    (T.RUNNING, M.SUSPEND): T.SUSPENDED,
    (T.RUNNING, M.SETTLE): T.SETTLED,
    (T.SUSPENDED, M.RESUME): T.RUNNING,
    (T.SUSPENDED, M.SETTLE): T.SETTLED,
}

LEGAL_SESSION = {
    (S.IDLE, N.START): S.RUNNING,
    (S.RUNNING, N.START): S.RUNNING,
    (S.RUNNING, N.SUSPEND): S.SUSPENDED,
    (S.RUNNING, N.WAIT_FOR_HELPERS): S.WAITING,
    (S.RUNNING, N.END): S.IDLE,
    (S.SUSPENDED, N.RESUME): S.RUNNING,
    (S.SUSPENDED, N.START): S.RUNNING,
    (S.SUSPENDED, N.END): S.IDLE,
    (S.WAITING, N.START): S.RUNNING,
    (S.WAITING, N.END): S.IDLE,
}

LEGAL_ENDS = {
    (AttemptEnd.FINISHED, None),
    (AttemptEnd.CUT, Stamp.STEER),
    (AttemptEnd.CUT, Stamp.DISPATCH),
    (AttemptEnd.CUT, Stamp.AWAIT),
    (AttemptEnd.CUT, Stamp.STOP),
    (AttemptEnd.DRAINED, Stamp.DRAIN),
    (AttemptEnd.SUSPENDED, None),
    *((AttemptEnd.CRASHED, stamp) for stamp in (None, *Stamp)),
}


@pytest.mark.parametrize(("state", "move"), list(product(TurnState, TurnMove)))
def test_a_turn_moves_along_its_table_and_no_other_way(state: TurnState, move: TurnMove) -> None:
    if (state, move) in LEGAL_TURN:
        assert move_turn(state, move) is LEGAL_TURN[state, move]
    else:
        with pytest.raises(IllegalMove, match=f"{move} is no move from {state}"):
            move_turn(state, move)


@pytest.mark.parametrize(("state", "move"), list(product(SessionState, SessionMove)))
def test_a_session_moves_along_its_table_and_no_other_way(state: SessionState, move: SessionMove) -> None:
    if (state, move) in LEGAL_SESSION:
        assert move_session(state, move) is LEGAL_SESSION[state, move]
    else:
        with pytest.raises(IllegalMove, match=f"{move} is no move from {state}"):
            move_session(state, move)


@pytest.mark.parametrize(("end", "stamp"), list(product(AttemptEnd, (None, *Stamp))))
def test_an_attempt_ends_with_a_stamp_that_says_the_same_thing(end: AttemptEnd, stamp: Stamp | None) -> None:
    if (end, stamp) in LEGAL_ENDS:
        assert end_attempt(end, stamp) == (end, stamp)
    else:
        with pytest.raises(IllegalMove):
            end_attempt(end, stamp)


def test_the_tables_know_every_state_and_every_end() -> None:
    assert set(TURN_MOVES) == set(TurnState)
    assert set(SESSION_MOVES) == set(SessionState)
    assert set(ATTEMPT_STAMPS) == set(AttemptEnd)


def test_an_illegal_move_changes_nothing() -> None:
    before = {state: dict(moves) for state, moves in TURN_MOVES.items()}
    with pytest.raises(IllegalMove):
        move_turn(T.SETTLED, M.SETTLE)
    assert before == TURN_MOVES


def test_nothing_ever_leaves_settled() -> None:
    assert not TURN_MOVES[T.SETTLED]


def test_every_turn_that_is_not_settled_can_be_settled() -> None:
    assert all(M.SETTLE in TURN_MOVES[state] for state in TurnState if state is not T.SETTLED)


def test_every_session_that_is_not_idle_can_become_idle_and_every_one_can_start() -> None:
    for state in SessionState:
        assert N.START in SESSION_MOVES[state]
        assert state is S.IDLE or N.END in SESSION_MOVES[state]


@pytest.mark.parametrize("stamp", Stamp)
def test_only_drain_leaves_the_turn_alive(stamp: Stamp) -> None:
    end = end_for(stamp)
    assert end is (AttemptEnd.DRAINED if stamp is Stamp.DRAIN else AttemptEnd.CUT)
    assert end_attempt(end, stamp) == (end, stamp)


def test_the_third_crash_abandons() -> None:
    assert CRASHES_THAT_ABANDON == 3


def test_the_picture_shows_every_legal_move_of_a_turn_once_and_nothing_else() -> None:
    lines = picture().splitlines()
    drawn = {
        (TurnState(before), TurnMove(move.removeprefix("--").removesuffix("-->"))): TurnState(after)
        for before, move, after in (line.split(" ") for line in lines)
    }
    assert drawn == LEGAL_TURN
    assert len(lines) == len(LEGAL_TURN)


def test_the_picture_is_drawn_in_the_order_in_which_a_turn_lives() -> None:
    order = [list(TurnState).index(TurnState(line.split(" ")[0])) for line in picture().splitlines()]
    assert all(before <= after for before, after in pairwise(order))
