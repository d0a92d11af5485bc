"""The doctor's report as a whole, and what it says of the database, Redis and the tools, each broken in turn."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from bot.app import examine
from bot.doctor import storage as storage_doctor
from bot.doctor import tools as tools_doctor
from bot.doctor.finding import Finding, examined, failing, ok, secrets_of, without
from bot.http import Health
from bot.settings import Settings
from core.ports import Tool, ToolOutput, ToolSpec
from storage.database import Database
from tests.support import far_ends
from tests.support.far_ends import Installation, told
from tests.support.postgres import PostgresServer
from tests.support.redis import RedisServer

here = far_ends.here


async def test_where_all_is_well_every_check_says_so(here: Installation) -> None:
    found = await told(here)
    assert {state for state, _ in found.values()} == {"ok"}
    assert {"bot token", "scopes", "app token", "clock", "model", "fallback model", "database"} <= set(found)
    assert {"database clock", "tool loki_query", "tool kubernetes_get", "approvers", "people"} <= set(found)
    assert here.slack.called("chat.postMessage") == [] and here.model.requests == []


# -- the report itself


async def test_a_check_that_breaks_or_hangs_is_a_finding_and_the_others_go_on() -> None:
    async def breaks() -> list[Finding]:
        raise KeyError("x")

    async def hangs() -> list[Finding]:
        await asyncio.Event().wait()
        return []

    async def goes_on() -> list[Finding]:
        return [ok("third", "Well.")]

    found = await examined({"first": breaks, "second": hangs, "third": goes_on}, 0.05, ())
    assert [(one.check, one.health) for one in found] == [
        ("first", Health.FAILING),
        ("second", Health.FAILING),
        ("third", Health.OK),
    ]
    assert "(KeyError: 'x'): please report it as a fault." in found[0].says


async def test_no_secret_of_the_configuration_is_in_any_sentence(here: Installation) -> None:
    settings = here.settings
    secrets = secrets_of(settings)
    assert {"xoxb-local", "xapp-local", "sk-ant-local", here.world.token} <= secrets
    assert all(secret not in one.says for one in await examine(settings) for secret in secrets)


def test_a_password_in_an_address_is_a_secret_too() -> None:
    storage = Settings().storage.model_copy(update={"redis_url": SecretStr("redis://:pass word-9@cache/0")})
    secrets = secrets_of(Settings(storage=storage))
    assert without("AUTH pass word-9 failed for sk-ant-abcdefgh", secrets) == (
        "AUTH [redacted] failed for [redacted API key]"
    )


# -- the database and Redis


async def test_an_sqlite_file_that_is_not_there_yet_is_a_warning_and_is_not_made(tmp_path: Path) -> None:
    file = tmp_path / "new" / "pilothouse.db"
    (found,) = await storage_doctor.database(f"sqlite+aiosqlite:///{file}")
    assert (found.health, found.says) == (
        Health.WARNING,
        f"There is no {file} yet: `pilothouse serve` makes it, and so does `pilothouse db upgrade`.",
    )
    assert not file.parent.exists()


async def test_a_file_without_tables_is_not_migrated_and_stays_so(tmp_path: Path) -> None:
    file = tmp_path / "pilothouse.db"
    file.touch()
    (found,) = await storage_doctor.database(f"sqlite+aiosqlite:///{file}")
    assert found == failing(
        "database", f"The database sqlite+aiosqlite:///{file} has no tables yet: run `pilothouse db upgrade` first."
    )


async def test_a_database_that_another_version_made_is_told(database_url: str) -> None:
    db = await Database.connect(database_url)
    async with db.transaction() as tx:
        await tx.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    await db.close()
    (found,) = await storage_doctor.database(database_url)
    assert found.health is Health.FAILING and "which this version of Pilothouse does not know" in found.says


@pytest.mark.postgres
async def test_a_postgresql_without_tables_without_the_database_or_without_an_answer(
    postgres_server: PostgresServer,
) -> None:
    await postgres_server.empty("doctor_empty")
    try:
        (empty,) = await storage_doctor.database(postgres_server.url("doctor_empty"))
    finally:
        await postgres_server.drop("doctor_empty")
    (absent,) = await storage_doctor.database(postgres_server.url("doctor_absent"))
    (silent,) = await storage_doctor.database("postgresql+asyncpg://pilot:hushhush@127.0.0.1:1/none")
    assert empty.health is absent.health is silent.health is Health.FAILING
    assert empty.says.endswith("has no tables yet: run `pilothouse db upgrade` first.")
    assert 'database "doctor_absent" does not exist' in absent.says
    assert silent.says.startswith("The database postgresql+asyncpg://pilot:***@127.0.0.1:1/none can't be used: ")


async def test_an_address_that_is_none_is_one_sentence() -> None:
    (found,) = await storage_doctor.database("mysql://nobody")
    assert found.health is Health.FAILING and found.says.startswith("The database address must begin with sqlite+")


@pytest.mark.redis
async def test_redis_answers_or_is_told(redis_server: RedisServer) -> None:
    assert await storage_doctor.redis(redis_server.url) == [ok("redis", "Redis answers.")]
    redis_server.kill()
    (found,) = await storage_doctor.redis(redis_server.url)
    assert found.health is Health.FAILING and found.says.startswith("Redis does not answer (")
    (wrong,) = await storage_doctor.redis("cache.example.com")
    assert wrong.health is Health.FAILING


@pytest.mark.parametrize(("off_s", "state"), [(0.0, "ok"), (-100.0, "warning"), (100.0, "warning")])
async def test_the_clock_is_compared_with_the_databases(database_url: str, off_s: float, state: str) -> None:
    found = await storage_doctor.database(database_url, lambda: time.time() + off_s)
    assert [(one.check, one.health.value) for one in found] == [("database", "ok"), ("database clock", state)]
    if off_s:
        assert ("behind" if off_s < 0 else "ahead of") in found[1].says


# -- the tools


class Patient:
    """A tool whose health is what `says` tells."""

    def __init__(self, name: str, says: Callable[[], Awaitable[str | None]]) -> None:
        self.spec = ToolSpec(name, name, {"type": "object"})
        self._says = says

    async def run(self, arguments: Mapping[str, Any]) -> ToolOutput:
        raise AssertionError("the doctor runs no tool")

    async def health(self) -> str | None:
        return await self._says()


async def _well() -> None:
    return None


async def _ill() -> str:
    return "Loki answered 502."


async def _broken() -> str:
    raise RuntimeError("no route")


async def _hangs() -> str:
    await asyncio.Event().wait()
    return "never"


async def test_each_tool_is_asked_and_what_it_says_is_told_with_what_to_do() -> None:
    tools: list[Tool] = [Patient("well", _well), Patient("ill", _ill), Patient("broken", _broken)]
    assert await tools_doctor.look(tools) == [
        ok("tool well", "Its far end answers."),
        failing("tool ill", f"Loki answered 502. {tools_doctor.ADVICE}"),
        failing("tool broken", f"Asking its far end failed (RuntimeError: no route). {tools_doctor.ADVICE}"),
    ]


async def test_a_tool_that_hangs_is_told_and_keeps_nobody_else_waiting() -> None:
    tools: list[Tool] = [Patient("hangs", _hangs), Patient("well", _well)]
    assert await tools_doctor.look(tools, limit_s=0.05) == [
        failing("tool hangs", f"Its far end did not answer within 0.05 s. {tools_doctor.ADVICE}"),
        ok("tool well", "Its far end answers."),
    ]


async def test_a_far_end_that_fails_is_told_for_each_of_its_tools(here: Installation) -> None:
    here.world.fail("prometheus", 502)
    found = await told(here)
    assert [check for check, (state, _) in found.items() if state == "failing"] == [
        "tool prometheus_query",
        "tool prometheus_range",
        "tool prometheus_series",
    ]
    assert "502" in found["tool prometheus_query"][1]


async def test_an_mcp_server_that_is_not_there_is_told_and_its_secrets_are_not(here: Installation) -> None:
    here.channels = '[tools.mcp.gone]\ncommand = "/none/such-server"\n[tools.mcp.gone.env]\nKEY = "hush-hush-hush"\n'
    found = await told(here)
    assert found["tools"][0] == "failing" and "gone" in found["tools"][1]
    assert found["tool loki_query"][0] == "ok"
    assert "hush-hush-hush" not in str(found)


async def test_no_tool_at_all_is_a_warning_and_tools_that_can_not_be_opened_fail() -> None:
    (none,) = await tools_doctor.look([])
    (closed,) = await tools_doctor.look(ValueError("the server left"))
    assert (none.health, closed.health) == (Health.WARNING, Health.FAILING)
    assert closed.says == "The tools can't be opened: the server left. `pilothouse serve` would not start."
