"""A real MCP server from npm that uses every feature of the protocol, over stdio and over streamable HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr

from bot.settings_mcp import McpServerPart
from bot.tools.mcp_connection import Connection
from core.gateway import CallStatus
from core.ports import Tier
from tests.support.mcp_servers import answers, connected, through_gateway, tool_of
from tests.support.processes import end, free_port, spawn

HOUSE = Path(__file__).parents[2]
PACKAGE = "node_modules/@modelcontextprotocol/server-everything/dist/index.js"
SCRIPT = HOUSE / ".venv" / "npm" / PACKAGE


@pytest.fixture(scope="module")
def node() -> str:
    """Where Node.js is, with the server installed beside it."""
    found = shutil.which("node")
    if found is None or not SCRIPT.exists():
        why = "npm, or what it installs from tests/support/npm, is not here: run `make test`"
        pytest.fail(why) if os.environ.get("CI") else pytest.skip(why)
    return found


@pytest.fixture(scope="module")
def url(node: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The server over HTTP."""
    port = free_port()
    log = tmp_path_factory.mktemp("everything") / "log"
    process = spawn([node, str(SCRIPT), "streamableHttp"], log, env={**os.environ, "PORT": str(port)})
    yield f"http://127.0.0.1:{port}/mcp"
    end(process)


@pytest.fixture(params=["stdio", "http"])
async def everything(request: pytest.FixtureRequest, node: str) -> AsyncIterator[Connection]:
    reads = {"default_tier": Tier.READ}
    if request.param == "stdio":
        part = McpServerPart(command=node, args=(str(SCRIPT), "stdio"), **reads)
    else:
        part = McpServerPart(url=request.getfixturevalue("url"), **reads)
        await answers(part.url)
    async with connected(part, "everything") as connection:
        yield connection


async def test_its_tools_are_there_and_answer(everything: Connection) -> None:
    assert everything.shortfall() is None and await everything.health() is None
    echo = await through_gateway(tool_of(everything, "echo"), {"message": "hello <!channel>"})
    total = await through_gateway(tool_of(everything, "get-sum"), {"a": 2, "b": 40})
    assert echo.text == "Echo: hello <!channel>"
    assert "42" in total.text
    assert {taken.spec.name for taken in everything.offer.tools} >= {"everything__echo", "everything__get-tiny-image"}


async def test_arguments_are_checked_before_the_server_sees_them(everything: Connection) -> None:
    refused = await through_gateway(tool_of(everything, "get-sum"), {"a": "two", "b": 40})
    assert refused.status is CallStatus.REFUSED and "'two' is not of type 'number'" in refused.text


async def test_its_picture_is_a_picture_for_people(everything: Connection) -> None:
    (picture,) = (await tool_of(everything, "get-tiny-image").run({})).pictures
    assert picture.title == "get-tiny-image from everything"
    assert picture.png.startswith(b"\x89PNG")


async def test_structured_content_links_and_resources_are_text(everything: Connection) -> None:
    weather = await tool_of(everything, "get-structured-content").run({"location": "Chicago"})
    links = await tool_of(everything, "get-resource-links").run({"count": 2})
    resource = await tool_of(everything, "get-resource-reference").run({"resourceType": "Text", "resourceId": 1})
    blob = await tool_of(everything, "get-resource-reference").run({"resourceType": "Blob", "resourceId": 1})
    assert set(json.loads(weather.text)) == {"temperature", "conditions", "humidity"}
    assert links.text.count("[resource: ") == 2 and links.links == []
    assert "[resource demo://resource/dynamic/text/1]\nResource 1: " in resource.text
    assert "[resource demo://resource/dynamic/blob/1: text/plain, 0 kB, not kept]" in blob.text


async def test_a_long_operation_is_left_at_once_and_the_connection_goes_on(everything: Connection) -> None:
    long = tool_of(everything, "trigger-long-running-operation")
    running = asyncio.create_task(long.run({"duration": 60, "steps": 600}))
    await tool_of(everything, "echo").run({"message": "meanwhile"})
    running.cancel()
    for _ in range(5):
        await asyncio.sleep(0)
    assert running.cancelled()
    assert (await through_gateway(tool_of(everything, "echo"), {"message": "on"})).status is CallStatus.OK


async def test_it_sees_no_secret_of_ours(node: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-secret")
    part = McpServerPart(command=node, args=(str(SCRIPT), "stdio"), env={"SHOWN": SecretStr("yes")})
    async with connected(part) as connection:
        told = (await tool_of(connection, "get-env").run({})).text
    assert set(json.loads(told)) == {"PATH", "HOME", "SHOWN"}
