"""One connection to one MCP server, for as long as the app runs.

A task of its own keeps it: the SDK wants a connection to be opened and closed by the same task. It takes the list of
tools once, at the start; whatever the server says later about its tools is compared with it and never taken. When a
connection dies it is opened again, after a pause that grows; until then every call is told so.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from typing import Any

import anyio
import structlog
from mcp import Client
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CONNECTION_CLOSED,
    METHOD_NOT_FOUND,
    CallToolRequest,
    CallToolRequestParams,
    Tool,
    ToolListChangedNotification,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from bot.settings_mcp import McpServerPart, secrets_of
from bot.tools import mcp_offer
from bot.tools.mcp_client import ANSWER, FORGOTTEN, Answer, client_of, listed, why
from bot.tools.mcp_offer import Offer
from bot.tools.mcp_stdio import Life

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0
HEALTH_S = 5.0
CLOSE_S = 5.0

log = structlog.get_logger(__name__)


class NotConnected(Exception):
    """There is no connection, so nothing was sent; the text says why."""


class NotTheSame(Exception):
    """The server changed this tool after it was taken, so nothing was sent; the text says how."""


class Connection:
    """`offer` is what was taken at the start, and never changes. `first_pause_s`: before it is opened again."""

    def __init__(self, name: str, part: McpServerPart, first_pause_s: float = FIRST_PAUSE_S) -> None:
        self.name = name
        self.offer = Offer((), ())
        self._part = part
        self._secrets = secrets_of(part)
        self._first_pause_s = first_pause_s
        self._taken = False
        self._names: Sequence[str] = ()
        self._client: Client | None = None
        self._down = "it was not started"
        self._refused: Mapping[str, str] = {}
        self._news: Sequence[str] = ()
        self._bell = asyncio.Event()
        self._look = False
        self._noisy = False
        self._closing = False
        self._scope = anyio.CancelScope()
        self._keeper: asyncio.Task[None] | None = None
        self._started = asyncio.Event()
        self._checking = asyncio.Lock()
        self._calls: set[asyncio.Task[Answer]] = set()

    async def start(self) -> None:
        """Open it, and return when its tools were taken or can't be, at the latest after `start_s`. Never raises."""
        self._keeper = asyncio.create_task(self._keep(), name=f"mcp {self.name}")
        await self._started.wait()

    async def close(self) -> None:
        """Close it, and end the process that is behind it."""
        keeper = self._keeper
        if keeper is None:
            return
        self._closing = True
        self._bell.set()
        if self._client is None:
            self._scope.cancel()
        if not (await asyncio.wait({keeper}, timeout=CLOSE_S))[0]:
            self._scope.cancel()
            await asyncio.wait({keeper}, timeout=CLOSE_S)

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> Answer:
        """One call, sent once. When it is cancelled the server is told, and nobody waits for that.

        Raises NotConnected and NotTheSame when nothing was sent, else MCPError or ValidationError.
        """
        client = self._client
        if client is None:
            raise NotConnected(self._down)
        if changed := self._refused.get(tool):
            raise NotTheSame(changed)
        request = CallToolRequest(params=CallToolRequestParams(name=tool, arguments=dict(arguments)))
        task = asyncio.ensure_future(client.session.send_request(request, ANSWER))
        self._calls.add(task)
        task.add_done_callback(self._forget)
        try:
            await asyncio.wait({task})
        finally:
            task.cancel()
        try:
            return task.result()
        except MCPError as error:
            if error.message == FORGOTTEN:
                self._ended("it has forgotten our session")
            if error.code == CONNECTION_CLOSED and self._client is not client:
                raise MCPError(CONNECTION_CLOSED, self._down) from error
            raise

    def hiding(self, text: str) -> str:
        """`text` without the secrets that the server was given."""
        for secret in self._secrets:
            text = text.replace(secret, "[redacted]")
        return text

    async def health(self) -> str | None:
        """None when the server answers and offers what was taken, else one sentence."""
        async with self._checking:
            client = self._client
            if client is not None:
                try:
                    with anyio.fail_after(HEALTH_S):
                        self._compare(await listed(client))
                except TimeoutError:
                    return f"MCP server {self.name} did not answer within {HEALTH_S:g} s."
                except (MCPError, ValidationError) as error:
                    return f"MCP server {self.name} can't list its tools: {why(error)}."
        return self.trouble()

    def trouble(self) -> str | None:
        """What is wrong now, as one sentence."""
        if self._client is None and not self._taken:
            return f"MCP server {self.name} could not be used: {self._down}. Its tools are not there until a restart."
        if self._client is None:
            return f"MCP server {self.name} is not connected: {self._down}. It is tried again by itself."
        if self._news:
            return f"MCP server {self.name} now {' and '.join(self._news)}: restart to take that."
        return None

    def shortfall(self) -> str | None:
        """What of its tools is not there as configured, as one sentence."""
        if self._taken:
            findings = "; ".join(self.offer.findings)
            return f"MCP server {self.name}: {findings}." if findings else None
        return self.trouble()

    async def _keep(self) -> None:
        try:
            with self._scope:
                await self._open_again_and_again()
        finally:
            self._started.set()

    async def _open_again_and_again(self) -> None:
        pause_s = self._first_pause_s
        while not self._closing:
            lived_s = await self._live(Life(self._ended))
            if self._closing or not self._taken:
                return
            log.warning("mcp_server_gone", server=self.name, why=self._down)
            if lived_s >= LONGEST_PAUSE_S:
                pause_s = self._first_pause_s
            with anyio.move_on_after(pause_s):
                while not self._closing:
                    self._bell.clear()
                    await self._bell.wait()
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)

    async def _live(self, life: Life) -> float:
        """One connection from its beginning to its end; for how many seconds it worked. Never raises."""
        lived_from = math.inf
        try:
            with anyio.move_on_after(self._part.start_s) as opening:
                async with client_of(self._part, life, self._hear) as client:
                    offered = await listed(client)
                    opening.deadline = math.inf
                    self._take(offered)
                    lived_from = asyncio.get_running_loop().time()
                    if not life.ended:
                        self._client = client
                    self._started.set()
                    await self._serve(client)
            if opening.cancelled_caught:
                self._down = f"it did not answer within {self._part.start_s:g} s"
        except Exception as error:  # noqa: BLE001 - the door around a server: whatever ends it, the others go on
            self._down = why(error)
        finally:
            self._client = None
            if life.ended:
                self._down = str(life)
        return max(0.0, asyncio.get_running_loop().time() - lived_from)

    async def _serve(self, client: Client) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._listen, client)
            while self._client is client and not self._closing:
                if self._look:
                    self._look = False
                    with anyio.fail_after(HEALTH_S):
                        self._compare(await listed(client))
                await self._bell.wait()
                self._bell.clear()
            tasks.cancel_scope.cancel()

    async def _listen(self, client: Client) -> None:
        """Newer servers tell of changes only to those who asked."""
        if client.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            return
        pause_s = self._first_pause_s
        while True:
            try:
                async with client.listen(tools_list_changed=True) as events:
                    async for _ in events:
                        self._look_again()
            except (SubscriptionLost, MCPError, TimeoutError) as error:
                log.info("mcp_subscription_lost", server=self.name, why=why(error))
                if isinstance(error, MCPError) and error.code == METHOD_NOT_FOUND:
                    return
            await anyio.sleep(pause_s)
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
            self._look_again()

    async def _hear(self, message: object) -> None:
        if isinstance(message, ToolListChangedNotification):
            self._look_again()
        elif isinstance(message, Exception) and not self._noisy:
            self._noisy = True
            log.info("mcp_message_unreadable", server=self.name, why=why(message))

    def _look_again(self) -> None:
        self._look = True
        self._bell.set()

    def _ended(self, reason: str) -> None:
        self._client, self._down = None, reason
        self._bell.set()

    def _take(self, offered: Sequence[Tool]) -> None:
        if self._taken:
            self._compare(offered)
            return
        self.offer = mcp_offer.take(self.name, self._part, offered)
        self._names = [one.name for one in offered]
        self._taken = True

    def _compare(self, offered: Sequence[Tool]) -> None:
        refused, phrases = mcp_offer.differences(self.offer.tools, offered)
        news = [*phrases, *mcp_offer.added(self._names, offered, self._part.allow)]
        if news != self._news and news:
            log.warning("mcp_tools_changed", server=self.name, now=news)
        self._refused, self._news = refused, news

    def _forget(self, task: asyncio.Task[Answer]) -> None:
        self._calls.discard(task)
        if not task.cancelled():
            task.exception()
