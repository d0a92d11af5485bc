"""The tool calls of one step: reads at once, writes one after another, and the hurry.

A batch is never cut in the middle. From the moment that a steer waits, interruptible calls get `patience` seconds;
then they are cancelled and report truthfully that they were cancelled and that nothing was read: a true result, and
it closes the batch. Calls that write are never hurried; after a stop the one that runs may end and those behind it
are not run. What finishes while others still run is recorded soon, so that a crash does not lose it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from core.cancel import SAYS, Cancel, CancelToken
from core.control import Control
from core.errors import LostLease, Overtaken, Stopped
from core.gateway import AFTER_AN_UNKNOWN, Call, CallResult, CallStatus, Gateway, cancelled, not_run

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
        self._hasty: dict[int, asyncio.Task[None]] = {}
        self._hurried = CancelToken()
        self._began = 0.0

    async def run(self, calls: Sequence[Call]) -> list[CallResult]:
        """Run them all and return one result a call, in their order.

        Raises `LostLease` when the lease is gone, and what the ledger raises; then nothing of it runs any more.
        """
        self._began = self._now()
        tasks: set[asyncio.Task[None]] = {
            asyncio.ensure_future(self._read(call)) for call in calls if not call.writes
        }
        writes = [call for call in calls if call.writes]
        if writes:
            tasks.add(asyncio.ensure_future(self._write_in_order(writes)))
        try:
            await self._watch(tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return [self._done[call.position] for call in calls]

    async def _watch(self, tasks: set[asyncio.Task[None]]) -> None:
        record_at = float("inf")
        while pending := {task for task in tasks if not task.done()}:
            reason, again = self._control.hurry_batch()
            if reason is Cancel.LEASE or self._control.lease_lost:
                raise LostLease("the lease of this session ran out while its tools were running")
            if reason is not None:
                again = self._control.lease_deadline
                self._hurry(reason)
            if len(self._done) > len(self._recorded) and record_at == float("inf"):
                record_at = self._now() + RECORD_AFTER_S
            await self._control.wait(pending, min(again, record_at))
            _raise_first_error(pending)
            if self._now() >= record_at and any(not task.done() for task in tasks):
                record_at = float("inf")
                await self._record_finished()

    def _hurry(self, reason: Cancel) -> None:
        """Cancel each interruptible call that runs, once; one that has not begun yet will not."""
        self._hurried.cancel(reason)
        while self._hasty:
            self._hasty.popitem()[1].cancel()

    async def _record_finished(self) -> None:
        fresh = [position for position in self._done if position not in self._recorded]
        self._recorded.update(fresh)
        await self._record([self._done[position] for position in fresh])

    async def _read(self, call: Call) -> None:
        if (reason := self._hurried.reason) is not None:
            self._done[call.position] = not_run(call, SAYS[reason])
            return
        task = asyncio.current_task()
        if call.interruptible and task is not None:
            self._hasty[call.position] = task
        try:
            self._done[call.position] = await self._gateway.run(call)
        except asyncio.CancelledError:
            if (reason := self._hurried.reason) is None:
                raise
            ended = self._now()
            self._done[call.position] = replace(cancelled(call, reason, ended - self._began), ended_s=ended)
        finally:
            self._hasty.pop(call.position, None)

    async def _write_in_order(self, calls: Sequence[Call]) -> None:
        why: str | None = None
        for call in calls:
            if call.refusal is not None:
                self._done[call.position] = await self._gateway.run(call)
                continue
            why = why or await self._keep_from(call)
            if why is not None:
                self._done[call.position] = not_run(call, why)
                continue
            result = await self._gateway.run(call)
            self._done[call.position] = result
            await self._record([result])
            self._recorded.add(call.position)
            if result.status is CallStatus.UNKNOWN:
                why = AFTER_AN_UNKNOWN

    async def _keep_from(self, call: Call) -> str | None:
        """Why a write is not started; None once its intent is committed and the lease is still ours."""
        reason = self._control.keep_from_writing()
        if reason is None:
            try:
                await self._intend(call)
            except Stopped:
                return SAYS[Cancel.STOP_STEP]
            except Overtaken as why:
                return str(why)
        if reason is Cancel.LEASE or self._control.lease_lost:
            raise LostLease("the lease of this session ran out before a write could start")
        return None if reason is None else SAYS[reason]


def _raise_first_error(tasks: set[asyncio.Task[None]]) -> None:
    """A result is never an error: what a task of the batch raises is the ledger's, and ends the batch."""
    for task in tasks:
        if task.done() and not task.cancelled() and (error := task.exception()) is not None:
            raise error
