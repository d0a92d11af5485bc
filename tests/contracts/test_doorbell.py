"""What every doorbell promises, and what losing Redis costs: nothing but speed."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator

import pytest

from core.messages import SessionId
from core.ports import Doorbell
from storage.doorbell import LocalDoorbell
from storage.redis_doorbell import RedisDoorbell
from tests.support.processes import until
from tests.support.redis import RedisServer

A, B = SessionId("s-a"), SessionId("s-b")


@pytest.fixture(params=["local", pytest.param("redis", marks=pytest.mark.redis)])
async def bells(request: pytest.FixtureRequest) -> AsyncIterator[tuple[Doorbell, Doorbell]]:
    """Two ends of one bell: with Redis two processes, else twice the same."""
    if request.param == "local":
        local = LocalDoorbell()
        yield local, local
        return
    server: RedisServer = request.getfixturevalue("redis_server")
    first, second = [RedisDoorbell(server.url, time.monotonic) for _ in range(2)]
    yield first, second
    await first.close()
    await second.close()


async def _next(rings: AsyncIterator[SessionId]) -> SessionId:
    async with asyncio.timeout(20):
        return await anext(rings)


async def test_a_ring_is_heard_at_the_other_end(bells: tuple[Doorbell, Doorbell]) -> None:
    here, there = bells
    async with there.listen() as rings:
        await here.ring(A)
        assert await _next(rings) == A


async def test_a_ring_is_heard_at_this_end_too(bells: tuple[Doorbell, Doorbell]) -> None:
    here, _ = bells
    async with here.listen() as rings:
        await here.ring(A)
        assert await _next(rings) == A


async def test_every_listener_hears_every_ring(bells: tuple[Doorbell, Doorbell]) -> None:
    here, there = bells
    async with here.listen() as first, there.listen() as second, there.listen() as third:
        await here.ring(A)
        assert [await _next(rings) for rings in (first, second, third)] == [A, A, A]


async def test_rings_keep_their_order_and_those_of_one_session_are_one(
    bells: tuple[Doorbell, Doorbell],
) -> None:
    here, _ = bells
    async with here.listen() as rings:
        for session in (A, A, B, A):
            await here.ring(session)
        await here.ring(SessionId("last"))
        assert [await _next(rings) for _ in range(3)] == [A, B, "last"]


async def test_a_ring_that_was_taken_can_be_rung_again(bells: tuple[Doorbell, Doorbell]) -> None:
    here, there = bells
    async with there.listen() as rings:
        for _ in range(3):
            await here.ring(A)
            assert await _next(rings) == A


async def test_a_ring_before_listening_is_not_heard_and_nobody_listening_is_no_error(
    bells: tuple[Doorbell, Doorbell],
) -> None:
    here, there = bells
    await here.ring(A)
    async with there.listen() as rings:
        await here.ring(B)
        assert await _next(rings) == B


@pytest.mark.redis
async def test_when_redis_dies_rings_are_harmless_and_heard_in_the_same_process(
    redis_server: RedisServer,
) -> None:
    bell = RedisDoorbell(redis_server.url, time.monotonic)
    async with bell.listen() as rings:
        redis_server.kill()
        for _ in range(3):
            await bell.ring(A)
            assert await _next(rings) == A
    await bell.close()


@pytest.mark.redis
async def test_when_redis_comes_back_rings_are_heard_again_between_processes(
    redis_server: RedisServer,
) -> None:
    here, there = [RedisDoorbell(redis_server.url, time.monotonic) for _ in range(2)]
    heard: list[SessionId] = []

    async def hear() -> None:
        async with there.listen() as rings:
            async for session in rings:
                heard.append(session)

    async def ring_and_look() -> bool:
        await here.ring(A)
        return bool(heard)

    listening = asyncio.create_task(hear())
    await until(ring_and_look)
    redis_server.kill()
    await here.ring(B)
    redis_server.start()
    heard.clear()
    await until(ring_and_look)
    listening.cancel()
    await asyncio.wait([listening])
    await here.close()
    await there.close()


async def test_a_redis_that_accepts_and_never_answers_delays_one_ring_and_not_the_next() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        bell = RedisDoorbell(f"redis://127.0.0.1:{silent.getsockname()[1]}/0", clock=lambda: 100.0)
        await bell.ring(A)
        async with asyncio.timeout(0.2):
            for _ in range(100):
                await bell.ring(A)
        await bell.close()


async def test_listening_starts_without_redis() -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        bell = RedisDoorbell(f"redis://127.0.0.1:{reserved.getsockname()[1]}/0", time.monotonic)
        async with bell.listen() as rings:
            await bell.ring(A)
            assert await _next(rings) == A
        await bell.close()
