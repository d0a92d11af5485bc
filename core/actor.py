"""Runs the turns of one session under one lease: claim, loop, settle, and the next turn if there is one.

The loop and the actor are two sides of one border, and the stamp is readable on both: the loop returns it, and
`settle` reads the one that was written in the transaction of the cut. A turn that is found stamped or stopped is
only closed and settled, it is never run again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from core.agent_loop import OUTCOME_UNKNOWN, AgentLoop, End, Leave, Means
from core.cancel import let_go
from core.control import Control, Mail
from core.errors import LostLease
from core.gateway import CallStatus
from core.ledger import Claimed, Frozen, Lease, Settled, Surroundings, Wanted
from core.limits import Limits
from core.messages import ChannelId, SessionId
from core.settle import Detail, Outcome, Reason, reason_of
from core.turn import CRASHES_THAT_ABANDON, Stamp

Fault = Callable[[Claimed, BaseException], None]
Seen = Callable[[Claimed, Settled], None]
Taken = Callable[[Claimed, Control, float], None]

NOT_READ = "[What these words refer to could not be read from Slack in time. Ask if it matters.]"


class Reader(Protocol):
    """Reads from Slack what the words of a turn refer to."""

    async def read(self, wanted: Wanted) -> Surroundings:
        """The thread and the files; never raises for what Slack refuses: it says so in the text."""
        ...


class Actor:
    """One session on one worker.

    `taken` hears of each claim before anything else is done, with the monotonic time at which it was asked for;
    `settled` hears of each settle, `fault` of each exception that reached the door around a turn. While `draining`
    says so nothing is claimed.
    """

    def __init__(
        self,
        means: Means,
        frozen: Callable[[], Frozen],
        reader: Reader,
        *,
        worker: str,
        limits: Callable[[ChannelId], Limits],
        draining: Callable[[], bool],
        taken: Taken,
        settled: Seen,
        fault: Fault,
    ) -> None:
        self._means = means
        self._frozen = frozen
        self._reader = reader
        self._worker = worker
        self._limits = limits
        self._draining = draining
        self._taken = taken
        self._settled = settled
        self._fault = fault
        self._lease: Lease | None = None

    async def run(self, session: SessionId) -> None:
        """Work until there is nothing to do here. Raises `LostLease` when somebody else took over.

        However it ends, the lease is given back: whoever takes the session next closes what is open.
        """
        lease: Lease | None = None
        try:
            while not self._draining():
                asked_at = self._means.now()
                claimed = await self._means.ledger.claim(session, self._worker, self._frozen())
                if claimed is None:
                    return
                lease = claimed.lease
                settled = await self._turn(claimed, asked_at)
                if settled is None:
                    return
                if not settled.goes_on:
                    lease = None
                    return
        finally:
            if lease is not None:
                await self._means.ledger.release(lease)

    async def _turn(self, claimed: Claimed, asked_at: float) -> Settled | None:
        """One attempt; None when the turn left this worker unsettled."""
        limits = self._limits(claimed.channel)
        means = replace(self._means, limits=limits, gateway=self._means.gateway.limited(limits))
        control = Control(limits, means.now)
        while True:
            self._taken(claimed, control, asked_at)
            around: Surroundings | None = None
            if claimed.wanted is not None:
                around = await self._read(claimed, claimed.wanted, control, limits)
            else:
                loop = AgentLoop(means, control, claimed)
                try:
                    end = await self._end(claimed, control, loop)
                finally:
                    await means.gateway.close()
                if end in (Leave.HANDED_OVER, Leave.SUSPENDED):
                    return None
                if isinstance(end, Outcome):
                    settled = await means.ledger.settle(claimed, end, loop.take_spent())
                    self._settled(claimed, settled)
                    return settled
            asked_at = means.now()
            claimed = await self._again(claimed, around)
            control.steer_at = None

    async def _again(self, claimed: Claimed, surroundings: Surroundings | None) -> Claimed:
        """Claim once more under the same lease: the words of the turn grew, or what they refer to was read."""
        again = await self._means.ledger.claim(
            claimed.lease.session,
            self._worker,
            self._frozen(),
            surroundings=surroundings,
            holding=claimed.lease,
        )
        if again is None:
            raise LostLease("the session was taken while the words of its turn were read")
        return again

    async def _read(self, claimed: Claimed, wanted: Wanted, control: Control, limits: Limits) -> Surroundings:
        """What Slack says about the words in time; a stop or a lost lease ends the reading, and the claim sees it."""
        now = self._means.now
        until = now() + limits.reading_s
        reading = asyncio.ensure_future(self._reader.read(wanted))
        try:
            while not reading.done() and now() < until and control.stop is None and not control.lease_lost:
                await control.wait({reading}, min(until, control.lease_deadline))
        finally:
            await let_go(reading)
        if not reading.done() or reading.cancelled():
            return Surroundings(NOT_READ)
        fault = reading.exception()
        if fault is not None:
            self._fault(claimed, fault)
        return Surroundings(NOT_READ) if fault is not None else reading.result()

    async def _end(self, claimed: Claimed, control: Control, loop: AgentLoop) -> End:
        if claimed.stop is not None:
            control.stop = claimed.stop
        if claimed.steers:
            control.note(Mail(steers=claimed.steers))
        try:
            end = await loop.close_what_was_open() if claimed.open_calls else None
            if end is None:
                end = settled_before(claimed)
            return end if end is not None else await loop.run()
        except LostLease:
            raise
        except Exception as error:  # noqa: BLE001 - the door around a turn
            self._fault(claimed, error)
            if loop.calls_open and claimed.crashes < CRASHES_THAT_ABANDON:
                return Leave.HANDED_OVER
            known = f"Something went wrong inside Pilothouse ({type(error).__name__}); the log has the details."
            return Outcome(Reason.FAILED, detail=Detail.INTERNAL, known=known, step=loop.step)


def settled_before(claimed: Claimed) -> Outcome | None:
    """The outcome of a turn that is only to be settled; None if it is to be run.

    A write whose outcome is unknown ends the task, also when the worker died before it could say so.
    """
    if any(looked.status == CallStatus.UNKNOWN.value for looked in claimed.looked):
        return Outcome(Reason.FAILED, detail=Detail.OUTCOME_UNKNOWN, known=OUTCOME_UNKNOWN, step=claimed.steps)
    if claimed.stamp is not None:
        return from_stamp(claimed)
    if claimed.stop is not None:
        return stopped(claimed)
    return abandoned(claimed) if claimed.crashes >= CRASHES_THAT_ABANDON else None


def stopped(claimed: Claimed) -> Outcome:
    """A turn that a stop reached before it ran, or while nobody ran it."""
    assert claimed.stop is not None
    return Outcome(
        reason_of(Stamp.STOP, claimed.stop.level),
        stamp=Stamp.STOP,
        step=claimed.steps,
        ended_by=claimed.stop.author,
    )


def from_stamp(claimed: Claimed) -> Outcome:
    """A turn that was found stamped but unsettled after a crash."""
    assert claimed.stamp is not None
    level = claimed.stop.level if claimed.stop is not None else None
    ended_by = claimed.stop.author if claimed.stop is not None and claimed.stamp is Stamp.STOP else None
    return Outcome(reason_of(claimed.stamp, level), stamp=claimed.stamp, step=claimed.steps, ended_by=ended_by)


def abandoned(claimed: Claimed) -> Outcome:
    """The third crash ends a turn: something about it kills workers."""
    known = f"The worker died {claimed.crashes} times while it worked on this, so it was given up."
    return Outcome(Reason.ABANDONED, known=known, step=claimed.steps)
