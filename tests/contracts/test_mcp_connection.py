"""Connections to MCP servers: what is taken at the start stays, and whatever a server does the bot goes on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from pydantic import SecretStr

from bot.settings_mcp import McpServerPart
from bot.tools import mcp
from bot.tools.mcp_connection import Connection
from core.errors import OutcomeUnknown, ToolError
from core.gateway import CallStatus
from core.ports import Tier
from tests.support.mcp_servers import (
    answers,
    calls,
    connected,
    http_server,
    offers,
    raw_server,
    sdk_server,
    through_gateway,
    tool_of,
)
from tests.support.processes import free_port, until

SAY = {"name": "say", "description": "Says it."}
ODD = {"name": "say", "inputSchema": {"type": "object", "properties": {"loud": {"type": "boolean"}}}}
ALL = (SAY, {"name": "change"}, {"name": "die"}, {"name": "hang"})
READS = {"default_tier": Tier.READ}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    offers(tmp_path, *ALL)
    return tmp_path


def there(pid: int) -> bool:
    """Whether the machine still keeps a process, be it as a zombie."""
    return Path(f"/proc/{pid}").exists()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """One HTTP server for several tests, and its folder."""
    folder = tmp_path_factory.mktemp("shared")
    offers(folder, *ALL)
    with http_server(folder) as url:
        yield folder, url


@pytest.fixture
async def http(shared: tuple[Path, str]) -> tuple[Path, str]:
    folder, url = shared
    offers(folder, *ALL)
    (folder / "calls").unlink(missing_ok=True)
    await answers(url)
    return folder, url


def alive(pid: int) -> bool:
    """Whether a process runs; one that ended and that nobody asked for its end does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except FileNotFoundError:
        return False


async def test_a_call_goes_to_the_server_and_its_answer_comes_back_as_data(folder: Path) -> None:
    async with connected(sdk_server(folder)) as server:
        assert server.trouble() is None and await server.health() is None
        result = await through_gateway(tool_of(server, "say"), {"words": "half a \ud83d"})
    assert result.status is CallStatus.OK
    assert result.text.startswith('say {"words": "half a \\ufffd"} ')


async def test_over_http_it_is_the_same(http: tuple[Path, str]) -> None:
    async with connected(McpServerPart(url=http[1])) as server:
        assert server.trouble() is None and await server.health() is None
        assert (await through_gateway(tool_of(server, "say"))).status is CallStatus.OK


async def test_a_change_of_the_tools_is_told_and_not_taken(folder: Path) -> None:
    async with connected(sdk_server(folder, **READS)) as server:
        offers(folder, ODD, {"name": "change", "description": "now with words"}, {"name": "new"})
        assert (await through_gateway(tool_of(server, "change"))).status is CallStatus.OK
        await until(lambda: server.trouble() is not None)
        told = await server.health()
        refused = await through_gateway(tool_of(server, "say"))
        still = await through_gateway(tool_of(server, "change"))
        assert [taken.name for taken in server.offer.tools] == ["change", "die", "hang", "say"]
        assert tool_of(server, "change").spec.description == "(from MCP server own) no description"
    assert told == (
        "MCP server own now no longer offers die, hang and offers say in another shape and "
        "describes change, say in other words and offers new as well: restart to take that."
    )
    assert refused.status is CallStatus.ERROR
    assert refused.text == (
        "own__say was not called: the server has changed what it takes or does since it was taken. "
        "A restart takes it anew."
    )
    assert still.status is CallStatus.OK
    assert calls(folder) == ["change", "change"]


async def test_a_change_that_an_older_server_tells_of_is_seen_too(folder: Path) -> None:
    async with connected(raw_server(folder)) as server:
        offers(folder, ODD, {"name": "change"})
        await tool_of(server, "change").run({})
        await until(lambda: "offers say in another shape" in str(server.trouble()))
        with pytest.raises(ToolError, match="has changed what it takes"):
            await tool_of(server, "say").run({})


async def test_a_change_that_nobody_tells_of_is_found_by_the_health_check(http: tuple[Path, str]) -> None:
    folder, url = http
    async with connected(McpServerPart(url=url)) as server:
        offers(folder, ODD)
        assert "offers say in another shape" in str(await server.health())
        with pytest.raises(ToolError, match="does not offer it any more"):
            await tool_of(server, "die").run({})
    assert calls(folder) == []


async def test_a_server_that_dies_in_a_write_leaves_it_unknown_and_the_call_is_not_repeated(folder: Path) -> None:
    async with connected(raw_server(folder)) as server:
        died = await through_gateway(tool_of(server, "die"))
        gone = await through_gateway(tool_of(server, "say"))
        health = await server.health()
        await until(lambda: server.trouble() is None)
        back = await through_gateway(tool_of(server, "say"))
    assert died.status is CallStatus.UNKNOWN
    assert died.text.startswith("MCP server own got the call, but gave no clear end (it ended")
    assert died.text.endswith("It may have been done or not: check before anything else.")
    assert gone.status is CallStatus.ERROR
    assert gone.text.startswith("MCP server own is not connected (it ended") and gone.text.endswith(
        "nothing was done."
    )
    assert str(health).startswith("MCP server own is not connected: it ended")
    assert back.status is CallStatus.OK
    assert calls(folder) == ["die", "say"]


async def test_a_server_that_dies_in_a_read_leaves_an_error_with_its_last_words(folder: Path) -> None:
    async with connected(raw_server(folder, **READS)) as server:
        died = await through_gateway(tool_of(server, "die"))
        await until(lambda: server.trouble() is None or "a bolt came loose" in str(server.trouble()))
    assert died.status is CallStatus.ERROR and died.text.endswith("Nothing was read.")


async def test_what_a_server_offers_after_its_death_is_compared_with_what_was_taken(folder: Path) -> None:
    async with connected(raw_server(folder)) as server:
        offers(folder, ODD)
        with pytest.raises(OutcomeUnknown):
            await tool_of(server, "die").run({})
        await until(lambda: "restart to take that" in str(server.trouble()))
        with pytest.raises(ToolError, match="was not called"):
            await tool_of(server, "say").run({})


async def test_cancelling_a_call_tells_the_server_and_waits_for_nobody(folder: Path) -> None:
    async with connected(raw_server(folder)) as server:
        running = asyncio.create_task(tool_of(server, "hang").run({}))
        await until(lambda: calls(folder) == ["hang"])
        running.cancel()
        for _ in range(5):
            await asyncio.sleep(0)
        assert running.cancelled()
        await until(lambda: calls(folder) == ["hang", "hang was cancelled"])
        assert (await through_gateway(tool_of(server, "say"))).status is CallStatus.OK


async def test_over_http_a_cancelled_call_reaches_the_server_as_well(http: tuple[Path, str]) -> None:
    folder, url = http
    async with connected(McpServerPart(url=url)) as server:
        running = asyncio.create_task(tool_of(server, "hang").run({}))
        await until(lambda: calls(folder) == ["hang"])
        running.cancel()
        await until(lambda: calls(folder) == ["hang", "hang was cancelled"])


async def test_a_write_that_hangs_is_unknown_at_its_limit_and_a_read_timed_out(folder: Path) -> None:
    async with connected(raw_server(folder, timeout_s=0.05)) as server:
        write = await through_gateway(tool_of(server, "hang"))
    async with connected(raw_server(folder, timeout_s=0.05, **READS)) as server:
        read = await through_gateway(tool_of(server, "hang"))
    assert (write.status, read.status) == (CallStatus.UNKNOWN, CallStatus.TIMEOUT)


async def test_an_http_server_that_dies_leaves_one_write_unknown_and_the_next_ones_not_done(folder: Path) -> None:
    port = free_port()
    async with AsyncExitStack() as stack:
        with http_server(folder, port) as url:
            await answers(url)
            server = await stack.enter_async_context(connected(McpServerPart(url=url)))
            died = await through_gateway(tool_of(server, "die"))
        gone = await through_gateway(tool_of(server, "say"))
        health = await server.health()
        with http_server(folder, port) as url:
            await answers(url)
            await until(lambda: says(server))
    assert died.status is CallStatus.UNKNOWN
    assert gone.status is CallStatus.ERROR
    assert "did not run it: it could not be reached" in gone.text
    assert "can't list its tools: it could not be reached" in str(health)


async def says(server: Connection) -> bool:
    return (await through_gateway(tool_of(server, "say"))).status is CallStatus.OK


async def test_servers_that_cannot_be_used_keep_nobody_from_starting(folder: Path, tmp_path: Path) -> None:
    dead = f"http://127.0.0.1:{free_port()}/mcp"
    servers = {
        "good": raw_server(folder),
        "missing": McpServerPart(command="/nowhere/server"),
        "mute": raw_server(tmp_path, "mute", start_s=0.5),
        "dies": McpServerPart(command="sh", args=("-c", "echo no licence >&2; exit 3")),
        "dead": McpServerPart(url=dead),
    }
    told: list[str] = []
    async with AsyncExitStack() as stack:
        tools = await mcp.open_tools(servers, stack, told.append)
    assert {tool.spec.name.partition("__")[0] for tool in tools} == {"good"}
    assert [line.partition(" could")[0] for line in told] == [
        f"MCP server {name}" for name in ("dead", "dies", "missing", "mute")
    ]
    dead_line, dies, missing, mute = told
    assert "could not be reached" in dead_line
    assert dies == (
        "MCP server dies could not be used: it ended; its last words: no licence. Its tools are not there until a "
        "restart."
    )
    assert "there is no command /nowhere/server" in missing
    assert "it did not answer within 0.5 s" in mute


async def test_a_server_gets_what_is_configured_and_no_more_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLACK_BOT_TOKEN", "xoxb-secret")
    part = McpServerPart(
        command="sh", args=("-c", f"env > {tmp_path}/env; exit 1"), env={"API_KEY": SecretStr("its own")}
    )
    async with connected(part):
        pass
    names = {line.partition("=")[0] for line in (tmp_path / "env").read_text().splitlines()}
    assert names - {"_", "PWD", "OLDPWD", "SHLVL"} == {"PATH", "HOME", "API_KEY"}
    assert "its own" not in repr(part)


async def test_what_a_server_was_given_in_secret_is_never_shown(folder: Path) -> None:
    words = "its key is k-0123456789 in eu-west-1"
    (folder / "result").write_text(json.dumps({"content": [{"type": "text", "text": words}], "isError": True}))
    env = {"API_KEY": SecretStr("k-0123456789"), "REGION": SecretStr("eu-west-1")}
    async with connected(raw_server(folder, env=env)) as server:
        error = await tool_of(server, "say").run({})
        (folder / "result").write_text('error: {"code": -32602, "message": "bad key k-0123456789"}')
        with pytest.raises(ToolError, match=r"bad key \[redacted\]"):
            await tool_of(server, "say").run({})
    assert error.text == "its key is [redacted] in eu-west-1"


async def test_a_stubborn_server_and_its_children_go_with_the_app(tmp_path: Path) -> None:
    offers(tmp_path, SAY)
    async with connected(raw_server(tmp_path, "stubborn")) as server:
        assert server.trouble() is None
        pids = [int((tmp_path / name).read_text()) for name in ("pid", "child")]
        assert all(alive(pid) for pid in pids)
    await until(lambda: not any(alive(pid) for pid in pids))
    assert not there(pids[0])


async def test_closing_while_a_server_hangs_at_its_start_ends_it(tmp_path: Path) -> None:
    server = Connection("own", raw_server(tmp_path, "mute", start_s=25))
    starting = asyncio.create_task(server.start())
    await until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    pid = int((tmp_path / "pid").read_text())
    assert alive(pid)
    await server.close()
    await starting
    await until(lambda: not alive(pid))


async def test_many_calls_at_once_share_the_connection(folder: Path) -> None:
    async with connected(sdk_server(folder, **READS)) as server:
        hanging = asyncio.create_task(tool_of(server, "hang").run({}))
        answered = await asyncio.gather(*(tool_of(server, "say").run({"n": n}) for n in range(50)))
        hanging.cancel()
    assert all(f'"n": {n}}}' in output.text for n, output in enumerate(answered))
