"""`pilothouse doctor` as a process of its own, between real far ends that are broken in turn."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bot.playground.slack.people import ALL_SCOPES
from tests.support import far_ends
from tests.support.cli import PROGRAM
from tests.support.far_ends import Installation, installation
from tests.support.processes import end, free_port, spawn, until
from tests.support.redis import RedisServer

pytestmark = pytest.mark.process
here = far_ends.here


async def doctor(here: Installation, *arguments: str) -> tuple[int, str, str]:
    """Exit code, stdout, stderr."""
    process = await asyncio.create_subprocess_exec(
        *(*PROGRAM, "doctor", "--config", str(here.config), *arguments),
        cwd=here.place,
        env=here.process_environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    return int(process.returncode or 0), out.decode(), err.decode()


async def test_where_all_is_well_it_says_so_line_by_line_and_ends_with_0(here: Installation) -> None:
    code, out, err = await doctor(here)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].split() == ["CHECK", "STATE", "SAYS"]
    assert any(line.split()[:3] == ["bot", "token", "ok"] for line in lines)
    assert lines[-1] == f"All {len(lines) - 3} checks are well."


async def test_a_warning_is_told_and_ends_with_0(here: Installation) -> None:
    here.slack.workspace.scopes = ALL_SCOPES - {"reactions:read"}
    code, out, err = await doctor(here)
    assert (code, err, out.splitlines()[-1]) == (0, "", "It works, with 1 warning.")


def _wrong_token(here: Installation) -> None:
    here.variables["SLACK_BOT_TOKEN"] = "xoxb-1234567890-wrong"


def _missing_scope(here: Installation) -> None:
    here.slack.workspace.scopes = ALL_SCOPES - {"chat:write"}


def _unknown_model(here: Installation) -> None:
    here.variables["PILOTHOUSE_MODEL"] = "claude-sonnet-55"


def _not_migrated(here: Installation) -> None:
    (here.place / "pilothouse.db").write_bytes(b"")


def _redis_down(here: Installation) -> None:
    here.variables["PILOTHOUSE_REDIS_URL"] = f"redis://:hush-hush-hush@127.0.0.1:{free_port()}/0"


def _tool_down(here: Installation) -> None:
    here.world.fail("loki", 503)


@pytest.mark.parametrize(
    ("break_it", "check", "says"),
    [
        (_wrong_token, "bot token", "copy the token that starts with xoxb- again"),
        (_missing_scope, "scopes", "The bot token lacks chat:write: add them under OAuth & Permissions"),
        (_unknown_model, "model", "does not know the model claude-sonnet-55; did you mean claude-sonnet-5-5"),
        (_not_migrated, "database", "run `pilothouse db upgrade` first"),
        (_redis_down, "redis", "Redis does not answer"),
        (_tool_down, "tool loki_", "Loki answered 503"),
    ],
)
async def test_what_is_broken_is_the_one_thing_that_fails_and_the_end_is_1(
    here: Installation, break_it: Callable[[Installation], None], check: str, says: str
) -> None:
    break_it(here)
    code, out, err = await doctor(here, "--json")
    report: dict[str, Any] = json.loads(out)
    assert (code, err, report["status"]) == (1, "", "failing")
    found = [one for one in report["findings"] if one["status"] == "failing"]
    assert found and all(one["check"].startswith(check) and says in one["says"] for one in found)
    assert "xoxb-1234567890" not in out and "hush-hush" not in out


async def test_a_clock_that_is_off_fails(tmp_path: Path) -> None:
    async with installation(tmp_path, slack={"clock": lambda: time.time() + 3600}) as here:
        code, out, _ = await doctor(here)
    (line,) = [line for line in out.splitlines() if line.startswith("clock ")]
    assert code == 1 and "failing" in line and "min" in line and "behind Slack's" in line


@pytest.mark.redis
async def test_a_redis_that_runs_is_well(here: Installation, redis_server: RedisServer) -> None:
    here.variables["PILOTHOUSE_REDIS_URL"] = redis_server.url
    code, out, _ = await doctor(here, "--json")
    assert code == 0
    assert {"check": "redis", "status": "ok", "says": "Redis answers."} in json.loads(out)["findings"]


async def test_a_configuration_that_can_not_be_read_is_one_sentence_and_2(here: Installation) -> None:
    here.channels = "[slak]\n"
    code, out, err = await doctor(here)
    assert (code, out) == (2, "")
    assert err == f"pilothouse: {here.config}: there is no setting slak; did you mean slack?\n"


def lines_of(log: Path) -> list[dict[str, Any]]:
    """What a process has logged so far, whole lines only."""
    return [json.loads(line) for line in log.read_text().splitlines(keepends=True) if line.endswith("}\n")]


def events(log: Path) -> set[str]:
    return {line["event"] for line in lines_of(log)}


async def test_serve_says_at_its_start_that_the_model_is_unknown(here: Installation) -> None:
    port, log = free_port(), here.place / "serve.log"
    here.variables |= {"PILOTHOUSE_MODEL": "claude-sonnet-55", "PILOTHOUSE_SLACK__HTTP_PORT": str(port)}
    command = [*PROGRAM, "serve", "--config", str(here.config)]
    process = spawn(command, log, env=here.process_environment)
    try:
        await until(lambda: {"model_not_usable", "ready"} <= events(log) or process.poll() is not None, 60)
        async with aiohttp.ClientSession() as http, http.get(f"http://127.0.0.1:{port}/healthz") as answer:
            part = (await answer.json())["parts"]["model"]
    finally:
        end(process)
    logged = [line for line in lines_of(log) if line["event"] == "model_not_usable"]
    assert [(line["level"], line["says"]) for line in logged] == [("error", part["says"])]
    assert part["status"] == "warning"
    assert part["says"].startswith("The Messages API does not know the model claude-sonnet-55; did you mean claude-")
