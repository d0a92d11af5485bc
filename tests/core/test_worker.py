"""One worker: the bell and the round, leases with their margin, slots, pause, and the drain within its time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from core.agent_loop import Means
from core.control import Mail
from core.errors import LostLease
from core.gateway import Gateway
from core.ledger import Claimed, Frozen, Lease, Settled, Surroundings, Wanted
from core.limits import Limits
from core.messages import Epoch, SessionId, TurnId
from core.ports import ModelAnswer, Tier
from core.settle import Reason
from core.turn import Stamp
from core.worker import Due, Worker
from storage.doorbell import LocalDoorbell
from tests.core.doubles import (
    SESSION,
    STEP,
    FakeTool,
    Line,
    Lines,
    PaperLedger,
    after,
    answer,
    claimed,
    stubborn,
    tool,
    unasked,
)
from tests.support.virtual_time import ends_within, in_virtual_time, now, run

LIMITS = Limits(poll_s=1.0, lease_s=15.0, renew_s=5.0, lease_margin_s=3.0, drain_s=25.0, patience_s=2.0)
FINE = answer("It is the gateway.")


@dataclass
class PaperRounds:
    """What a worker asks about many sessions, from memory. `kept` says whether leases are renewed."""

    waiting: list[Due] = field(default_factory=list)
    mail: dict[SessionId, Mail] = field(default_factory=dict)
    is_paused: bool = False
    kept: Callable[[], bool] = lambda: True
    renewed_at: list[float] = field(default_factory=list)
    trouble: list[BaseException] = field(default_factory=list)

    async def due(self, within_s: float, besides: Collection[SessionId]) -> Sequence[Due]:
        if self.trouble:
            raise self.trouble.pop()
        return list(self.waiting)

    async def mail_of(self, turns: Mapping[SessionId, TurnId]) -> Mapping[SessionId, Mail]:
        return {session: self.mail.get(session, Mail()) for session in turns}

    async def renew(self, held: Mapping[SessionId, Epoch]) -> Collection[SessionId]:
        self.renewed_at.append(now())
        return list(held) if self.kept() else []

    async def paused(self) -> bool:
        return self.is_paused


class Sessions(PaperLedger):
    """A ledger of many sessions: each is due until it was claimed, and has one turn."""

    def __init__(self, rounds: PaperRounds) -> None:
        super().__init__()
        self.rounds = rounds
        self.began: list[tuple[SessionId, float]] = []

    async def claim(self, session: SessionId, worker: str, frozen: Frozen, **given: Any) -> Claimed | None:
        await super().claim(session, worker, frozen, **given)
        if not any(due.session == session for due in self.rounds.waiting):
            return None
        self.rounds.waiting = [due for due in self.rounds.waiting if due.session != session]
        self.began.append((session, now()))
        return claimed(lease=Lease(session, worker, Epoch(1)), turn=TurnId(f"turn of {session}"))


class NoReader:
    async def read(self, wanted: Wanted) -> Surroundings:
        return Surroundings()


class Place:
    """A worker and everything around it."""

    def __init__(self, *lines: Line, tools: Sequence[FakeTool] = (), slots: int = 10, **limits: Any) -> None:
        self.limits = replace(LIMITS, **limits)
        self.rounds = PaperRounds()
        self.ledger = Sessions(self.rounds)
        self.model = Lines([*lines, *[FINE] * 99])
        self.bell = LocalDoorbell()
        self.trouble: list[BaseException] = []
        self.faults: list[BaseException] = []
        self.settled: list[Settled] = []
        tools = list(tools) or [tool("look")]
        self.worker = Worker(
            Means(
                self.model,
                Gateway(tools, self.limits, now),
                self.ledger,
                self.limits,
                now,
                lambda: 0.5,
                approvals=unasked(tools),
            ),
            self.rounds,
            self.bell,
            lambda _session: Frozen("claude-test", "You are a test.", []),
            NoReader(),
            name="worker-1",
            slots=slots,
            settled=lambda _claimed, settled: self.settled.append(settled),
            fault=lambda _claimed, error: self.faults.append(error),
            trouble=self.trouble.append,
        )

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """The worker runs meanwhile."""
        task = asyncio.ensure_future(self.worker.run())
        await asyncio.sleep(0.01)
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def arrives(
        self, session: str = SESSION, *, rings: bool = True, in_s: float = 0.0, stop: bool = False
    ) -> None:
        """A session has work."""
        self.rounds.waiting.append(Due(SessionId(session), in_s, stop))
        if rings:
            await self.bell.ring(SessionId(session))

    async def mails(self, mail: Mail, *, rings: bool = True) -> None:
        """Something arrives for the running turn."""
        self.rounds.mail[SESSION] = self.ledger.box = mail
        if rings:
            await self.bell.ring(SESSION)

    @property
    def reasons(self) -> list[Reason]:
        return [settled.reason for settled in self.settled]


def writes_for(seconds: float, then: ModelAnswer = FINE) -> Line:
    async def line(_request: Any, _progress: Any) -> ModelAnswer:
        await asyncio.sleep(seconds)
        return then

    return line


# -- the bell and the round


@pytest.mark.parametrize(("rings", "within"), [(True, 0.1), (False, 1.1)])
def test_a_ring_is_heard_at_once_and_a_lost_one_costs_a_poll_interval(rings: bool, within: float) -> None:
    async def works() -> None:
        place = Place()
        async with place.working():
            await place.arrives(rings=rings)
            await asyncio.sleep(within)
            assert place.reasons == [Reason.COMPLETED]
            assert place.worker.running == 0

    run(works())


@pytest.mark.parametrize(("rings", "within"), [(True, 0.1), (False, 1.1)])
def test_mail_for_a_running_turn_is_read_at_the_ring_or_in_the_next_round(rings: bool, within: float) -> None:
    async def works() -> None:
        place = Place(writes_for(60))
        async with place.working():
            await place.arrives()
            await asyncio.sleep(5)
            await place.mails(Mail(STEP), rings=rings)
            await asyncio.sleep(within)
            assert place.reasons == [Reason.STOPPED_STEP]

    run(works())


@in_virtual_time
async def test_mail_that_came_between_the_claim_and_the_first_request_is_looked_for_after_the_claim() -> None:
    place = Place(writes_for(60))
    async with place.working():
        place.ledger.box = Mail(STEP)
        await place.arrives()
        await asyncio.sleep(0.1)
        assert place.reasons == [Reason.STOPPED_STEP]


@in_virtual_time
async def test_many_sessions_run_at_once_and_one_session_never_twice() -> None:
    place = Place(*[writes_for(5)] * 8, slots=10)
    async with place.working():
        for number in range(8):
            await place.arrives(f"s{number}")
            await place.bell.ring(SessionId(f"s{number}"))
        await asyncio.sleep(0.1)
        assert place.worker.running == 8
        await place.arrives("s0")
        await asyncio.sleep(2)
        assert [session for session, _ in place.ledger.began].count(SessionId("s0")) == 1
        await asyncio.sleep(10)
        assert place.reasons == [Reason.COMPLETED] * 9


@in_virtual_time
async def test_a_round_that_fails_is_told_and_the_next_one_is_the_second_chance() -> None:
    place = Place()
    place.rounds.trouble = [ConnectionError("the database went away")]
    async with place.working():
        await place.arrives(rings=False)
        await asyncio.sleep(1.5)
        assert place.reasons == [Reason.COMPLETED]
        assert [type(error) for error in place.trouble] == [ConnectionError]


@in_virtual_time
async def test_a_session_that_fails_is_tried_again_in_the_next_round_and_does_not_spin() -> None:
    place = Place()
    frozen = 0

    async def broken(*_given: Any, **_named: Any) -> None:
        nonlocal frozen
        frozen += 1
        raise ConnectionError("the database went away")

    place.ledger.claim = broken  # type: ignore[method-assign, assignment]
    async with place.working():
        await place.arrives()
        await asyncio.sleep(10)
    assert 5 <= frozen <= 12
    assert len(place.trouble) == frozen


@in_virtual_time
async def test_a_lost_lease_is_told_and_ends_nothing_else() -> None:
    place = Place(writes_for(5, answer("", ("look", {}))), writes_for(5))
    async with place.working():
        place.ledger.trouble["open"] = LostLease("an old epoch")
        await place.arrives("s1")
        await place.arrives("s2")
        await asyncio.sleep(10)
        assert place.reasons == [Reason.COMPLETED]
        assert [type(error) for error in place.trouble] == [LostLease]


# -- slots, pause and quiet


@in_virtual_time
async def test_no_more_turns_run_than_there_are_slots() -> None:
    place = Place(*[writes_for(5)] * 3, slots=2)
    async with place.working():
        for number in range(3):
            await place.arrives(f"s{number}")
        await asyncio.sleep(1)
        assert place.worker.running == 2
        await asyncio.sleep(5)
        assert place.worker.running == 1


@in_virtual_time
async def test_what_is_only_to_be_settled_needs_no_slot_and_no_running_bot() -> None:
    place = Place(slots=0)
    place.rounds.is_paused = True
    async with place.working():
        await place.arrives("s1", stop=True)
        await place.arrives("s2")
        await asyncio.sleep(3)
        assert [session for session, _ in place.ledger.began] == [SessionId("s1")]


@in_virtual_time
async def test_while_operators_pause_no_turn_starts_and_running_ones_go_on() -> None:
    place = Place(writes_for(5))
    async with place.working():
        await place.arrives("s1")
        await asyncio.sleep(1)
        place.rounds.is_paused = True
        await place.arrives("s2")
        await asyncio.sleep(10)
        assert len(place.reasons) == 1
        place.rounds.is_paused = False
        await asyncio.sleep(1.1)
        assert len(place.reasons) == 2


@in_virtual_time
async def test_a_turn_that_waits_for_a_quiet_thread_is_claimed_when_it_is_due() -> None:
    place = Place()
    async with place.working():
        await place.arrives(in_s=0.8)
        await asyncio.sleep(2)
        ((_, at),) = place.ledger.began
        assert 0.8 <= at <= 0.9


# -- leases


@in_virtual_time
async def test_a_lease_is_renewed_every_five_seconds_for_as_long_as_the_turn_runs() -> None:
    place = Place(writes_for(80))
    async with place.working():
        await place.arrives()
        await asyncio.sleep(90)
        assert place.reasons == [Reason.COMPLETED]
        assert place.rounds.renewed_at == [5.0 * number for number in range(1, 17)]


@in_virtual_time
async def test_what_cannot_renew_ends_itself_three_seconds_before_its_lease_does() -> None:
    place = Place(writes_for(80))

    async def broken(held: Any) -> Collection[SessionId]:
        raise ConnectionError("the database went away")

    place.rounds.renew = broken  # type: ignore[method-assign]
    async with place.working():
        await place.arrives()
        await asyncio.sleep(11.9)
        assert place.worker.running == 1
        await asyncio.sleep(0.2)
        assert place.worker.running == 0
        assert any(isinstance(error, LostLease) for error in place.trouble)
        assert not place.settled


@in_virtual_time
async def test_a_renewal_that_hangs_does_not_stretch_the_lease() -> None:
    place = Place(writes_for(80))

    async def hanging(held: Any) -> Collection[SessionId]:
        await asyncio.sleep(60)
        return list(held)

    place.rounds.renew = hanging  # type: ignore[method-assign]
    async with place.working():
        await place.arrives()
        await asyncio.sleep(12.1)
        assert place.worker.running == 0


@in_virtual_time
async def test_a_renewal_that_answers_late_counts_from_when_it_was_sent() -> None:
    place = Place(writes_for(80))

    async def slow(held: Any) -> Collection[SessionId]:
        await asyncio.sleep(6)
        place.rounds.kept = lambda: False
        return list(held)

    place.rounds.renew = slow  # type: ignore[method-assign]
    async with place.working():
        await place.arrives()
        await asyncio.sleep(11.5)
        (held,) = place.worker._held.values()
        assert held.control.lease_deadline == 5.0 + 12.0


@in_virtual_time
async def test_a_session_that_somebody_else_took_ends_here_at_once() -> None:
    place = Place(writes_for(80))
    place.rounds.kept = lambda: False
    async with place.working():
        await place.arrives()
        await asyncio.sleep(5.1)
        assert place.worker.running == 0
        assert not place.settled


@in_virtual_time
async def test_a_claim_that_answers_late_leaves_less_of_its_lease() -> None:
    place = Place(writes_for(80))
    claim = place.ledger.claim

    async def slow(*given: Any, **named: Any) -> Claimed | None:
        await asyncio.sleep(4)
        return await claim(*given, **named)

    async def never(held: Any) -> Collection[SessionId]:
        raise ConnectionError("the database went away")

    place.ledger.claim = slow  # type: ignore[method-assign]
    place.rounds.renew = never  # type: ignore[method-assign]
    async with place.working():
        await place.arrives()
        await asyncio.sleep(11.9)
        assert place.worker.running == 1
        await asyncio.sleep(0.2)
        assert place.worker.running == 0


# -- drain


@in_virtual_time
async def test_an_idle_worker_drains_at_once() -> None:
    place = Place()
    async with place.working():
        await ends_within(place.worker.drain(), 0.0)


@in_virtual_time
async def test_draining_starts_nothing_new() -> None:
    place = Place()
    async with place.working():
        await place.worker.drain()
        await place.arrives()
        await asyncio.sleep(10)
        assert not place.ledger.wrote


@in_virtual_time
async def test_a_session_that_waits_for_a_quiet_thread_is_left_to_another_worker() -> None:
    place = Place()
    async with place.working():
        await place.arrives(in_s=0.9)
        await asyncio.sleep(0.5)
        await place.worker.drain()
        await asyncio.sleep(5)
        assert not place.ledger.wrote


@in_virtual_time
async def test_a_round_that_began_before_the_drain_starts_nothing_after_it() -> None:
    place = Place()
    due = place.rounds.due

    async def slow(within_s: float) -> Sequence[Due]:
        await asyncio.sleep(0.5)
        return await due(within_s)

    place.rounds.due = slow  # type: ignore[method-assign]
    async with place.working():
        await place.arrives()
        await asyncio.sleep(0.1)
        await place.worker.drain()
        await asyncio.sleep(5)
        assert not place.ledger.wrote


@pytest.mark.parametrize(("needs", "took", "reasons"), [(10.0, 9.0, [Reason.COMPLETED]), (60.0, 15.0, [])])
def test_a_running_answer_may_finish_until_ten_seconds_before_the_end_of_the_drain(
    needs: float, took: float, reasons: list[Reason]
) -> None:
    async def drains() -> Place:
        place = Place(writes_for(needs))
        async with place.working():
            await place.arrives()
            await asyncio.sleep(1 - 0.01)
            began = now()
            await place.worker.drain()
            assert now() - began == pytest.approx(took, abs=0.05)
        return place

    place = run(drains())
    assert place.reasons == reasons
    assert place.ledger.words("release") == [(SESSION,)]
    assert place.ledger.words("drop") == ([] if reasons else [(Stamp.DRAIN,)])


@in_virtual_time
async def test_a_batch_is_hurried_and_cut_at_its_end() -> None:
    place = Place(answer("", ("slow", {})), tools=[tool("slow", after(9.5))])
    async with place.working():
        await place.arrives()
        await asyncio.sleep(1)
        await ends_within(place.worker.drain(), 2.1)
        assert place.ledger.words("close") == [(1, ["cancelled"], Stamp.DRAIN)]
        assert place.ledger.words("release") == [(SESSION,)]


@pytest.mark.parametrize("work", [after(9_999), stubborn(9_999)])
def test_whatever_its_tools_do_the_worker_is_gone_in_time_and_its_leases_are_given_back(
    work: Callable[..., Any],
) -> None:
    async def drains() -> Place:
        place = Place(
            answer("", ("scale", {})), tools=[tool("scale", work, tier=Tier.WRITE, timeout_s=9_999.0)], drain_s=25.0
        )
        async with place.working():
            await place.arrives()
            await asyncio.sleep(1)
            await ends_within(place.worker.drain(), 25.0)
            assert place.worker.running == 0
        return place

    place = run(drains())
    assert not place.settled
    assert place.ledger.words("release") == [(SESSION,)]


@in_virtual_time
async def test_leases_are_renewed_while_the_worker_drains() -> None:
    place = Place(writes_for(14))
    async with place.working():
        await place.arrives()
        await asyncio.sleep(0.5)
        await place.worker.drain()
        assert place.rounds.renewed_at == [5.0, 10.0]
        assert place.reasons == [Reason.COMPLETED]
