"""Cancelled is not failed: a cancel token carries one reason of a closed list, and the first reason stays.

There is one token for the step that runs and it is a fact, not an event: who asks late gets the same answer as who
waited. Work is cancelled through the child task of the step; the task of the turn goes on to close the batch with
true results and to settle.
"""

from __future__ import annotations

import asyncio
from enum import StrEnum
from typing import Any


class Cancel(StrEnum):
    """Why running work was cancelled."""

    STOP_STEP = "stop_step"
    CANCEL_TASK = "cancel_task"
    STEER = "steer"
    DRAIN = "drain"
    LEASE = "lease"
    LIMIT = "limit"


SAYS: dict[Cancel, str] = {
    Cancel.STOP_STEP: "a person stopped this step",
    Cancel.CANCEL_TASK: "a person cancelled the task",
    Cancel.STEER: "a person redirected the investigation",
    Cancel.DRAIN: "this worker is being shut down",
    Cancel.LEASE: "another worker took over",
    Cancel.LIMIT: "the time of this turn ran out",
}


class CancelToken:
    """Set once. `wait` returns the reason; `reason` is None while nothing was cancelled."""

    __slots__ = ("_event", "reason")

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self.reason: Cancel | None = None

    def cancel(self, reason: Cancel) -> bool:
        """Cancel with `reason`; False if it was cancelled before, then the first reason stays."""
        if self.reason is not None:
            return False
        self.reason = reason
        self._event.set()
        return True

    @property
    def cancelled(self) -> bool:
        return self.reason is not None

    async def wait(self) -> Cancel:
        """Wait until it is cancelled, and say why."""
        await self._event.wait()
        if self.reason is None:
            raise AssertionError("a token that is set has a reason")
        return self.reason


LETTING_GO_S = 1.0
"""How long cancelled work may take to end. What ignores its cancellation is left behind, not waited for."""


async def let_go(task: asyncio.Task[Any]) -> None:
    """Cancel `task` and wait for its end, but not for ever; its late error, if any, is nobody's any more."""
    if task.done():
        return
    task.cancel()
    task.add_done_callback(_hear)
    await asyncio.wait({task}, timeout=LETTING_GO_S)


def _hear(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()
