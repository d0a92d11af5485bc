"""The bell over Redis, for several processes. The library takes long to import: only who has a Redis imports this."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Self

from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError

from core.messages import SessionId
from storage.doorbell import LocalDoorbell

CHANNEL = "pilothouse:doorbell"
RING_TIMEOUT_S = 0.25
PAUSE_S = 1.0
"""How long Redis is left alone after it failed: rings cost nothing meanwhile."""
SILENCE_S = 10.0
"""After this long without a word Redis is asked whether it is there; after twice as long it isn't."""


class RedisDoorbell:
    """A doorbell between processes, over Redis pub/sub. `clock`: monotonic seconds. Leaving its context closes it."""

    def __init__(self, url: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._redis: Redis = Redis.from_url(
            url,
            retry=Retry(NoBackoff(), 0),
            socket_connect_timeout=2,
            socket_timeout=2,
            decode_responses=True,
        )
        self._clock = clock
        self._left_alone_until = 0.0
        self._me = secrets.token_hex(8)
        self._here = LocalDoorbell()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def ring(self, session: SessionId) -> None:
        await self._here.ring(session)
        if self._clock() < self._left_alone_until:
            return
        try:
            async with asyncio.timeout(RING_TIMEOUT_S):
                await self._redis.publish(CHANNEL, f"{self._me} {session}")
        except (RedisError, OSError):
            self._left_alone_until = self._clock() + PAUSE_S

    @asynccontextmanager
    async def listen(self) -> AsyncIterator[AsyncIterator[SessionId]]:
        async with self._here.listen() as rings:
            tried = asyncio.Event()
            hearing = asyncio.create_task(self._hear(tried), name="doorbell")
            try:
                await tried.wait()
                yield rings
            finally:
                hearing.cancel()
                await asyncio.wait([hearing])

    async def ping(self) -> None:
        """Whether Redis is there. Raises RedisError or OSError when it isn't."""
        await self._redis.ping()

    async def close(self) -> None:
        await self._redis.aclose()

    async def _hear(self, tried: asyncio.Event) -> None:
        """Subscribe for ever. `tried` is set when rings arrive, or can't for now."""
        while True:
            try:
                async with self._redis.pubsub() as subscription:
                    await subscription.subscribe(CHANNEL)
                    await self._follow(subscription, tried)
            except (RedisError, OSError):
                tried.set()
                await asyncio.sleep(PAUSE_S)

    async def _follow(self, subscription: PubSub, tried: asyncio.Event) -> None:
        asked = False
        while True:
            message = await subscription.get_message(timeout=SILENCE_S)
            if message is not None:
                asked = False
                await self._take(message, tried)
            elif asked:
                raise RedisConnectionError("Redis does not answer any more")
            else:
                asked = True
                await subscription.ping()

    async def _take(self, message: dict[str, Any], tried: asyncio.Event) -> None:
        if message["type"] == "subscribe":
            tried.set()
        elif message["type"] == "message":
            sender, _, session = message["data"].partition(" ")
            if sender != self._me:
                await self._here.ring(SessionId(session))
