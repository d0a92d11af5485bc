"""The control plane of one turn: which fact wins, and when the loop has to ask again."""

from __future__ import annotations

import asyncio

import pytest

from core.cancel import Cancel
from core.control import Control, Mail, StopFact, stop_reason
from core.limits import Limits
from core.messages import Level, UserId
from tests.support.virtual_time import Stuck, in_virtual_time, now, run

LIMITS = Limits(patience_s=2.0, drain_s=25.0, drain_stream_margin_s=10.0)
STEP = StopFact(Level.STEP, UserId("U0ANN"), "1790000001.000000")
TASK = StopFact(Level.TASK, UserId("U0BEN"), "1790000002.000000")


class At:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.s = 100.0

    def __call__(self) -> float:
        return self.s


def control(at: At) -> Control:
    made = Control(LIMITS, at)
    made.lease_deadline = 1_000.0
    return made


# -- an answer that is being written


def test_nothing_ends_an_answer_before_the_lease_does() -> None:
    assert control(At()).drop_stream() == (None, 1_000.0)


def test_a_stop_beats_everything_else() -> None:
    at = At()
    turn = control(at)
    turn.note(Mail(STEP, steers=2))
    turn.drain()
    turn.lease_deadline = turn.answer_by = at.s
    assert turn.drop_stream()[0] is Cancel.STOP_STEP
    assert turn.hurry_batch()[0] is Cancel.STOP_STEP


def test_a_lost_lease_beats_a_steer_and_a_steer_beats_a_limit_and_a_limit_beats_a_drain() -> None:
    at = At()
    turn = control(at)
    turn.drain()
    at.s += 15
    assert turn.drop_stream()[0] is Cancel.DRAIN
    turn.answer_by = at.s
    assert turn.drop_stream()[0] is Cancel.LIMIT
    turn.note(Mail(steers=1))
    assert turn.drop_stream()[0] is Cancel.STEER
    turn.lease_deadline = at.s
    assert turn.drop_stream()[0] is Cancel.LEASE
    assert turn.lease_lost


def test_a_steer_drops_an_answer_at_once() -> None:
    turn = control(At())
    turn.note(Mail(steers=1))
    assert turn.drop_stream() == (Cancel.STEER, 100.0)


def test_drain_lets_an_answer_run_until_ten_seconds_before_its_own_limit() -> None:
    at = At()
    turn = control(at)
    turn.drain()
    assert turn.drop_stream() == (None, 115.0)
    at.s = 114.9
    turn.drain()
    assert turn.drop_stream() == (None, 115.0)
    at.s = 115.0
    assert turn.drop_stream()[0] is Cancel.DRAIN


def test_a_draining_worker_asks_for_nothing_new() -> None:
    turn = control(At())
    assert turn.keep_from_asking() is None
    turn.drain()
    assert turn.keep_from_asking() is Cancel.DRAIN
    turn.note(Mail(steers=1))
    assert turn.keep_from_asking() is Cancel.STEER
    turn.note(Mail(TASK, steers=1))
    assert turn.keep_from_asking() is Cancel.CANCEL_TASK


def test_the_next_question_is_due_at_the_first_limit_that_can_end_the_answer() -> None:
    turn = control(At())
    turn.answer_by = 300.0
    assert turn.drop_stream() == (None, 300.0)
    turn.lease_deadline = 200.0
    assert turn.drop_stream() == (None, 200.0)


# -- a batch that runs


def test_a_stop_hurries_a_batch_at_once() -> None:
    turn = control(At())
    turn.note(Mail(TASK))
    assert turn.hurry_batch() == (Cancel.CANCEL_TASK, 100.0)


@pytest.mark.parametrize("reason", [Cancel.STEER, Cancel.DRAIN])
def test_a_steer_and_a_drain_hurry_a_batch_after_patience(reason: Cancel) -> None:
    at = At()
    turn = control(at)
    turn.note(Mail(steers=1)) if reason is Cancel.STEER else turn.drain()
    assert turn.hurry_batch() == (None, 102.0)
    at.s = 102.0
    assert turn.hurry_batch()[0] is reason


def test_the_end_of_the_turns_time_hurries_a_batch() -> None:
    at = At()
    turn = control(at)
    turn.work_by = 130.0
    assert turn.hurry_batch() == (None, 130.0)
    at.s = 130.0
    assert turn.hurry_batch()[0] is Cancel.LIMIT


def test_a_batch_ends_when_the_lease_does() -> None:
    at = At()
    turn = control(at)
    assert turn.hurry_batch() == (None, 1_000.0)
    at.s = 1_000.0
    assert turn.hurry_batch()[0] is Cancel.LEASE


def test_no_write_is_started_once_somebody_wants_something_else() -> None:
    at = At()
    turn = control(at)
    assert turn.keep_from_writing() is None
    turn.work_by = at.s
    assert turn.keep_from_writing() is Cancel.LIMIT
    turn.drain()
    assert turn.keep_from_writing() is Cancel.DRAIN
    turn.note(Mail(steers=1))
    assert turn.keep_from_writing() is Cancel.STEER
    turn.lease_deadline = at.s
    assert turn.keep_from_writing() is Cancel.LEASE
    turn.note(Mail(STEP))
    assert turn.keep_from_writing() is Cancel.STOP_STEP


# -- facts


@pytest.mark.parametrize(("fact", "reason"), [(STEP, Cancel.STOP_STEP), (TASK, Cancel.CANCEL_TASK)])
def test_a_stops_level_is_its_reason(fact: StopFact, reason: Cancel) -> None:
    assert stop_reason(fact) is reason


def test_a_stop_stays_true_when_the_mailbox_is_read_again() -> None:
    turn = control(At())
    turn.note(Mail(STEP))
    turn.note(Mail())
    assert turn.stop == STEP


def test_a_stop_of_the_step_becomes_a_cancel_and_never_the_other_way() -> None:
    turn = control(At())
    turn.note(Mail(STEP))
    turn.note(Mail(TASK))
    assert turn.stop == TASK
    turn.note(Mail(STEP))
    assert turn.stop == TASK


def test_patience_counts_from_the_first_steer_and_ends_when_all_are_withdrawn() -> None:
    at = At()
    turn = control(at)
    turn.note(Mail(steers=1))
    at.s = 101.0
    turn.note(Mail(steers=3))
    assert turn.steer_at == 100.0
    turn.note(Mail())
    assert turn.steer_at is None
    assert turn.drop_stream()[0] is None


# -- waiting


@in_virtual_time
async def test_a_fact_wakes_who_waits() -> None:
    turn = Control(LIMITS, now)
    asyncio.get_running_loop().call_later(3, turn.note, Mail(STEP))
    await turn.wait(set(), 60.0)
    assert now() == 3.0


@in_virtual_time
async def test_a_wait_ends_at_its_time_or_with_the_first_task() -> None:
    turn = Control(LIMITS, now)
    await turn.wait(set(), 5.0)
    assert now() == 5.0
    slow, quick = (asyncio.ensure_future(asyncio.sleep(s)) for s in (30, 1))
    await turn.wait({slow, quick}, 60.0)
    assert now() == 6.0 and quick.done() and not slow.done()
    slow.cancel()


@in_virtual_time
async def test_a_time_that_has_passed_is_not_waited_for() -> None:
    turn = Control(LIMITS, now)
    await asyncio.sleep(10)
    await turn.wait(set(), 3.0)
    assert now() == 10.0


@in_virtual_time
async def test_a_fact_that_came_before_the_wait_is_seen_by_the_question_and_not_by_the_bell() -> None:
    turn = Control(LIMITS, now)
    turn.note(Mail(STEP))
    assert turn.drop_stream()[0] is Cancel.STOP_STEP
    await turn.wait(set(), 1.0)
    assert now() == 1.0


@pytest.mark.parametrize("fact", ["drain", "wake"])
def test_every_change_rings(fact: str) -> None:
    async def waits() -> float:
        turn = Control(LIMITS, now)
        asyncio.get_running_loop().call_later(2, getattr(turn, fact))
        await turn.wait(set(), float("inf"))
        return now()

    assert run(waits()) == 2.0


def test_a_wait_that_nothing_can_end_is_found_by_the_clock_of_these_tests() -> None:
    async def waits() -> None:
        await Control(LIMITS, now).wait(set(), float("inf"))

    with pytest.raises(Stuck):
        run(waits())
