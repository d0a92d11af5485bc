"""The one writer of a workspace: everything that we say in Slack goes through here, most urgent first.

A round is one transaction: it writes what became of the calls that ended, chooses what is due and may go out, and
commits those rows as `sending`; then the calls start. Nothing waits inside a turn, one call at a time is under way
for a message, and a second writer never runs beside the first (a lease in the database; close to its end no call is
started). Cards are drawn from the rows at the moment of sending, so the newest state wins and progress never follows
the final one.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection

from bot.slack.deliveries import Deliveries, Delivery, key_of, method_of
from bot.slack.pace import Pace
from bot.slack.send import Work
from bot.slack.verdict import Meaning
from core.errors import PilothouseError
from storage import leases
from storage.database import Database, run
from storage.ledger.outgoing import Priority
from storage.outbox import DueCard, Item, card_again, due_cards, due_items, item_ended

log = structlog.get_logger(__name__)

ROUND_S = 0.5
DEAD_WAIT_S = 60.0
UNDRAWN_WAIT_S = 60.0
CALLS_AT_ONCE = 16
TOGETHER_S = 0.05

Rows = list[DueCard | Item]


class Writer:
    """Runs until cancelled. `changed()` says that there may be something to send. `now` is monotonic seconds.

    It leads for `lease_s` at a time and starts nothing in the last `margin_s` of it.
    """

    def __init__(
        self,
        db: Database,
        deliveries: Deliveries,
        *,
        name: str,
        team: str,
        now: Callable[[], float],
        pace: Pace | None = None,
        lease_s: float = 15.0,
        margin_s: float = 3.0,
    ) -> None:
        self._db = db
        self._deliveries = deliveries
        self._name = name
        self._lease = f"writer:{team}"
        self._now = now
        self._pace = pace or Pace(now)
        self._lease_s = lease_s
        self._margin_s = margin_s
        self._rounds = asyncio.Lock()
        self._writes = asyncio.Lock()
        self._wake = asyncio.Event()
        self._ended: list[Work] = []
        self._calls: dict[str, asyncio.Task[None]] = {}
        self._following: set[asyncio.Task[None]] = set()
        self._lead_until = 0.0
        self._dead_until = 0.0
        self.last_round: float | None = None

    def changed(self) -> None:
        """There may be something to send."""
        self._wake.set()

    async def run(self) -> None:
        """Send what is due, for ever."""
        try:
            while True:
                self._wake.clear()
                if not await self._try_round():
                    await self._sleep()
        finally:
            await self._let_go()

    async def drain(self, seconds: float) -> None:
        """Send what is due now, for at most `seconds`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while await self._try_round() or self._calls or self._following:
                    if under_way := {*self._calls.values(), *self._following}:
                        await asyncio.wait(under_way, timeout=ROUND_S)

    async def _try_round(self) -> bool:
        """One round if we lead; whether another is due at once. Two rounds at once would send the same rows twice."""
        async with self._rounds:
            try:
                busy = await self._lead() and await self._round()
                self.last_round = self._now()
                return busy
            except Exception as error:  # noqa: BLE001 - the door around a round: the next one is the second chance
                log.error("writer_round_failed", error=repr(error))
                return False

    async def _sleep(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ROUND_S):
                await self._wake.wait()

    async def _lead(self) -> bool:
        now = self._now()
        if now < self._lead_until - self._lease_s / 2:
            return True
        if await leases.take(self._db, self._lease, self._name, self._lease_s):
            self._lead_until = now + self._lease_s
            return True
        self._lead_until = 0.0
        return False

    def _may_start(self) -> bool:
        """Whether nobody else can lead yet: a process that was asleep for a while must not go on where it was."""
        return self._now() < self._lead_until - self._margin_s

    async def _let_go(self) -> None:
        under_way = [*self._calls.values(), *self._following]
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
        if self._ended:
            await self._write([])
        await leases.release(self._db, self._lease, self._name)

    # -- a round

    async def _round(self) -> bool:
        if self._now() < self._dead_until and not self._ended:
            return False
        chosen: Rows | None = None
        if not self._ended:
            async with self._db.reading() as tx:
                chosen = self._choose(await _due(tx))
            if not chosen:
                return False
        wanted, going = await self._write(chosen)
        for delivery in going:
            self._calls[delivery.key] = asyncio.ensure_future(self._deliver(delivery))
        return len(going) < wanted

    def _choose(self, due: Rows) -> Rows:
        """What may go out now: the most urgent first, nothing that is under way, as much as Slack's limits allow."""
        chosen: list[DueCard | Item] = []
        if self._now() < self._dead_until:
            return chosen
        under_way = set(self._calls)
        for one in sorted(due, key=lambda one: one.priority):
            if len(chosen) + len(self._calls) >= CALLS_AT_ONCE:
                break
            if key_of(one) not in under_way:
                urgent = one.priority < Priority.PROGRESS
                if self._pace.may(method_of(one), one.channel, urgent=urgent):
                    chosen.append(one)
                    under_way.add(key_of(one))
        return chosen

    async def _write(self, chosen: Rows | None) -> tuple[int, list[Delivery]]:
        """One transaction: what became of ended calls, and the rows that are going out.

        Without `chosen` they are chosen here, because ended calls let others go. Returns how many were chosen.
        """
        return await asyncio.shield(asyncio.ensure_future(self._written(chosen)))

    async def _written(self, chosen: Rows | None) -> tuple[int, list[Delivery]]:
        async with self._writes:
            ended = list(self._ended)

            async def work(tx: AsyncConnection) -> tuple[int, list[Delivery]]:
                for write in ended:
                    await write(tx)
                if not self._may_start():
                    return 0, []
                wanted = self._choose(await _due(tx)) if chosen is None else chosen
                prepared = [await self._prepare(tx, one) for one in wanted]
                return len(wanted), [delivery for delivery in prepared if delivery is not None]

            result = await run(self._db, work)
            del self._ended[: len(ended)]
            return result

    async def _prepare(self, tx: AsyncConnection, due: DueCard | Item) -> Delivery | None:
        """One row's call. A row that can't be drawn is set aside with its reason, so that it blocks nothing else."""
        try:
            return await self._deliveries.prepare(tx, due)
        except (PilothouseError, ValueError, LookupError, TypeError) as error:
            log.error("row_not_drawn", key=key_of(due), error=repr(error))
            if isinstance(due, DueCard):
                await card_again(tx, due.turn, UNDRAWN_WAIT_S, f"can't be drawn: {error!r}"[:500])
            else:
                await item_ended(tx, due.id, "failed", error=f"can't be drawn: {error!r}"[:500])
            return None

    async def _deliver(self, delivery: Delivery) -> None:
        try:
            if not self._may_start():
                log.warning("writer_lost_the_lead", key=delivery.key, hint="its row stays `sending` and is looked up")
                return
            verdict = await delivery.call()
            if verdict.meaning is Meaning.LATER:
                self._pace.pause(delivery.method, verdict.wait_s)
            if verdict.meaning is Meaning.DEAD:
                self._dead_until = self._now() + DEAD_WAIT_S
                log.critical(
                    "slack_installation_dead",
                    error=verdict.error,
                    hint="check SLACK_BOT_TOKEN and that the app is still installed; nothing is sent until then",
                )
            self._ended.append(delivery.after(verdict))
            if delivery.then is not None:
                self._follow(delivery.then(verdict))
        except Exception as error:  # noqa: BLE001 - the door around a call: its row stays `sending` and is looked up
            log.error("writer_call_failed", key=delivery.key, error=repr(error))
        finally:
            self._calls.pop(delivery.key, None)
            self._call_ended()

    def _follow(self, work: Coroutine[Any, Any, None]) -> None:
        """What follows a call (the native indicator, a closed place) holds up neither its message nor the others."""
        task = asyncio.create_task(work)
        self._following.add(task)
        task.add_done_callback(self._followed)

    def _followed(self, task: asyncio.Task[None]) -> None:
        self._following.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("writer_follow_up_failed", error=repr(error))

    def _call_ended(self) -> None:
        """Calls that end together are written together; the last one is not waited for longer than a moment."""
        if self._calls:
            asyncio.get_running_loop().call_later(TOGETHER_S, self._wake.set)
        else:
            self._wake.set()


async def _due(tx: AsyncConnection) -> Rows:
    return [*await due_items(tx), *await due_cards(tx)]
