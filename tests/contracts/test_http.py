"""What operators ask a running process over HTTP, with real requests."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry, Counter

from bot.http import Ask, Health, Part, database_part, make_app, round_part, serving, socket_part
from core.errors import BadInput
from storage.database import Database


@dataclass
class Heard:
    hello_at: float | None = None
    connections: int = 0
    reconnects: int = 0


def saying(health: Health, says: str = "so it is") -> Ask:
    async def ask() -> Part:
        return Part(health, says)

    return ask


async def get(app: web.Application, path: str) -> tuple[int, str]:
    async with (
        serving(app, "127.0.0.1", 0) as port,
        aiohttp.ClientSession() as http,
        http.get(f"http://127.0.0.1:{port}{path}") as response,
    ):
        return response.status, await response.text()


async def healthz(**parts: Ask) -> tuple[int, dict[str, Any]]:
    status, body = await get(make_app(parts, CollectorRegistry(), part_s=0.5), "/healthz")
    found: dict[str, Any] = json.loads(body)
    return status, found


async def test_while_every_part_is_well_the_answer_is_200_and_names_each() -> None:
    status, body = await healthz(worker=saying(Health.OK), writer=saying(Health.OK, "It writes."))
    assert status == 200
    assert body["status"] == "ok"
    assert body["parts"]["writer"] == {"status": "ok", "says": "It writes."}


async def test_one_failing_part_makes_it_503() -> None:
    status, body = await healthz(worker=saying(Health.OK), writer=saying(Health.FAILING))
    assert status == 503
    assert body["status"] == "failing"
    assert body["parts"]["worker"]["status"] == "ok"


async def test_a_warning_is_no_reason_to_be_restarted() -> None:
    status, body = await healthz(slack=saying(Health.WARNING))
    assert (status, body["status"]) == (200, "warning")


async def test_a_part_that_raises_is_failing_and_the_page_still_answers() -> None:
    async def broken() -> Part:
        raise OSError("postgresql://pilot:hunter2@db/x")

    status, body = await healthz(database=broken, worker=saying(Health.OK))
    assert status == 503
    assert body["parts"]["database"]["says"] == "Asking failed with OSError."
    assert "hunter2" not in json.dumps(body)


async def test_a_part_that_hangs_is_failing_and_the_page_still_answers() -> None:
    async def hanging() -> Part:
        await asyncio.Event().wait()
        raise AssertionError

    status, body = await healthz(database=hanging)
    assert status == 503
    assert body["parts"]["database"]["says"] == "No answer within 0.5 s."


async def test_a_database_that_answers_is_well(database: Database) -> None:
    loop = asyncio.get_running_loop()
    part = await database_part(database, loop.time)()
    assert part.health is Health.OK
    assert part.says == f"The database ({database.dialect}) answers."


async def test_a_database_that_is_gone_is_failing() -> None:
    gone = await Database.connect("postgresql+asyncpg://nobody:hunter2@127.0.0.1:1/gone")
    status, body = await healthz(database=database_part(gone, asyncio.get_running_loop().time))
    await gone.close()
    assert status == 503
    assert "hunter2" not in json.dumps(body)


async def test_who_goes_rounds_is_well_until_the_last_one_is_too_long_ago() -> None:
    last: list[float | None] = [None]
    ask = round_part("worker", lambda: last[0], lambda: 1000.0, limit_s=10)
    assert await ask() == Part(Health.FAILING, "The worker has not begun yet.", {"age_s": None})
    last[0] = 998.5
    assert await ask() == Part(Health.OK, "The worker goes its rounds.", {"age_s": 1.5, "limit_s": 10})
    last[0] = 900.0
    part = await ask()
    assert (part.health, part.says) == (Health.FAILING, "The worker's last round was 1 min 40 s ago; it hangs.")


async def test_a_socket_that_slack_greeted_is_well_and_strangers_are_a_warning() -> None:
    heard = Heard()
    ask = socket_part(heard, lambda: 1000.0)
    assert (await ask()).health is Health.FAILING
    heard.hello_at, heard.connections = 940.0, 1
    part = await ask()
    assert (part.health, part.numbers["hello_age_s"]) == (Health.OK, 60.0)
    heard.connections = 3
    part = await ask()
    assert part.health is Health.WARNING
    assert part.says == (
        "Slack counts 3 connections and 1 is ours: 2 more get our clicks. "
        "Is another process running with this app token?"
    )


async def test_metrics_are_those_of_the_registry() -> None:
    registry = CollectorRegistry()
    Counter("pilothouse_sweep_finds", "What a sweep found.", ["sweep"], registry=registry).labels("card").inc(2)
    status, body = await get(make_app({}, registry), "/metrics")
    assert status == 200
    assert 'pilothouse_sweep_finds_total{sweep="card"} 2.0' in body


async def test_a_port_in_use_is_said_in_one_sentence() -> None:
    async with serving(web.Application(), "127.0.0.1", 0) as port:
        with pytest.raises(BadInput, match=rf"^Port {port} on 127\.0\.0\.1 is in use; .*choose another port\.$"):
            async with serving(web.Application(), "127.0.0.1", port):
                pass


async def test_an_address_that_is_not_this_machines_is_said_in_one_sentence() -> None:
    with pytest.raises(BadInput, match=r"no address 192\.0\.2\.7 to listen on; choose one of its own"):
        async with serving(web.Application(), "192.0.2.7", 0):
            pass


async def test_after_serving_the_port_is_free_again() -> None:
    async with serving(web.Application(), "127.0.0.1", 0) as port:
        pass
    async with serving(web.Application(), "127.0.0.1", port) as again:
        assert again == port
