"""MCP over HTTP, where proxies, doors and broken lines stand between: each call learns truly what became of it."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from pydantic import SecretStr

from bot.settings_mcp import McpServerPart
from core.gateway import CallStatus
from core.ports import Tier
from tests.support.mcp_servers import connected, through_gateway, tool_of
from tests.support.processes import until

Answer = Callable[[web.Request, Any], Awaitable[web.StreamResponse]]


class Far:
    """A server whose answer to a call is the test's to choose; everything else works."""

    def __init__(self) -> None:
        self.call: Answer = done
        self.calls = 0
        self.headers: list[str | None] = []

    async def serve(self, request: web.Request) -> web.StreamResponse:
        self.headers.append(request.headers.get("X-Key"))
        if request.method != "POST":
            return web.Response(status=405)
        message = await request.json()
        if "id" not in message:
            return web.Response(status=202)
        if message["method"] == "tools/call":
            self.calls += 1
            return await self.call(request, message["id"])
        if message["method"] == "initialize":
            about = {"name": "far", "version": "1"}
            found = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": about}
            return result(message["id"], found, {"Mcp-Session-Id": "s1"})
        if message["method"] == "tools/list":
            return result(message["id"], {"tools": [{"name": "say", "inputSchema": {"type": "object"}}]})
        error = {"code": -32601, "message": "Method not found"}
        return web.json_response({"jsonrpc": "2.0", "id": message["id"], "error": error})


def result(number: Any, value: Any, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.json_response({"jsonrpc": "2.0", "id": number, "result": value}, headers=headers)


async def done(request: web.Request, number: Any) -> web.StreamResponse:
    return result(number, {"content": [{"type": "text", "text": "done"}]})


def status(code: int, **how: Any) -> Answer:
    async def answer(request: web.Request, number: Any) -> web.StreamResponse:
        return web.Response(status=code, **how)

    return answer


async def cut_off(request: web.Request, number: Any) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "application/json", "Content-Length": "1000"})
    await response.prepare(request)
    await response.write(b'{"jsonrpc":')
    assert request.transport is not None
    request.transport.abort()
    return response


async def hung_up(request: web.Request, number: Any) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    await asyncio.sleep(0)
    return web.Response()


async def huge(request: web.Request, number: Any) -> web.StreamResponse:
    return result(number, {"content": [{"type": "text", "text": "x" * (9 * 1024 * 1024)}]})


async def deep(request: web.Request, number: Any) -> web.StreamResponse:
    body = f'{{"jsonrpc":"2.0","id":{number},"result":' + '{"a":' * 9_000 + "1" + "}" * 9_001
    return web.Response(text=body, content_type="application/json")


async def packed(request: web.Request, number: Any) -> web.StreamResponse:
    body = gzip.compress(b" " * 50_000_000)
    return web.Response(body=body, headers={"Content-Type": "application/json", "Content-Encoding": "gzip"})


async def stream_that_ends(request: web.Request, number: Any) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    await response.write(b": nothing to see\n\n")
    return response


@pytest.fixture
async def far() -> AsyncIterator[tuple[Far, str]]:
    server = Far()
    app = web.Application()
    app.router.add_route("*", "/mcp", server.serve)
    async with TestServer(app) as running:
        yield server, str(running.make_url("/mcp"))


@pytest.mark.parametrize(
    ("answer", "of_a_write", "shown"),
    [
        (status(401, text="who?"), CallStatus.ERROR, "are the headers of its configuration right?"),
        (status(403, text="{}", content_type="application/json"), CallStatus.ERROR, "may not use it"),
        (status(429), CallStatus.ERROR, "too many requests"),
        (status(502, text="<html>bad gateway"), CallStatus.UNKNOWN, "something in front of it answered 502"),
        (status(500, text="{}", content_type="application/json"), CallStatus.UNKNOWN, "gave no clear end"),
        (status(200, text="<html>log in"), CallStatus.UNKNOWN, "gave no clear end"),
        (status(202), CallStatus.UNKNOWN, "gave no clear end"),
        (status(307, headers={"Location": "https://elsewhere.example/mcp"}), CallStatus.UNKNOWN, "gave no clear end"),
        (cut_off, CallStatus.UNKNOWN, "gave no clear end"),
        (hung_up, CallStatus.UNKNOWN, "the connection was lost"),
        (huge, CallStatus.UNKNOWN, "more than 8 MB"),
        (packed, CallStatus.UNKNOWN, "gave no clear end"),
        (deep, CallStatus.UNKNOWN, "gave no clear end"),
        (stream_that_ends, CallStatus.UNKNOWN, "gave no clear end"),
    ],
)
async def test_a_call_ends_truthfully_and_the_connection_goes_on(
    far: tuple[Far, str], answer: Answer, of_a_write: CallStatus, shown: str
) -> None:
    server, url = far
    async with (
        connected(McpServerPart(url=url)) as writes,
        connected(McpServerPart(url=url, default_tier=Tier.READ), "eye") as reads,
    ):
        server.call = answer
        written = await through_gateway(tool_of(writes, "say"))
        read = await through_gateway(tool_of(reads, "say"))
        assert server.calls == 2
        server.call = done
        assert (await through_gateway(tool_of(writes, "say"))).status is CallStatus.OK
    assert written.status is of_a_write
    assert shown in written.text
    assert read.status is CallStatus.ERROR


async def test_a_forgotten_session_is_opened_anew_and_the_call_was_not_run(
    far: tuple[Far, str],
) -> None:
    server, url = far
    async with connected(McpServerPart(url=url)) as connection:
        server.call = status(404)
        lost = await through_gateway(tool_of(connection, "say"))
        server.call = done
        await until(lambda: connection.trouble() is None)
        assert (await through_gateway(tool_of(connection, "say"))).status is CallStatus.OK
    assert lost.status is CallStatus.ERROR
    assert "did not run it: Session terminated" in lost.text


HALVES = r'"half \ud83d, \uDE00, whole \ud83d\ude00, escaped \\ud83d, nothing \u0000"'
MENDED = "half \ufffd, \ufffd, whole \U0001f600, escaped \\ud83d, nothing \ufffd"


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
async def test_half_a_character_costs_nobody_the_answer(far: tuple[Far, str], kind: str) -> None:
    async def halves(request: web.Request, number: Any) -> web.StreamResponse:
        found = f'{{"jsonrpc":"2.0","id":{number},"result":{{"content":[{{"type":"text","text":{HALVES}}}]}}}}'
        response = web.StreamResponse(headers={"Content-Type": kind})
        await response.prepare(request)
        for byte in found.encode() if kind == "application/json" else f"data: {found}\n\n".encode():
            await response.write(bytes([byte]))
        return response

    server, url = far
    server.call = halves
    async with connected(McpServerPart(url=url)) as connection:
        assert (await tool_of(connection, "say").run({})).text == MENDED


async def test_a_stream_may_bring_the_answer(far: tuple[Far, str]) -> None:
    async def streamed(request: web.Request, number: Any) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        found = {"jsonrpc": "2.0", "id": number, "result": {"content": [{"type": "text", "text": "streamed"}]}}
        await response.write(f"event: message\ndata: {json.dumps(found)}\n\n".encode())
        return response

    server, url = far
    server.call = streamed
    async with connected(McpServerPart(url=url)) as connection:
        assert (await through_gateway(tool_of(connection, "say"))).text.endswith("streamed")


async def test_the_configured_headers_go_with_every_request(far: tuple[Far, str]) -> None:
    server, url = far
    async with connected(McpServerPart(url=url, headers={"X-Key": SecretStr("k1")})) as connection:
        await through_gateway(tool_of(connection, "say"))
    assert set(server.headers) == {"k1"}


async def test_a_door_that_stays_shut_at_the_start_is_told(far: tuple[Far, str]) -> None:
    _, url = far
    async with connected(McpServerPart(url=url.replace("/mcp", "/other"))) as connection:
        assert connection.offer.tools == ()
        assert str(connection.shortfall()).startswith("MCP server own could not be used: ")
