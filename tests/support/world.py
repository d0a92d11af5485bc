"""A world with a clock that moves when told, and short ways to ask its APIs.

A test module takes the fixtures by name: `clock, world, ... = FIXTURES`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any

import aiohttp
import pytest

from bot.playground.world import World

FIXED = datetime(2026, 3, 14, 8, 30, tzinfo=UTC).timestamp()
DAY = datetime(2026, 3, 14, tzinfo=UTC).timestamp()


class Clock:
    """A clock that moves when told."""

    def __init__(self) -> None:
        self.t = FIXED

    def __call__(self) -> float:
        return self.t


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def world(clock: Clock) -> AsyncIterator[World]:
    async with World(clock=clock) as running:
        yield running


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as open_session:
        yield open_session


@pytest.fixture
def prometheus(world: World, session: aiohttp.ClientSession) -> Callable[..., Any]:
    async def ask(path: str, **parameters: Any) -> tuple[int, Any]:
        async with session.get(f"{world.prometheus_url}/api/v1/{path}", params=parameters) as answer:
            return answer.status, await answer.json()

    return ask


@pytest.fixture
def values(prometheus: Callable[..., Any]) -> Callable[..., Any]:
    """The instant vector of a query: label value to number, by one label."""

    async def ask(query: str, label: str = "host", **parameters: Any) -> dict[str, float]:
        status, body = await prometheus("query", query=query, **parameters)
        assert status == 200, body
        return {one["metric"].get(label, ""): float(one["value"][1]) for one in body["data"]["result"]}

    return ask


@pytest.fixture
def loki(world: World, session: aiohttp.ClientSession) -> Callable[..., Any]:
    async def ask(query: str, minutes: float = 60, **parameters: Any) -> tuple[int, Any]:
        span = {"start": int((world.now() - minutes * 60) * 1e9), "end": int(world.now() * 1e9)}
        url = f"{world.loki_url}/loki/api/v1/query_range"
        async with session.get(url, params={"query": query, **span, **parameters}) as answer:
            return answer.status, await answer.json() if answer.status == 200 else await answer.text()

    return ask


@pytest.fixture
def lines(loki: Callable[..., Any]) -> Callable[..., Any]:
    async def ask(query: str, minutes: float = 60, **parameters: Any) -> list[tuple[float, str]]:
        status, body = await loki(query, minutes, **parameters)
        assert status == 200, body
        entries = [(int(ns) / 1e9, line) for one in body["data"]["result"] for ns, line in one["values"]]
        return sorted(entries, reverse=True)

    return ask


@pytest.fixture
def kubernetes(world: World, session: aiohttp.ClientSession) -> Callable[..., Any]:
    async def ask(path: str, method: str = "GET", token: str | None = None, **parameters: Any) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {token or world.token}"}
        url = f"{world.kubernetes_url}{path}"
        async with session.request(method, url, params=parameters, headers=headers) as answer:
            return answer.status, await answer.json()

    return ask


FIXTURES = (clock, world, session, prometheus, values, loki, lines, kubernetes)
