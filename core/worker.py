"""One worker: claims sessions that have work, keeps their leases, reads their mail, and drains on SIGTERM.

The bell and the round: a ring gives speed, the round (`poll_s`) gives truth, with one query for all sessions of the
worker. The monotonic deadline of a lease is noted before its renewal is sent; within the margin of it nothing is
started or written any more, and what can't renew ends itself.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from core.actor import Actor, Fault, Reader, Seen
from core.agent_loop import Means
from core.cancel import LETTING_GO_S
from core.control import Control, Mail
from core.errors import LostLease
from core.ledger import Claimed, Frozen
from core.limits import Limits
from core.messages import ChannelId, Epoch, SessionId, TurnId
from core.ports import Doorbell

LAST_S = 2 * LETTING_GO_S
"""What is left of the time to drain for turns that have to be cancelled: calls let go, leases go back."""


@dataclass(frozen=True, slots=True)
class Due:
    """A session that has work for somebody. `in_s` is how long it still waits for the thread to be quiet."""

    session: SessionId
    in_s: float
    only_to_settle: bool


class Rounds(Protocol):
    """What a worker asks about many sessions at once; each is one query."""

    async def due(self, within_s: float, besides: Collection[SessionId]) -> Sequence[Due]:
        """Sessions with an unsettled turn that nobody holds; `besides` are at work here."""
        ...

    async def mail_of(self, turns: Mapping[SessionId, TurnId]) -> Mapping[SessionId, Mail]:
        """The mailboxes of running turns."""
        ...

    async def renew(self, held: Mapping[SessionId, Epoch]) -> Collection[SessionId]:
        """Extend the leases of this worker; those that are still held."""
        ...

    async def paused(self) -> bool:
        """Whether operators paused the starting of turns."""
        ...


@dataclass(slots=True)
class _Held:
    turn: TurnId
    epoch: Epoch
    control: Control
    deadline: float


class Worker:
    """Runs until `stop`; `drain` lets go of everything at safe points. `now` is monotonic seconds."""

    def __init__(
        self,
        means: Means,
        rounds: Rounds,
        doorbell: Doorbell,
        frozen: Callable[[SessionId], Frozen],
        reader: Reader,
        *,
        name: str,
        slots: int,
        settled: Seen,
        fault: Fault,
        trouble: Callable[[BaseException], None],
        limits_of: Callable[[ChannelId], Limits] | None = None,
    ) -> None:
        self._means = means
        self._rounds = rounds
        self._doorbell = doorbell
        self._frozen = frozen
        self._reader = reader
        self.name = name
        self._slots = slots
        self._busy = 0
        self._settled = settled
        self._fault = fault
        self._trouble = trouble
        self._limits_of = limits_of or (lambda _channel: means.limits)
        self._held: dict[SessionId, _Held] = {}
        self._tasks: dict[SessionId, asyncio.Task[None]] = {}
        self._mail_at = 0.0
        self._looks: set[asyncio.Task[None]] = set()
        self._draining = False
        self._wake = asyncio.Event()
        self.last_round: float | None = None

    @property
    def running(self) -> int:
        """How many sessions this worker works on."""
        return len(self._tasks)

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._listen())
            group.create_task(self._renew())
            group.create_task(self._round())

    async def drain(self, within_s: float | None = None) -> None:
        """No new claims; every turn ends at its next safe point or is handed over, within `within_s` (`drain_s`)."""
        within_s = self._means.limits.drain_s if within_s is None else within_s
        self._draining = True
        for held in self._held.values():
            held.control.drain()
        await self._ended_within(within_s - LAST_S)
        for task in self._tasks.values():
            task.cancel()
        await self._ended_within(LAST_S)

    async def _ended_within(self, seconds: float) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks.values(), timeout=seconds)

    # -- the bell and the round

    async def _listen(self) -> None:
        async with self._doorbell.listen() as rings:
            async for session in rings:
                self._look(session)

    def _look(self, session: SessionId) -> None:
        if session in self._held:
            task = asyncio.ensure_future(self._read_mail(session))
            self._looks.add(task)
            task.add_done_callback(self._looks.discard)
        elif session not in self._tasks:
            self._wake.set()

    async def _read_mail(self, session: SessionId) -> None:
        held = self._held.get(session)
        if held is None:
            return
        with self._troubles():
            held.control.note(await self._means.ledger.mail(session, held.turn))

    async def _round(self) -> None:
        poll_s = self._means.limits.poll_s
        while True:
            with self._troubles():
                await self._look_around()
                self.last_round = self._means.now()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(poll_s):
                    await self._wake.wait()
            self._wake.clear()

    async def _look_around(self) -> None:
        now = self._means.now()
        if self._held and now >= self._mail_at:
            self._mail_at = now + self._means.limits.poll_s / 2
            turns = {session: held.turn for session, held in self._held.items()}
            for session, mail in (await self._rounds.mail_of(turns)).items():
                held = self._held.get(session)
                if held is not None and held.turn == turns[session]:
                    held.control.note(mail)
        if self._draining:
            return
        paused = await self._rounds.paused()
        for due in await self._rounds.due(self._means.limits.poll_s, list(self._tasks)):
            if due.session in self._tasks or self._draining:
                continue
            if due.only_to_settle or (not paused and self._busy < self._slots):
                self._start(due)

    @contextlib.contextmanager
    def _troubles(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001 - the door around a round: the next one is the second chance
            self._trouble(error)

    # -- sessions

    def _start(self, due: Due) -> None:
        task = asyncio.ensure_future(self._serve(due))
        self._tasks[due.session] = task
        self._busy += not due.only_to_settle
        task.add_done_callback(lambda done: self._ended(due, done))

    def _ended(self, due: Due, task: asyncio.Task[None]) -> None:
        session = due.session
        self._busy -= not due.only_to_settle
        self._tasks.pop(session, None)
        self._held.pop(session, None)
        if task.cancelled() or (error := task.exception()) is None:
            self._wake.set()
        else:
            self._trouble(error)

    async def _serve(self, due: Due) -> None:
        if due.in_s > 0:
            await asyncio.sleep(due.in_s)
        actor = Actor(
            self._means,
            lambda: self._frozen(due.session),
            self._reader,
            worker=self.name,
            limits=self._limits_of,
            draining=lambda: self._draining,
            taken=self._took,
            settled=self._settled,
            fault=self._fault,
        )
        try:
            await actor.run(due.session)
        except LostLease as lost:
            self._trouble(lost)

    def _took(self, claimed: Claimed, control: Control, asked_at: float) -> None:
        limits = self._means.limits
        session = claimed.lease.session
        before = self._held.get(session)
        deadline = asked_at + limits.lease_s - limits.lease_margin_s
        if before is not None and before.epoch == claimed.lease.epoch:
            deadline = max(deadline, before.deadline)
        control.lease_deadline = deadline
        self._held[session] = _Held(claimed.turn, claimed.lease.epoch, control, deadline)
        if self._draining:
            control.drain()
        self._look(session)

    async def _renew(self) -> None:
        limits = self._means.limits
        while True:
            await asyncio.sleep(limits.renew_s)
            if not self._held:
                continue
            sent = self._means.now()
            epochs = {session: held.epoch for session, held in self._held.items()}
            with self._troubles():
                kept = await self._rounds.renew(epochs)
                for session, epoch in epochs.items():
                    held = self._held.get(session)
                    if held is None or held.epoch != epoch:
                        continue
                    held.deadline = sent + limits.lease_s - limits.lease_margin_s if session in kept else sent
                    held.control.lease_deadline = held.deadline
                    held.control.wake()
