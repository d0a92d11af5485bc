"""The tool calls of one step: reads at once, writes one after another, and the hurry.

A batch is never cut in the middle. From the moment that a steer waits, interruptible calls get `patience` seconds;
then they are cancelled and report truthfully that they were cancelled and that nothing was read: a true result, and
it closes the batch. Calls that write are never hurried; after a stop the one that runs may end and those behind it
are not run. What finishes while others still run is recorded soon, so that a crash does not lose it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from core.cancel import SAYS, Cancel
from core.control import Control
from core.errors import LostLease, Stopped
from core.gateway import Call, CallResult, CallStatus, Gateway, cancelled, not_run

Intend = Callable[[Call], Awaitable[None]]
Record = Callable[[Sequence[CallResult]], Awaitable[None]]

RECORD_AFTER_S = 0.05


class Batch:
    """One run of the calls of one step. `now` is monotonic seconds."""

    def __init__(
        self,
        gateway: Gateway,
        control: Control,
        *,
        intend: Intend,
        record: Record,
        now: Callable[[], float],
    ) -> None:
        self._gateway = gateway
        self._control = control
        self._intend = intend
        self._record = record
        self._now = now
        self._done: dict[int, CallResult] = {}
        self._recorded: set[int] = set()
        self._cancelled_for: Cancel | None = None
        self._began = 0.0

    async def run(self, calls: Sequence[Call]) -> list[CallResult]:
        """Run them all and return one result a call, in their order. Raises `LostLease` when the lease is gone."""
        self._began = self._now()
        reads = [call for call in calls if not call.writes]
        writes = [call for call in calls if call.writes]
        tasks: dict[asyncio.Task[object], Sequence[Call]] = {
            asyncio.ensure_future(self._read(call)): (call,) for call in reads
        }
        if writes:
            tasks[asyncio.ensure_future(self._write_in_order(writes))] = writes
        try:
            await self._watch(tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for task in tasks:
            if not task.cancelled() and task.exception() is not None:
                raise task.exception() or AssertionError
        return [self._done[call.position] for call in calls]

    async def _watch(self, tasks: dict[asyncio.Task[object], Sequence[Call]]) -> None:
        record_at = float("inf")
        while pending := {task for task in tasks if not task.done()}:
            reason, again = self._control.hurry_batch()
            if reason is Cancel.LEASE:
                raise LostLease("the lease of this session ran out while its tools were running")
            if reason is not None:
                again = self._control.lease_deadline
                self._hurry(reason, {task: tasks[task] for task in pending})
            if len(self._done) > len(self._recorded) and record_at == float("inf"):
                record_at = self._now() + RECORD_AFTER_S
            await self._control.wait(pending, min(again, record_at))
            if self._now() >= record_at and any(not task.done() for task in tasks):
                record_at = float("inf")
                await self._record_finished()

    def _hurry(self, reason: Cancel, pending: dict[asyncio.Task[object], Sequence[Call]]) -> None:
        if self._cancelled_for is None:
            self._cancelled_for = reason
        for task, calls in pending.items():
            if all(call.interruptible and not call.writes for call in calls):
                task.cancel()

    async def _record_finished(self) -> None:
        fresh = [position for position in self._done if position not in self._recorded]
        self._recorded.update(fresh)
        await self._record([self._done[position] for position in fresh])

    async def _read(self, call: Call) -> None:
        if self._cancelled_for is not None:
            self._done[call.position] = not_run(call, SAYS[self._cancelled_for])
            return
        try:
            self._done[call.position] = await self._gateway.run(call)
        except asyncio.CancelledError:
            reason = self._cancelled_for
            if reason is None:
                raise
            self._done[call.position] = cancelled(call, reason, self._now() - self._began)

    async def _write_in_order(self, calls: Sequence[Call]) -> None:
        stopped: str | None = None
        for call in calls:
            if call.refusal is not None:
                self._done[call.position] = await self._gateway.run(call)
                continue
            if stopped is None:
                stopped = self._why_not()
            if stopped is not None:
                self._done[call.position] = not_run(call, stopped)
                continue
            try:
                await self._intend(call)
            except Stopped:
                stopped = SAYS[Cancel.STOP_STEP]
                self._done[call.position] = not_run(call, stopped)
                continue
            if self._control.lease_lost:
                raise LostLease("the lease of this session ran out before a write could start")
            result = await self._gateway.run(call)
            self._done[call.position] = result
            await self._record([result])
            self._recorded.add(call.position)
            if result.status is CallStatus.UNKNOWN:
                stopped = "the outcome of a write before it is unknown"

    def _why_not(self) -> str | None:
        if self._control.stop is not None:
            return SAYS[Cancel.STOP_STEP]
        if self._control.steer_at is not None:
            return SAYS[Cancel.STEER]
        if self._control.drain_at is not None:
            return SAYS[Cancel.DRAIN]
        return None
