"""Whatever a far end does, a tool answers with a text or a ToolError, and a cancelled call closes its connection."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import aiohttp
import pytest
from aiohttp import web

from bot.playground.world import World
from bot.playground.world.server import APIS
from bot.tools import alertmanager, kubernetes, loki, prometheus
from core.errors import ToolError
from core.evidence import MOST_KEPT
from core.ports import Tier, Tool, ToolOutput
from tests.support.processes import until

NOW = 1_790_000_000.0
Respond = Callable[[web.Request], Awaitable[web.StreamResponse]]

CALLS = {
    "prometheus_query": {"query": "up"},
    "prometheus_range": {"query": "up"},
    "prometheus_series": {},
    "alertmanager_alerts": {},
    "loki_query": {"query": '{app="x"}'},
    "loki_labels": {},
    "kubernetes_get": {"kind": "pods", "namespace": "shop"},
    "kubernetes_describe": {"kind": "pods", "namespace": "shop", "name": "a"},
    "kubernetes_events": {"namespace": "shop"},
    "kubernetes_logs": {"namespace": "shop", "pod": "a"},
    "kubernetes_rollout_history": {"namespace": "shop", "deployment": "gateway"},
}


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as open_things:
        yield open_things


async def toolset(
    stack: AsyncExitStack, base: str, now: Callable[[], float] = lambda: NOW, **urls: str
) -> dict[str, Tool]:
    """All tools of these modules that read, each against `base` or the address given for it."""
    session = await stack.enter_async_context(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))
    api = await stack.enter_async_context(
        kubernetes.connect(urls.get("kubernetes", base), urls.get("token", "playground"))
    )
    found = [
        *prometheus.tools(urls.get("prometheus", base), session, now),
        *alertmanager.tools(urls.get("alertmanager", base), session, now),
        *loki.tools(urls.get("loki", base), session, now),
        *kubernetes.tools(api, now),
    ]
    return {tool.spec.name: tool for tool in found if tool.spec.tier is Tier.READ}


async def serving(stack: AsyncExitStack, respond: Respond) -> str:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", respond)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return f"http://127.0.0.1:{runner.addresses[0][1]}"


async def outcome(tool: Tool, arguments: dict[str, object]) -> str:
    """The text of the result, or of the ToolError. Anything else fails the test."""
    try:
        found = await tool.run(arguments)
    except ToolError as error:
        return f"ToolError: {error}"
    assert isinstance(found, ToolOutput)
    return found.text


def plain(body: bytes, status: int = 200, kind: str = "application/json", **headers: str) -> Respond:
    async def respond(request: web.Request) -> web.StreamResponse:
        return web.Response(status=status, body=body, content_type=kind, headers=headers)

    return respond


async def cut_short(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Length": "1000"})
    await response.prepare(request)
    await response.write(b'{"status":')
    assert request.transport is not None
    request.transport.close()
    return response


def nested(depth: int) -> bytes:
    return b'{"a":' * depth + b"1" + b"}" * depth


ODD_ANSWERS: dict[str, Respond] = {
    "a 500 without words": plain(b"", 500),
    "a 502 from a proxy": plain(b"<html><h1>502 Bad Gateway</h1></html>", 502, "text/html"),
    "a 401": plain(b'{"kind":"Status","message":"Unauthorized"}', 401),
    "a 429 in plain text": plain(b"too many outstanding requests", 429, "text/plain"),
    "a redirect to a login": plain(b"", 302, Location="/login"),
    "a login page": plain(b"<!doctype html><title>Sign in</title>", 200, "text/html"),
    "nothing": plain(b""),
    "no JSON": plain(b"ok"),
    "half a JSON": plain(b'{"status":"success","data":{"resultType":"vector","result":['),
    "bytes that are no text": plain(b"\xff\xfe\x00\x80"),
    "another shape": plain(b'{"status":"success","data":[1,"a",null,{"b":[]}]}'),
    "a list": plain(b"[]"),
    "null": plain(b"null"),
    "a number": plain(b"1e999"),
    "a huge number": plain(b"1" * 10_000),
    "odd items": plain(b'{"items":[null,1,{"metadata":1},{"metadata":{"annotations":[]},"spec":[],"status":7}]}'),
    "odd spec": plain(b'{"items":{"a":1},"spec":{"ports":3,"selector":{"matchLabels":[1]}},"status":5}'),
    "odd vector": plain(b'{"data":{"resultType":"vector","result":[{"metric":{"a":1},"value":["x",2]}]}}'),
    "times beyond the calendar": plain(
        b'{"data":{"resultType":"matrix","result":[{"metric":{},"values":[[1e300,"NaN"],[-1e300,"+Inf"]]}]}}'
    ),
    "deep JSON": plain(nested(500)),
    "very deep JSON": plain(nested(100_000)),
    "a gzip bomb": plain(gzip.compress(b"[" + b"1," * 20_000_000 + b"1]"), **{"Content-Encoding": "gzip"}),
    "broken gzip": plain(b"not gzip at all", **{"Content-Encoding": "gzip"}),
    "an answer cut short": cut_short,
}  # fmt: skip


@pytest.mark.parametrize("answer", ODD_ANSWERS)
async def test_an_odd_answer_becomes_a_text_or_a_tool_error(stack: AsyncExitStack, answer: str) -> None:
    tools = await toolset(stack, await serving(stack, ODD_ANSWERS[answer]))
    assert set(tools) == set(CALLS)
    for name, arguments in CALLS.items():
        text = await outcome(tools[name], dict(arguments))
        assert 0 < len(text) <= MOST_KEPT, name
        assert "\0" not in text and "Traceback" not in text
        health = await tools[name].health()
        assert health is None or (health and "\n" not in health)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("a 502 from a proxy", "answered 502: an HTML page, so something in front of it answered instead"),
        ("a 401", "answered 401: Unauthorized"),
        ("a 429 in plain text", "answered 429: too many outstanding requests"),
        ("a login page", "answered 200 with an HTML page: is the address right?"),
        ("no JSON", "something that is not usable JSON"),
        ("very deep JSON", "something that is not usable JSON"),
        ("a gzip bomb", "answered with more than 8 MB: ask for less."),
    ],
)
async def test_the_model_is_told_what_went_wrong(stack: AsyncExitStack, answer: str, words: str) -> None:
    tools = await toolset(stack, await serving(stack, ODD_ANSWERS[answer]))
    for name in ("prometheus_query", "loki_query", "kubernetes_get"):
        assert words in await outcome(tools[name], dict(CALLS[name])), name


async def test_a_far_end_that_is_not_there_is_said_to_be_unreachable_and_nothing_more(stack: AsyncExitStack) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        base = f"http://127.0.0.1:{unused.getsockname()[1]}"
        tools = await toolset(stack, base)
        for name, arguments in CALLS.items():
            text = await outcome(tools[name], dict(arguments))
            assert "could not be reached" in text
            assert "This says nothing about the systems that it watches." in text
            assert "could not be reached" in (await tools[name].health() or "")


@pytest.mark.parametrize(
    "base", ["http://no-such-host.invalid", "nonsense", "http://127.0.0.1:1/\x01", "http://[::1"]
)
async def test_an_address_that_cannot_be_right_is_a_tool_error(stack: AsyncExitStack, base: str) -> None:
    tools = await toolset(stack, base)
    for name, arguments in CALLS.items():
        assert (await outcome(tools[name], dict(arguments))).startswith("ToolError: "), name


async def test_dirty_and_huge_text_comes_out_clean_and_short(stack: AsyncExitStack) -> None:
    dirty = json.dumps("a\0b\ud800 " + "x" * 200_000)
    value = (
        f'{{"data":{{"resultType":"streams","result":[{{"stream":{{"app":{dirty}}},"values":[["1",{dirty}]]}}]}}}}'
    )
    tools = await toolset(stack, await serving(stack, plain(value.encode())))
    text = await outcome(tools["loki_query"], dict(CALLS["loki_query"]))
    assert len(text) <= MOST_KEPT and "a\ufffdb\ufffd" in text
    tools = await toolset(stack, await serving(stack, plain(b"l\0g\xff\n" * 100_000, kind="text/plain")))
    text = await outcome(tools["kubernetes_logs"], dict(CALLS["kubernetes_logs"]))
    assert 20_000 < len(text) <= MOST_KEPT and "l\ufffdg\ufffd" in text


@pytest.mark.parametrize("name", CALLS)
async def test_cancelling_a_call_closes_its_connection_at_once(stack: AsyncExitStack, name: str) -> None:
    world = await stack.enter_async_context(World(clock=lambda: NOW))
    for api in APIS:
        world.slow(api, 600)
    urls = {api: f"http://127.0.0.1:{world.port}/{api}" for api in APIS}
    tools = await toolset(stack, "", world.now, **urls)
    task = asyncio.create_task(tools[name].run(CALLS[name]))
    await until(lambda: world.calls)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: world.calls[0].state != "open")
    assert [call.state for call in world.calls] == ["cancelled"]


async def test_a_hundred_calls_run_side_by_side(stack: AsyncExitStack) -> None:
    arrived, gate = [], asyncio.Event()

    async def respond(request: web.Request) -> web.StreamResponse:
        arrived.append(request.path)
        await gate.wait()
        return web.json_response({"data": {"resultType": "scalar", "result": [1, "1"]}, "items": []})

    tools = await toolset(stack, await serving(stack, respond))
    names = ("prometheus_query", "kubernetes_get")
    tasks = [asyncio.create_task(tools[name].run(CALLS[name])) for name in names for _ in range(110)]
    await until(lambda: len(arrived) == len(tasks))
    gate.set()
    assert all(found.text for found in await asyncio.gather(*tasks))
