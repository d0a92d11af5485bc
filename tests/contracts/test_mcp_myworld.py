"""A real MCP server from PyPI with the faults of real services, over stdio and HTTP: nothing is done twice by us."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from pydantic import SecretStr

from bot.settings_mcp import McpServerPart
from bot.tools.mcp_connection import Connection
from core.gateway import CallResult, CallStatus
from core.ports import Tier
from tests.support.mcp_servers import answers, connected, through_gateway, tool_of
from tests.support.processes import end, free_port, spawn

MYWORLD = str(Path(sys.executable).parent / "myworld")
POST, HISTORY, CHANNELS = "slack_post_message", "slack_get_channel_history", "slack_list_channels"
READS = {CHANNELS: Tier.READ, HISTORY: Tier.READ}
WORDS = "rolled back to 1.18.3"
TOKEN = "let-me-in"

Fault = Mapping[str, Any]
Start = Callable[..., AbstractAsyncContextManager[Connection]]


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a myworld host, which wants a token."""
    port = free_port()
    log = tmp_path_factory.mktemp("myworld") / "log"
    process = spawn([MYWORLD, "serve", "--port", str(port), "--token", TOKEN, "--log-level", "warning"], log)
    yield f"http://127.0.0.1:{port}"
    end(process)


@pytest.fixture(params=["stdio", "http"])
def start(request: pytest.FixtureRequest, tmp_path: Path) -> Start:
    """Starts a Slack of its own with these faults, over one of the transports."""
    if request.param == "http":
        host = request.getfixturevalue("host")
        return lambda *faults, **given: over_http(host, faults, given)
    return lambda *faults, **given: over_stdio(tmp_path, faults, given)


def over_stdio(
    folder: Path, faults: Sequence[Fault], given: Mapping[str, Any]
) -> AbstractAsyncContextManager[Connection]:
    (folder / "faults.json").write_text(json.dumps(faults))
    command = ("stdio", "slack", "--faults", str(folder / "faults.json"))
    return connected(McpServerPart(command=MYWORLD, args=command, tiers=READS, **given), "slack")


@asynccontextmanager
async def over_http(host: str, faults: Sequence[Fault], given: Mapping[str, Any]) -> AsyncIterator[Connection]:
    await answers(f"{host}/healthz")
    door = {"Authorization": f"Bearer {TOKEN}"}
    async with aiohttp.ClientSession(headers=door) as session:
        body = {"service": "slack", "faults": list(faults)}
        async with session.post(f"{host}/instances", json=body) as made:
            url = (await made.json())["mcp_url"]
    secret = {name: SecretStr(value) for name, value in door.items()}
    async with connected(McpServerPart(url=url, headers=secret, tiers=READS, **given), "slack") as connection:
        yield connection


async def post(slack: Connection) -> CallResult:
    return await through_gateway(tool_of(slack, POST), {"channel_id": await channel(slack), "text": WORDS})


async def posted(slack: Connection) -> int:
    """How often our words stand in the channel."""
    read = await through_gateway(tool_of(slack, HISTORY), {"channel_id": await channel(slack)})
    return read.text.count(WORDS)


async def channel(slack: Connection) -> str:
    read = await through_gateway(tool_of(slack, CHANNELS))
    found = re.search(r'"id": "(C\w+)"', read.text)
    assert found, read.text
    return found[1]


async def test_reads_are_what_was_configured_and_posting_leaves_the_company(start: Start) -> None:
    async with start() as slack:
        assert slack.shortfall() is None and await slack.health() is None
        tiers = {taken.name: taken.spec.tier for taken in slack.offer.tools}
        assert (await post(slack)).status is CallStatus.OK
        assert await posted(slack) == 1
    assert (tiers[CHANNELS], tiers["slack_get_users"], tiers[POST]) == (Tier.READ, Tier.WRITE, Tier.EXTERNAL)


async def test_a_time_out_after_the_deed_is_unknown_and_the_deed_is_done_once(start: Start) -> None:
    async with start({"tool": POST, "kind": "timeout_after_commit", "on_call": 1}) as slack:
        result = await post(slack)
        assert await posted(slack) == 1
    assert result.status is CallStatus.UNKNOWN
    assert "request_timeout" in result.text and "It may have been done or not" in result.text


async def test_a_connection_that_fails_in_a_write_is_unknown_and_in_a_read_an_error(start: Start) -> None:
    fails = {"kind": "transport_error", "on_call": 1}
    async with start({"tool": POST, **fails}, {"tool": HISTORY, **fails}) as slack:
        write = await post(slack)
        read = await through_gateway(tool_of(slack, HISTORY), {"channel_id": await channel(slack)})
        assert (await post(slack)).status is CallStatus.OK
    assert (write.status, read.status) == (CallStatus.UNKNOWN, CallStatus.ERROR)


async def test_a_flaky_read_is_an_error_with_the_servers_words_and_works_the_next_time(start: Start) -> None:
    async with start({"tool": CHANNELS, "kind": "unavailable", "on_call": 1}) as slack:
        first = await through_gateway(tool_of(slack, CHANNELS))
        second = await through_gateway(tool_of(slack, CHANNELS))
    assert (first.status, second.status) == (CallStatus.ERROR, CallStatus.OK)
    assert "service_unavailable" in first.text


async def test_a_refusal_of_a_write_is_an_error_that_the_model_can_act_on(start: Start) -> None:
    async with start({"tool": POST, "kind": "rate_limit", "on_call": 1}) as slack:
        result = await post(slack)
        assert await posted(slack) == 0
    assert result.status is CallStatus.ERROR and "ratelimited" in result.text


async def test_a_truncated_answer_comes_back_as_far_as_it_goes(start: Start) -> None:
    async with start({"tool": HISTORY, "kind": "truncated", "on_call": 1}) as slack:
        whole = {"channel_id": await channel(slack)}
        cut = await through_gateway(tool_of(slack, HISTORY), whole)
        uncut = await through_gateway(tool_of(slack, HISTORY), whole)
    assert cut.status is CallStatus.OK
    assert len(cut.text) < len(uncut.text) and uncut.text.startswith(cut.text.rstrip("…\n ")[:80])


async def test_a_delivery_that_somebody_doubles_is_one_call_of_ours(start: Start) -> None:
    async with start({"tool": POST, "kind": "duplicate_commit", "on_call": 1}) as slack:
        assert (await post(slack)).status is CallStatus.OK
        assert await posted(slack) == 2


async def test_a_slow_write_is_unknown_at_its_limit_and_a_slow_read_timed_out(host: str) -> None:
    slow = {"kind": "latency", "hang_s": 1.5, "on_call": 1}
    faults = ({"tool": POST, **slow}, {"tool": "slack_get_users", **slow})
    for tier, status in ((Tier.WRITE, CallStatus.UNKNOWN), (Tier.READ, CallStatus.TIMEOUT)):
        async with over_http(host, faults, {"timeout_s": 0.2, "default_tier": tier}) as slack:
            assert (await through_gateway(tool_of(slack, "slack_get_users"))).status is status


async def test_a_wrong_token_is_told_with_what_to_look_at(host: str) -> None:
    await answers(f"{host}/healthz")
    part = McpServerPart(url=f"{host}/instances/x/mcp", headers={"Authorization": SecretStr("Bearer wrong")})
    async with connected(part, "slack") as slack:
        assert "are the headers of its configuration right?" in str(slack.shortfall())
