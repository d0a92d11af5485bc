"""The mailbox: the one door for everything that comes in. Commit first, then acknowledge, then ring."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from sqlalchemy import update
from sqlalchemy.ext.asyncio import AsyncConnection

from core.control import Closed
from core.messages import Arrival
from core.ports import Doorbell
from core.steering_table import STOP_WORDS
from storage.database import Database, run
from storage.ledger import requests
from storage.ledger.arrive import Arrived, arrive
from storage.ledger.common import Ids
from storage.ledger.scene import find
from storage.ledger.signs import ChannelPolicy
from storage.ledger.stops import close_place
from storage.tables import cards


class Mailbox:
    """Takes arrivals. `changed` is called after each commit: there may be something to send."""

    def __init__(
        self,
        db: Database,
        doorbell: Doorbell,
        ids: Ids,
        policy: Callable[[str], ChannelPolicy],
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._db = db
        self._doorbell = doorbell
        self._ids = ids
        self._policy = policy
        self._changed = changed

    async def arrive(self, arrival: Arrival) -> Arrived:
        """Write one arrival with everything that follows from it. Raises what the database raises: then nothing
        was written, and the event must not be acknowledged."""
        policy = self._policy(arrival.channel)
        work = run(self._db, lambda tx: arrive(tx, self._ids, self._db.dialect, arrival, policy))
        arrived = await asyncio.shield(asyncio.ensure_future(work))
        self._changed()
        if arrived.session is not None:
            await self._doorbell.ring(arrived.session)
        return arrived

    async def closed(self, closed: Closed, channel: str, session: str | None = None) -> None:
        """A channel, or the thread of one session in it, takes no more words: every turn there is to be settled, at
        its next safe point."""
        reached = await run(self._db, lambda tx: close_place(tx, self._ids, closed, channel=channel, session=session))
        self._changed()
        for session in reached:
            await self._doorbell.ring(session)

    async def concerns_us(self, arrival: Arrival) -> bool:
        """Whether an arrival can matter, before anybody is asked who sent it."""
        if not arrival.only_in_session or arrival.marker in STOP_WORDS:
            return True
        async with self._db.reading() as tx:
            return await find(tx, arrival) is not None

    async def post_gone(self, channel: str, ts: str) -> None:
        """Somebody deleted a message of ours: a card is lost, and is not edited again. A request is asked again."""

        async def work(tx: AsyncConnection) -> None:
            await requests.post_gone(tx, self._db.dialect, channel, ts)
            await tx.execute(
                update(cards)
                .where(cards.c.channel == channel, cards.c.message_ts == ts, cards.c.state == "open")
                .values(not_before=0.0, sent_hash=None, sent_version=0, tries=0)
            )

        await run(self._db, work)
        self._changed()
