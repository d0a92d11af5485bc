"""The control plane of one turn that runs here: stops, steers, drain and the lease, as facts that stay true.

Whoever reads the mailbox notes the facts; the loop asks. Nothing of this is ever text for the model. `changed` wakes
whoever waits; a fact that came before the wait is seen by the next question, so nothing is lost by coming early.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from core.cancel import Cancel
from core.limits import Limits
from core.messages import Level, UserId


class Closed(StrEnum):
    """Why a place takes no more messages from us: archived, not open to us (any more), or its thread is gone."""

    ARCHIVED = "archived"
    CHANNEL = "channel_closed"
    THREAD = "thread_gone"


@dataclass(frozen=True, slots=True)
class StopFact:
    """A committed stop in the scope of a turn. `closed`: nobody said stop, there is no place left to answer in."""

    level: Level
    author: UserId
    ts: str
    closed: Closed | None = None


@dataclass(frozen=True, slots=True)
class Mail:
    """What the mailbox holds for a running turn."""

    stop: StopFact | None = None
    steers: int = 0


class Control:
    """What may end or hurry the work of one turn. `now` is monotonic seconds.

    `answer_by` and `work_by` (monotonic) are when an answer and a batch of calls have used up their time.
    """

    def __init__(self, limits: Limits, now: Callable[[], float]) -> None:
        self._limits = limits
        self._now = now
        self._pulse = asyncio.Event()
        self.stop: StopFact | None = None
        self.steer_at: float | None = None
        self.drain_at: float | None = None
        self.answer_by: float | None = None
        self.work_by: float = float("inf")
        self.lease_deadline: float = float("inf")

    def note(self, mail: Mail) -> None:
        """Take over what the mailbox says."""
        if mail.stop is not None and (self.stop is None or mail.stop.level is Level.TASK):
            self.stop = mail.stop
            self._wake()
        if mail.steers and self.steer_at is None:
            self.steer_at = self._now()
            self._wake()
        elif not mail.steers and self.steer_at is not None:
            self.steer_at = None

    def drain(self) -> None:
        """This worker goes down."""
        if self.drain_at is None:
            self.drain_at = self._now()
            self._wake()

    def wake(self) -> None:
        """Let whoever waits look again (a lease was lost, a limit moved)."""
        self._wake()

    def _wake(self) -> None:
        self._pulse.set()

    @property
    def lease_lost(self) -> bool:
        """Whether this worker may not start or write anything any more."""
        return self._now() >= self.lease_deadline

    def drop_stream(self) -> tuple[Cancel | None, float]:
        """Whether an answer that is being written is thrown away now, and else when to ask again (monotonic)."""
        now = self._now()
        if self.stop is not None:
            return stop_reason(self.stop), now
        if now >= self.lease_deadline:
            return Cancel.LEASE, now
        if self.steer_at is not None:
            return Cancel.STEER, now
        again = self.lease_deadline
        if self.answer_by is not None:
            if now >= self.answer_by:
                return Cancel.LIMIT, now
            again = min(again, self.answer_by)
        if self.drain_at is not None:
            last = self.drain_at + self._limits.drain_s - self._limits.drain_stream_margin_s
            if now >= last:
                return Cancel.DRAIN, now
            again = min(again, last)
        return None, again

    def keep_from_asking(self) -> Cancel | None:
        """Why the model is not asked now. What would let a running answer finish may still forbid a new question."""
        why, _ = self.drop_stream()
        return Cancel.DRAIN if why is None and self.drain_at is not None else why

    def keep_from_writing(self) -> Cancel | None:
        """Why no write is started now: nobody has patience for what only begins."""
        why = self.keep_from_asking()
        return Cancel.LIMIT if why is None and self._now() >= self.work_by else why

    def hurry_batch(self) -> tuple[Cancel | None, float]:
        """Whether interruptible calls are cancelled now, and else when to ask again (monotonic)."""
        now = self._now()
        if self.stop is not None:
            return stop_reason(self.stop), now
        if now >= self.lease_deadline:
            return Cancel.LEASE, now
        if now >= self.work_by:
            return Cancel.LIMIT, now
        again = min(self.lease_deadline, self.work_by)
        for since, reason in ((self.steer_at, Cancel.STEER), (self.drain_at, Cancel.DRAIN)):
            if since is None:
                continue
            due = since + self._limits.patience_s
            if now >= due:
                return reason, now
            again = min(again, due)
        return None, again

    async def wait(self, tasks: Collection[asyncio.Task[Any]], until: float) -> None:
        """Wait until one of `tasks` is done, something changed, or the monotonic time `until`."""
        self._pulse.clear()
        pulse: asyncio.Task[Any] = asyncio.ensure_future(self._pulse.wait())
        timeout = None if until == float("inf") else max(0.0, until - self._now())
        try:
            await asyncio.wait({*tasks, pulse}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        finally:
            pulse.cancel()


def stop_reason(stop: StopFact) -> Cancel:
    """The cancel reason of a stop."""
    return Cancel.CANCEL_TASK if stop.level is Level.TASK else Cancel.STOP_STEP
