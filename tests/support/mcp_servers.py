"""MCP servers for tests: real processes, and tools that talk to them."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import aiohttp

from bot.settings_mcp import McpServerPart
from bot.tools.mcp import McpTool
from bot.tools.mcp_connection import Connection
from core.gateway import CallResult, Gateway
from core.limits import Limits
from core.ports import Tool
from tests.support.processes import end, free_port, spawn, until

SUPPORT = Path(__file__).parent
SOON_S = 0.02
"""The pause before a dead server is started again, in tests."""


def sdk_server(folder: Path, **given: Any) -> McpServerPart:
    """The server of `mcp_server.py`, made with the SDK, over stdio."""
    return McpServerPart(command=sys.executable, args=(str(SUPPORT / "mcp_server.py"), str(folder)), **given)


def raw_server(folder: Path, mode: str = "", **given: Any) -> McpServerPart:
    """The server of `mcp_raw_server.py`."""
    return McpServerPart(
        command=sys.executable, args=(str(SUPPORT / "mcp_raw_server.py"), str(folder), mode), **given
    )


def offers(folder: Path, *tools: Mapping[str, Any]) -> None:
    """What our servers offer from now on; a schema that is left out takes anything."""
    described = [{"inputSchema": {"type": "object"}, **tool} for tool in tools]
    (folder / "tools.json").write_text(json.dumps(described), encoding="utf-8")


def calls(folder: Path) -> Sequence[str]:
    """What our servers were called for."""
    file = folder / "calls"
    return file.read_text(encoding="utf-8").splitlines() if file.exists() else []


@asynccontextmanager
async def connected(part: McpServerPart, name: str = "own") -> AsyncIterator[Connection]:
    """A started connection, closed at the end."""
    connection = Connection(name, part, SOON_S)
    await connection.start()
    try:
        yield connection
    finally:
        await connection.close()


def tool_of(connection: Connection, name: str) -> McpTool:
    """A tool by the name that its server has for it."""
    return next(McpTool(connection, taken) for taken in connection.offer.tools if taken.name == name)


async def through_gateway(tool: Tool, arguments: Mapping[str, Any] | None = None) -> CallResult:
    """What becomes of one call at the one door."""
    gateway = Gateway([tool], Limits(), time.monotonic)
    block = {"name": tool.spec.name, "id": "toolu_1", "input": arguments or {}}
    return await gateway.run(gateway.admit(0, block, broken=False))


@contextmanager
def http_server(folder: Path, port: int | None = None) -> Iterator[str]:
    """The SDK's server over streamable HTTP; its address."""
    chosen = port or free_port()
    process = spawn([sys.executable, str(SUPPORT / "mcp_server.py"), str(folder), str(chosen)], folder / "log")
    try:
        yield f"http://127.0.0.1:{chosen}/mcp"
    finally:
        end(process, signal.SIGKILL)


async def answers(url: str) -> None:
    """Wait until somebody answers there, whatever it is."""

    async def up() -> bool:
        try:
            async with aiohttp.ClientSession() as session, session.get(url):
                return True
        except aiohttp.ClientError:
            return False

    await until(up)
