"""The mailbox: the one door for everything that comes in. Commit first, then acknowledge, then ring."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from core.messages import Arrival
from core.ports import Doorbell
from storage.database import Database, run
from storage.ledger.arrive import Arrived, arrive
from storage.ledger.common import Ids
from storage.ledger.signs import ChannelPolicy
from storage.ledger.stops import archive_channel


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

    async def channel_archived(self, channel: str) -> None:
        """The channel takes no more words: every turn in it is to be settled, at its next safe point."""
        reached = await run(self._db, lambda tx: archive_channel(tx, self._ids, channel))
        self._changed()
        for session in reached:
            await self._doorbell.ring(session)
