"""A change is sent once; it either certainly did not happen, or is said to be unknown."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Literal

import aiohttp
import pytest

from bot.tools.changing import WriteTool, send
from bot.tools.reading import FarEnd
from bot.tools.shaping import Arguments, object_schema, text_argument
from core.errors import OutcomeUnknown, ToolError
from core.gateway import CallStatus, Gateway
from core.limits import Limits
from core.ports import ChangeTool, Tier, ToolOutput, ToolSpec
from tests.core.doubles import call
from tests.support.processes import free_port

Method = Literal["POST", "PUT", "PATCH", "DELETE"]


@asynccontextmanager
async def answering(respond: Callable[[int], bytes]) -> AsyncIterator[tuple[FarEnd, list[bytes]]]:
    """A far end that hangs up after each answer, and the requests that it got; `respond` gets how many."""
    got: list[bytes] = []

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        got.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(respond(len(got)))
        writer.close()

    server = await asyncio.start_server(one, "127.0.0.1", 0)
    async with server, aiohttp.ClientSession() as session:
        port = server.sockets[0].getsockname()[1]
        yield FarEnd("Shop", f"http://127.0.0.1:{port}", session, {}), got


def said(status: str, body: bytes = b"{}", kind: str = "application/json", length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {size}\r\nConnection: close\r\n\r\n"
    return head.encode() + body


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_a_change_whose_connection_breaks_is_unknown_and_not_sent_again(method: Method) -> None:
    async with answering(lambda count: b"" if count == 1 else said("200 OK")) as (far_end, got):
        with pytest.raises(OutcomeUnknown, match=r"^Shop got the request, but not a clear end .* check first\.$"):
            await send(far_end, method, "/things/1")
    assert len(got) == 1


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (said("504 Gateway Timeout", b"<html>", "text/html"), "Shop answered 504: an HTML page"),
        (said("500 Internal Server Error", b'"not now"'), "Shop answered 500: not now"),
        (said("200 OK", b"half", length=100), "done or not"),
    ],
)
async def test_an_answer_that_may_come_from_half_way_is_unknown(answer: bytes, words: str) -> None:
    async with answering(lambda count: answer) as (far_end, got):
        with pytest.raises(OutcomeUnknown) as unclear:
            await send(far_end, "POST", "/things", {"name": "x"})
    assert words in str(unclear.value)
    assert len(got) == 1


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (said("400 Bad Request", b'{"message": "no such thing"}'), "Shop answered 400: no such thing"),
        (said("403 Forbidden", b""), "Shop answered 403 without saying why"),
        (said("307 Temporary Redirect", b""), "Shop answered 307, a redirect"),
    ],
)
async def test_what_the_far_end_refuses_has_not_happened(answer: bytes, words: str) -> None:
    async with answering(lambda count: answer) as (far_end, got):
        with pytest.raises(ToolError) as refused:
            await send(far_end, "POST", "/things", {"name": "x"})
    assert words in str(refused.value)
    assert len(got) == 1


async def test_without_a_connection_nothing_has_happened() -> None:
    async with aiohttp.ClientSession() as session:
        with pytest.raises(ToolError, match="could not be reached"):
            await send(FarEnd("Shop", f"http://127.0.0.1:{free_port()}", session, {}), "POST", "/things")


def renaming(change: Exception | None = None) -> WriteTool:
    """A tool that renames; it raises `change` if that is given."""

    async def rename(arguments: Arguments) -> ToolOutput:
        if change is not None:
            raise change
        return ToolOutput(f"renamed to {arguments['name']}")

    async def show(arguments: Arguments) -> str:
        if arguments["name"] == "old":
            raise ToolError("It has that name already.")
        return f"old\0 -> {arguments['name']}" + "!" * 30_000

    async def check() -> None:
        return None

    spec = ToolSpec("rename", "Rename it", object_schema(["name"], name=text_argument("Name", 20)), Tier.WRITE)
    return WriteTool(spec, rename, check, show)


async def test_a_preview_holds_to_the_schema_and_is_clean_and_short() -> None:
    tool = renaming()
    assert isinstance(tool, ChangeTool)
    shown = await tool.preview({"name": "new"})
    assert shown.startswith("old\ufffd -> new!") and len(shown) == 20_000 and "cut here" in shown
    with pytest.raises(ToolError, match="rename: argument name"):
        await tool.preview({"name": ""})
    with pytest.raises(ToolError, match="that name already"):
        await tool.preview({"name": "old"})


async def test_the_gateway_says_of_an_unclear_end_what_the_tool_said() -> None:
    gateway = Gateway([renaming(OutcomeUnknown("Shop got it; look at the list first."))], Limits(), lambda: 0.0)
    found = await gateway.run(call("rename", Tier.WRITE, arguments={"name": "new"}))
    assert (found.status, found.text) == (CallStatus.UNKNOWN, "Shop got it; look at the list first.")
