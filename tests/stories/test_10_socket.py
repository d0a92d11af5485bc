"""Story 10, connections: what is wrong is said in one sentence, and sockets never come in a storm."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from pydantic import SecretStr
from slack_sdk.web.async_client import AsyncWebClient

from bot.app import build
from bot.http import serving
from bot.playground.model import say
from bot.playground.slack import LocalSlack
from bot.settings import SlackPart
from bot.slack.connection import PacedSocketClient, preflight, proxy_for
from core.errors import BadInput
from tests.support.processes import free_port
from tests.support.replay import Raw, Stage, ended, log_lines, staged
from tests.support.rooms import far_ends
from tests.support.story import QUICK
from tests.support.thread import ENGINEER, ONCALL

SERVE = [sys.executable, "-m", "bot.cli", "serve"]
OPEN = "apps.connections.open"


def slack_part(url: str, **more: Any) -> SlackPart:
    tokens = {"bot_token": SecretStr("xoxb-local"), "app_token": SecretStr("xapp-local")}
    return SlackPart(base_url=url, **tokens | more)


def error(word: str, status: int = 200) -> dict[str, Any]:
    return {"status": status, "headers": {}, "body": {"ok": False, "error": word}}


async def sentence(slack: LocalSlack, **more: Any) -> str:
    """What an operator is told before the program begins to serve."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=1.0)) as session:
        client = AsyncWebClient(token="xoxb-local", base_url=slack.api_url, session=session, retry_handlers=[])
        client.proxy = more.pop("through", None)
        with pytest.raises(BadInput) as refused:
            await preflight(client, slack_part(slack.api_url, **more))
    return str(refused.value)


# -- before the first event


@pytest.mark.process
async def test_a_wrong_app_token_ends_the_program_within_seconds_with_one_sentence(tmp_path: Path) -> None:
    async with LocalSlack() as slack:
        environment = {
            "SLACK_BOT_TOKEN": "xoxb-local",
            "SLACK_APP_TOKEN": "xapp-of-another-app",
            "SLACK_API_BASE_URL": slack.api_url,
            "ANTHROPIC_API_KEY": "sk-ant-x",
            "PILOTHOUSE_DATA": str(tmp_path / "data"),
            "PYTHONPATH": str(Path(__file__).parents[2]),
        }
        began = time.monotonic()
        process = await asyncio.create_subprocess_exec(
            *SERVE, cwd=tmp_path, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        out, err = await asyncio.wait_for(process.communicate(), 40)
        assert process.returncode == 2 and out == b""
        assert time.monotonic() - began < 40
        assert "SLACK_APP_TOKEN is not valid (invalid_auth); it must start with xapp-" in err.decode()
        assert "Traceback" not in err.decode() and len(slack.called(OPEN)) == 1


@pytest.mark.parametrize(
    "word", ["invalid_auth", "not_allowed_token_type", "missing_scope", "token_revoked", "odd_error"]
)
async def test_a_token_is_blamed_for_what_slack_says_of_it(word: str) -> None:
    async with LocalSlack() as slack:
        slack.script(OPEN, [error(word)])
        assert f"SLACK_APP_TOKEN is not valid ({word})" in await sentence(slack)
        slack.script("auth.test", [error(word)])
        assert f"SLACK_BOT_TOKEN is not valid ({word})" in await sentence(slack)


@pytest.mark.parametrize("method", ["auth.test", OPEN])
@pytest.mark.parametrize(
    "response",
    [error("ratelimited", 429), error("fatal_error"), {"status": 502, "body": "<html>"}, "reset", "timeout"],
)
async def test_no_token_is_blamed_for_a_slack_that_fails(method: str, response: Any) -> None:
    async with LocalSlack() as slack:
        slack.script(method, [response])
        said = await sentence(slack)
        assert "TOKEN" not in said and slack.api_url in said


async def test_a_proxy_that_refuses_is_named() -> None:
    async with LocalSlack() as slack:
        proxy = f"http://127.0.0.1:{free_port()}"
        said = await sentence(slack, through=proxy)
        assert said.startswith(f"Slack can't be reached at {slack.api_url} through the proxy {proxy}")


def test_no_proxy_is_honoured_for_every_address_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://proxy.test:3128")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,slack.test,.corp.test")
    addresses = {
        "http://127.0.0.1:9/api/": None,
        "https://slack.test/api/": None,
        "wss://wss-primary.slack.test/link": None,
        "https://files.corp.test/f": None,
        "https://slack.com/api/": "http://proxy.test:3128",
        "wss://wss-primary.slack.com/link": "http://proxy.test:3128",
        "https://notslack.example/": "http://proxy.test:3128",
    }
    assert {address: proxy_for(address, None) for address in addresses} == addresses
    assert proxy_for("https://slack.test/", "http://own.test:1") == "http://own.test:1"


async def test_the_program_talks_to_a_slack_on_this_machine_whatever_the_environments_proxy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,slack.test")
    async with staged(tmp_path) as stage:
        room = stage.room("proxied", say("All well."))
        await room.ask()
        await ended(room, "completed")


@pytest.mark.parametrize(("off_s", "warned"), [(-420.0, True), (90.0, True), (20.0, False)])
async def test_a_clock_that_differs_from_slacks_is_said_at_the_start(off_s: float, warned: bool) -> None:
    date = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() - off_s))
    body = {"ok": True, "user_id": "U0PILOT", "bot_id": "B0PILOT", "team_id": "T0LOCAL"}
    with log_lines() as log:
        async with LocalSlack() as slack:
            slack.script("auth.test", [{"status": 200, "headers": {"Date": date}, "body": body}])
            async with aiohttp.ClientSession() as session:
                client = AsyncWebClient(token="xoxb-local", base_url=slack.api_url, session=session)
                me = await preflight(client, slack_part(slack.api_url))
        assert me.user_id == "U0PILOT"
        lines = [line for line in log.getvalue().splitlines() if "clock_skew" in line]
        assert len(lines) == warned
        assert all("NTP" in line and abs(json.loads(line)["skew_s"] - off_s) < 5 for line in lines)


# -- while it serves


@asynccontextmanager
async def reconnected(stage: Stage) -> AsyncIterator[None]:
    """Do this, and then wait until Slack has greeted a new socket."""
    heard = stage.app.connection.heard
    await stage.ends.slack.until(lambda: heard.hello_at is not None)
    greeted_at = heard.hello_at
    yield
    await stage.ends.slack.until(lambda: heard.hello_at != greeted_at, 20)


async def test_sockets_that_slack_refuses_come_back_slower_and_slower(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        slack = stage.ends.slack
        for refused in range(1, 3):
            before = len(slack.called(OPEN))
            async with reconnected(stage):
                await slack.ws({"type": "disconnect", "reason": "too_many_websockets"})
            assert len(slack.called(OPEN)) == before + 1
            lines = stage.logged("socket_refused")
            assert len(lines) == refused and "app token" in lines[-1]["hint"] and lines[-1]["level"] == "error"
        times = [call.at for call in slack.called(OPEN)][-3:]
        first, second = times[1] - times[0], times[2] - times[1]
        assert first >= 0.75 and second >= 1.5
        room = stage.room("after", say("All well."))
        await room.ask()
        await ended(room, "completed")


async def test_sockets_that_just_close_come_in_no_storm_either(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        slack = stage.ends.slack
        opened = len(slack.called(OPEN))
        for _ in range(3):
            async with reconnected(stage):
                await slack.wire.drop()
        times = [call.at for call in slack.called(OPEN)][opened:]
        assert times[1] - times[0] >= 0.75 and times[2] - times[1] >= 1.5


async def test_the_wait_before_a_connection_grows_only_with_those_that_did_not_last() -> None:
    client = PacedSocketClient(app_token="xapp-1", web_client=AsyncWebClient())
    try:
        assert client.wait_s(100.0) == 0.0
        waits = []
        for reason in ("refresh_requested", "", "", *["too_many_websockets"] * 6):
            client.issued_at, client.reason = 100.0, reason
            waits.append(client.wait_s(101.0))
        assert waits == [0.0, 1.0, 2.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]
        client.reason = "refresh_requested"
        assert client.wait_s(100.0 + 18_000) == 0.0
        client.reason = "link_disabled"
        assert client.wait_s(100.0 + 18_000) == 1.0
    finally:
        await client.close()


async def test_a_refresh_loses_nothing(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        slack = stage.ends.slack
        before = len(slack.called(OPEN))
        async with reconnected(stage):
            await slack.refresh()
        assert len(slack.called(OPEN)) == before + 1
        room = stage.room("refreshed", say("All well."))
        await room.ask()
        await ended(room, "completed")


async def test_the_program_ends_while_it_waits_for_its_socket(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        for _ in range(2):
            await stage.ends.slack.ws({"type": "disconnect", "reason": "link_disabled"})
            await stage.ends.slack.until(lambda: len(stage.logged("socket_refused")) >= 1)
        began = time.monotonic()
    assert time.monotonic() - began < 20


async def test_the_program_ends_while_it_can_not_connect_at_all(tmp_path: Path) -> None:
    async with far_ends(tmp_path) as ends, build(ends.settings, limits=QUICK) as app:
        ends.slack.script(OPEN, [error("fatal_error")] * 100)
        running = asyncio.ensure_future(app.run())
        await ends.slack.until(lambda: len(ends.slack.called(OPEN)) >= 2)
        app.stop()
        await asyncio.wait_for(running, 20)


async def test_ghosts_swallow_a_click_and_every_other_way_to_stop_still_works(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        slack = stage.ends.slack
        room = await stage.busy("ghosts", say("On it."), say("Done."))
        slack.wire.add_ghosts(8)
        async with reconnected(stage):
            await slack.refresh()
        line = stage.logged("strange_connections")[-1]
        assert line["connections"] >= 9 and line["ours"] == 1 and "HTTP mode" in line["hint"]
        health = await healthz(stage)
        assert health["status"] == "warning" and health["parts"]["slack"]["connections"] >= 9
        slack.wire.sockets[:] = [socket for socket in slack.wire.sockets if socket.connection is not None]
        raw = Raw(room)
        await raw.event(raw.message("stop"), attempt=1, reason="timeout")
        await ended(room, "stopped_step")
        await room.reply("go on", ENGINEER)
        await room.until(lambda: len(room.all("turns")) == 2)


async def healthz(stage: Stage) -> Any:
    async with (
        serving(stage.app.web, "127.0.0.1", 0) as port,
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{port}/healthz") as response,
    ):
        return await response.json()


async def test_a_blocked_event_loop_is_told_and_a_stop_is_heard_right_after_it(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        room = await stage.busy("blocked")
        await asyncio.sleep(0.15)
        time.sleep(0.6)  # noqa: ASYNC251 - what a tool must never do
        began = time.monotonic()
        delivery = await Raw(room).event(Raw(room).message("stop", ONCALL))
        assert delivery.acknowledged
        await ended(room, "stopped_step")
        assert time.monotonic() - began < 20
        await room.until(lambda: len(stage.logged("loop_lag")) >= 1)
        assert stage.logged("loop_lag")[0]["lag_ms"] >= 250
