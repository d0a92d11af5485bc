"""Runs the turns of one session under one lease: claim, loop, settle, and the next turn if there is one.

The loop and the actor are two sides of one border, and the stamp is readable on both: the loop returns it, and
`settle` reads the one that was written in the transaction of the cut. A turn that is found stamped or stopped is
only closed and settled, it is never run again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from core.agent_loop import AgentLoop, End, Leave, Means
from core.control import Control
from core.errors import LostLease
from core.ledger import Claimed, Frozen, Lease, Settled, Surroundings, Wanted
from core.messages import SessionId
from core.settle import Detail, Outcome, Reason, reason_of
from core.turn import CRASHES_THAT_ABANDON, Stamp

Fault = Callable[[Claimed, BaseException], None]
Seen = Callable[[Claimed, Settled], None]
Taken = Callable[[Claimed, Control], None]


class Reader(Protocol):
    """Reads from Slack what the words of a turn refer to."""

    async def read(self, wanted: Wanted) -> Surroundings:
        """The thread and the files; never raises for what Slack refuses: it says so in the text."""
        ...


class Actor:
    """One session on one worker.

    `taken` hears of each claim before the turn runs, `settled` of each settle, `fault` of each exception that
    reached the door around a turn.
    """

    def __init__(
        self,
        means: Means,
        frozen: Callable[[], Frozen],
        reader: Reader,
        *,
        worker: str,
        control: Callable[[], Control],
        taken: Taken,
        settled: Seen,
        fault: Fault,
    ) -> None:
        self._means = means
        self._frozen = frozen
        self._reader = reader
        self._worker = worker
        self._control = control
        self._taken = taken
        self._settled = settled
        self._fault = fault

    async def run(self, session: SessionId) -> None:
        """Work until there is nothing to do here. Raises `LostLease` when somebody else took over."""
        while True:
            claimed = await self._claim(session)
            if claimed is None:
                return
            settled = await self._turn(claimed)
            if settled is None or settled.next_turn is None or not settled.starts_now:
                await self._means.ledger.release(claimed.lease)
                return

    async def _claim(self, session: SessionId, holding: Lease | None = None) -> Claimed | None:
        ledger, frozen = self._means.ledger, self._frozen()
        claimed = await ledger.claim(session, self._worker, frozen, holding=holding)
        while claimed is not None and claimed.wanted is not None:
            around = await self._reader.read(claimed.wanted)
            claimed = await ledger.claim(session, self._worker, frozen, surroundings=around, holding=claimed.lease)
        return claimed

    async def _turn(self, claimed: Claimed) -> Settled | None:
        """One attempt; None when the turn left this worker unsettled."""
        control = self._control()
        while True:
            self._taken(claimed, control)
            loop = AgentLoop(self._means, control, claimed)
            end = await self._end(claimed, control, loop)
            if end is Leave.HANDED_OVER:
                return None
            if isinstance(end, Outcome):
                settled = await self._means.ledger.settle(claimed, end, loop.take_spent())
                self._settled(claimed, settled)
                return settled
            again = await self._claim(claimed.lease.session, claimed.lease)
            if again is None:
                raise LostLease("the session was taken while words joined its turn")
            control.steer_at = None
            claimed = again

    async def _end(self, claimed: Claimed, control: Control, loop: AgentLoop) -> End:
        if claimed.stop is not None:
            control.stop = claimed.stop
        if not claimed.open_calls:
            if claimed.crashes >= CRASHES_THAT_ABANDON and claimed.stop is None and claimed.stamp is None:
                return abandoned(claimed)
            if claimed.stamp is not None:
                return from_stamp(claimed)
            if claimed.stop is not None:
                return stopped(claimed)
        try:
            return await loop.run()
        except LostLease:
            raise
        except Exception as error:  # noqa: BLE001 - the door around a turn
            self._fault(claimed, error)
            known = f"Something went wrong inside Pilothouse ({type(error).__name__}); the log has the details."
            return Outcome(Reason.FAILED, detail=Detail.INTERNAL, known=known, step=loop.step)


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
