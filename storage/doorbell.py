"""The bell of "the bell and the round": rings make workers fast, the poll of the database makes them right.

A ring says only which session has mail. Rings of one session that nobody has taken yet are one ring, so a slow
listener holds at most one entry a session. Nothing here may ever harm its caller: a ring that is lost costs one
poll interval, so whatever Redis does (down, hung, restarted) `ring` returns soon and raises nothing, and `listen`
connects again by itself. Within a process rings don't need Redis at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from core.messages import SessionId


class LocalDoorbell:
    """A doorbell within one process."""

    def __init__(self) -> None:
        self._listeners: set[_Rings] = set()

    async def ring(self, session: SessionId) -> None:
        for rings in self._listeners:
            rings.put(session)

    @asynccontextmanager
    async def listen(self) -> AsyncIterator[AsyncIterator[SessionId]]:
        rings = _Rings()
        self._listeners.add(rings)
        try:
            yield rings
        finally:
            self._listeners.discard(rings)


class _Rings:
    """What one listener has not taken yet, in the order of the first ring."""

    def __init__(self) -> None:
        self._waiting: dict[SessionId, None] = {}
        self._some = asyncio.Event()

    def put(self, session: SessionId) -> None:
        self._waiting[session] = None
        self._some.set()

    def __aiter__(self) -> _Rings:
        return self

    async def __anext__(self) -> SessionId:
        while not self._waiting:
            self._some.clear()
            await self._some.wait()
        session = next(iter(self._waiting))
        del self._waiting[session]
        return session
