"""Tools of MCP servers, as `server__tool`.

A server is somebody else's program: what it offers is taken once, at the start, and what it answers is data. How far
a tool is trusted is the operator's to say (`tiers`, `default_tier`); the server's own hints can only lower it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, NoReturn

from mcp.shared.exceptions import MCPError
from mcp_types import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    URL_ELICITATION_REQUIRED,
    CallToolResult,
)
from pydantic import ValidationError

from bot.settings_mcp import McpServerPart
from bot.tools.mcp_client import FORGOTTEN
from bot.tools.mcp_connection import Connection, NotConnected, NotTheSame
from bot.tools.mcp_http import NOT_ALLOWED, NOT_REACHED
from bot.tools.mcp_offer import Taken
from bot.tools.mcp_output import output_of, said
from bot.tools.mcp_stdio import DEEPEST, plain
from bot.tools.shaping import cleaned, one_line
from core.errors import OutcomeUnknown, ToolError
from core.ports import Tier, Tool, ToolOutput, ToolSpec

NOT_DONE = frozenset(
    {NOT_REACHED, NOT_ALLOWED, METHOD_NOT_FOUND, INVALID_PARAMS, HEADER_MISMATCH, URL_ELICITATION_REQUIRED}
)
"""Errors that say for certain that the tool did not run. After any other one a change may have happened."""

UNCLEAR = re.compile(
    r"time[sd]?[\s_-]?out|deadline exceeded|gateway|internal[\s_](server[\s_])?error|socket hang up|econnreset"
    r"|connection (was )?(reset|lost|closed|aborted)"
    r"|(http|status|code|error)\W{0,3}50[024]\b|\b50[024]\s+(bad|gateway|internal|server)",
    re.IGNORECASE,
)
"""What servers say when they did not learn themselves how a change ended."""


async def open_tools(
    servers: Mapping[str, McpServerPart], stack: AsyncExitStack, tell: Callable[[str], None]
) -> list[Tool]:
    """Start every server and take its tools. `tell` gets a sentence for each server that is not as configured."""
    connections = [Connection(name, part) for name, part in sorted(servers.items())]

    async def close() -> None:
        await asyncio.gather(*(connection.close() for connection in connections))

    stack.push_async_callback(close)
    await asyncio.gather(*(connection.start() for connection in connections))
    for connection in connections:
        if shortfall := connection.shortfall():
            tell(connection.hiding(shortfall))
    return [McpTool(connection, taken) for connection in connections for taken in connection.offer.tools]


@dataclass(frozen=True, slots=True)
class McpTool:
    """One tool of one server."""

    connection: Connection
    taken: Taken

    @property
    def spec(self) -> ToolSpec:
        return self.taken.spec

    async def health(self) -> str | None:
        """None, or one sentence about the server behind it."""
        trouble = await self.connection.health()
        return self.connection.hiding(trouble) if trouble else None

    async def run(self, arguments: Mapping[str, Any]) -> ToolOutput:
        """Call it once. Raises ToolError when nothing was done, OutcomeUnknown when a change may have been."""
        try:
            return await self._run(arguments)
        except (ToolError, OutcomeUnknown) as error:
            raise type(error)(self.connection.hiding(str(error))) from error

    async def _run(self, arguments: Mapping[str, Any]) -> ToolOutput:
        server = self.connection.name
        try:
            answer = await self.connection.call(self.taken.name, plain(self.taken.arguments(arguments), DEEPEST))
        except NotConnected as error:
            raise ToolError(f"MCP server {server} is not connected ({error}), so nothing was done.") from error
        except NotTheSame as error:
            raise ToolError(f"{self.spec.name} was not called: {error}. A restart takes it anew.") from error
        except MCPError as error:
            why = one_line(cleaned(error.message), 500).rstrip(".")
            if error.code in NOT_DONE or error.message == FORGOTTEN:
                raise ToolError(f"MCP server {server} did not run it: {why}.") from error
            self._unclear(why)
        except ValidationError:
            self._unclear("its answer has an unknown shape")
        if not isinstance(answer, CallToolResult):
            raise ToolError(f"MCP server {server} asks a person for more, which a bot can't give. Nothing was done.")
        if answer.is_error and self.spec.tier is not Tier.READ and UNCLEAR.search(words := said(answer)):
            self._unclear(words)
        return output_of(server, self.taken.name, answer, self.connection.hiding)

    def _unclear(self, why: str) -> NoReturn:
        """The call was sent, and its end is not known."""
        server = self.connection.name
        if self.spec.tier is Tier.READ:
            raise ToolError(f"MCP server {server} gave no usable answer: {why}. Nothing was read.")
        raise OutcomeUnknown(
            f"MCP server {server} got the call, but gave no clear end ({why}). "
            "It may have been done or not: check before anything else."
        )
