"""The SDK's client for one server, as the configuration wants it, and what its answers and errors are for us."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager

from mcp import Client
from mcp.client._transport import TransportStreams
from mcp.client.session import MessageHandlerFnT
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, Implementation, InputRequiredResult, Tool
from pydantic import TypeAdapter, ValidationError

from bot.settings_mcp import McpServerPart
from bot.tools import mcp_http
from bot.tools.mcp_stdio import LONGEST_MESSAGE, Life, stdio
from bot.tools.shaping import cleaned, one_line

MOST_PAGES = 50
MOST_OFFERED = 2_000
SILENCE_S = 60.0

Answer = CallToolResult | InputRequiredResult
ANSWER: TypeAdapter[Answer] = TypeAdapter(Answer)

FORGOTTEN = "Session terminated"
"""What the SDK makes of a 404 for a session: the server was started anew, and did not look at the request."""


def client_of(part: McpServerPart, life: Life, hear: MessageHandlerFnT) -> Client:
    """A client that is not connected yet. `hear` gets what the server says by itself, and what can't be read."""
    about = Implementation(name="pilothouse", version="0")
    return Client(_streams(part, life), message_handler=hear, cache=None, client_info=about)


def _streams(part: McpServerPart, life: Life) -> AbstractAsyncContextManager[TransportStreams]:
    if part.command:
        env = {name: value.get_secret_value() for name, value in part.env.items()}
        return stdio([part.command, *part.args], env, life)
    headers = {name: value.get_secret_value() for name, value in part.headers.items()}
    return _http(part.url, headers, part.timeout_s + SILENCE_S)


@asynccontextmanager
async def _http(url: str, headers: Mapping[str, str], read_s: float) -> AsyncIterator[TransportStreams]:
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(mcp_http.Client(headers, read_s))
        yield await stack.enter_async_context(
            streamable_http_client(url, http_client=http, max_sse_event_size=LONGEST_MESSAGE)
        )


async def listed(client: Client) -> list[Tool]:
    """All tools of a server."""
    found: list[Tool] = []
    cursor: str | None = None
    for _ in range(MOST_PAGES):
        page = await client.list_tools(cursor=cursor)
        found += page.tools
        cursor = page.next_cursor
        if not cursor or len(found) >= MOST_OFFERED:
            break
    return found[:MOST_OFFERED]


def why(error: BaseException) -> str:
    """An error in a few words; of several at once the first."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, FileNotFoundError):
        return f"there is no command {error.filename}"
    if isinstance(error, ValidationError):
        return f"its answer has an unknown shape ({error.error_count()} faults in {error.title})"
    return one_line(cleaned(str(error)), 200).rstrip(".") or type(error).__name__
