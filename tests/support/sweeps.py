"""Sweeps of one process and what they told, and what bugs, crashes and time do to rows."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import update

from bot.scheduler import Sweeps
from core.card import view
from core.messages import TurnId
from core.ports import Doorbell
from core.reconcile import RULES, Find, Rule
from storage.card_facts import card_facts
from storage.database import Database
from storage.doorbell import LocalDoorbell
from storage.ledger.arrive import Arrived
from storage.tables import metadata
from tests.support.scene import BOT, Scene

ASK = f"<@{BOT}> the database is slow"
HOUR = 3600.0


@dataclass
class Watch:
    """Sweeps of one process, and what they told."""

    db: Database
    doorbell: Doorbell = field(default_factory=LocalDoorbell)
    owner: str = "worker-1"
    rules: Mapping[Find, Rule] = field(default_factory=lambda: RULES)
    counted: list[tuple[str, int]] = field(default_factory=list)
    changes: int = 0

    def __post_init__(self) -> None:
        numbers = itertools.count(1)
        self.sweeps = Sweeps(
            self.db,
            self.doorbell,
            lambda kind: f"{kind}-sweep-{next(numbers)}",
            owner=self.owner,
            found=lambda kind, count: self.counted.append((kind, count)),
            changed=self._change,
            rules=self.rules,
        )

    def _change(self) -> None:
        self.changes += 1

    async def found(self) -> dict[str, int]:
        """What every sweep once finds."""
        return {kind: count for kind, count in (await self.sweeps.once()).items() if count}


async def change(db: Database, table: str, where: Any = None, **values: Any) -> None:
    """What a bug, a crash or time does to rows."""
    statement = update(metadata.tables[table]).values(**values)
    async with db.transaction() as tx:
        await tx.execute(statement if where is None else statement.where(where))


async def pass_time(db: Database, seconds: float) -> None:
    """Let everything that is written be that much older."""
    for table in metadata.sorted_tables:
        times = [
            column
            for column in table.c
            if column.name.endswith("_at") or column.name in ("start_after", "lease_until", "until", "not_before")
        ]
        if times:
            async with db.transaction() as tx:
                await tx.execute(update(table).values({column: column - seconds for column in times}))


async def drawn(db: Database, turn: TurnId) -> Any:
    """The card of a turn, as people see it."""
    async with db.reading() as tx:
        facts = await card_facts(tx, turn, max_steps=8)
    assert facts is not None
    return view(facts)


async def work(thread: Scene, count: int) -> list[str]:
    """Let a worker work until `count` turns have settled; their reasons."""
    task = asyncio.ensure_future(thread.worker.run())
    try:
        return await thread.settled(count)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def answered(thread: Scene) -> Arrived:
    """A question that was asked and answered; its card is not sent yet."""
    arrived = await thread.say(ASK)
    assert await work(thread, 1) == ["completed"]
    return arrived
