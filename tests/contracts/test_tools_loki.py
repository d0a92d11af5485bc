"""What the model reads when it asks Loki, in the incident of the playground."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from urllib.parse import parse_qs, urlsplit

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from bot.playground.world import World
from bot.tools import loki
from core.errors import ToolError
from core.ports import Tool

FIXED = datetime(2026, 3, 14, 8, 30, tzinfo=UTC).timestamp()
TIMED_OUT = '{namespace="shop", app="gateway"} |= "timed out"'


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with World(clock=lambda: FIXED) as running:
        yield running


@pytest.fixture
async def tool(world: World) -> AsyncIterator[Tool]:
    async with aiohttp.ClientSession() as session:
        query, _ = loki.tools(world.loki_url, session, world.now, "https://grafana.example.com")
        yield query


@pytest.fixture
async def labels(world: World) -> AsyncIterator[Tool]:
    async with aiohttp.ClientSession() as session:
        _, found = loki.tools(world.loki_url, session, world.now)
        yield found


async def test_lines_come_newest_first_with_their_common_labels_said_once(tool: Tool) -> None:
    head, shared, *lines = (await tool.run({"query": TIMED_OUT, "limit": 5})).text.splitlines()
    assert head == "5 lines of the last 30 min, newest first"
    assert shared == 'the same for all: {app="gateway",container="gateway",job="shop/gateway",namespace="shop"}'
    assert lines[-1].startswith("[limit of 5 reached: there may be more before 2026-03-14T14:1")
    times = [line.split()[0] for line in lines[:-1]]
    assert times == sorted(times, reverse=True) and len(times) == 5
    words = "upstream timed out (300ms) while reading response header from checkout"
    assert all("[gateway-" in line and words in line for line in lines[:-1])


async def test_where_all_lines_fit_nothing_is_said_to_be_missing(tool: Tool) -> None:
    text = (await tool.run({"query": '{app="gateway"} |= "routes loaded"', "minutes_back": 60})).text
    assert text.startswith("3 lines of the last 60 min") and "limit" not in text


async def test_no_line_is_said_in_words(tool: Tool) -> None:
    text = (await tool.run({"query": TIMED_OUT + ' |= "catalog"'})).text
    assert text == "No line matches in the last 30 min. Check the labels, or look further back."


async def test_a_metric_query_over_logs_says_when_it_changed(tool: Tool) -> None:
    query = f"sum(count_over_time({TIMED_OUT} [1m]))"
    text = (await tool.run({"query": query, "minutes_back": 60})).text
    assert text.startswith("1 series, 2026-03-14T14:0")
    assert "values, newest first" in text


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("gateway", "Loki answered 400: parse error: unexpected identifier gateway"),
        ('{app="x"} | line_format "y"', "Loki answered 400: parse error: the playground's Loki cannot evaluate"),
    ],
)
async def test_the_model_reads_the_apis_own_words(tool: Tool, query: str, words: str) -> None:
    with pytest.raises(ToolError) as refused:
        await tool.run({"query": query})
    assert str(refused.value).startswith(words)


async def test_people_get_a_link_to_the_same_lines(tool: Tool) -> None:
    ((title, address),) = (await tool.run({"query": TIMED_OUT})).links
    assert title == f"Loki: {TIMED_OUT}" and address.startswith("https://grafana.example.com/explore?")
    panes = json.loads(parse_qs(urlsplit(address).query)["panes"][0])
    assert panes["a"]["queries"][0]["expr"] == TIMED_OUT


async def test_health_is_none_or_a_sentence(tool: Tool, world: World) -> None:
    assert await tool.health() is None
    world.fail("loki", 502)
    assert await tool.health() == "Loki answered 502: an HTML page, so something in front of it answered instead"


async def test_the_most_lines_are_given_when_more_are_asked_for(tool: Tool, world: World) -> None:
    text = (await tool.run({"query": '{namespace="shop"}', "limit": 1_000_000_000})).text
    assert text.startswith("500 lines of the last 30 min")
    assert world.calls[0].params["limit"] == ["500"]
    for limit in (0, -1, "50", True, 1.5):
        with pytest.raises(ToolError, match="loki_query: argument limit"):
            await tool.run({"query": '{namespace="shop"}', "limit": limit})


async def test_the_labels_of_all_streams_and_the_values_of_one_are_listed(labels: Tool) -> None:
    text = (await labels.run({})).text
    assert text == "6 label names in the last 60 min: app, container, host, job, namespace, pod"
    text = (await labels.run({"name": "namespace"})).text
    assert text == "2 values of namespace in the last 60 min: ops, shop"
    text = (await labels.run({"name": "app", "match": '{namespace="shop"}', "minutes_back": 30})).text
    assert text == '3 values of app in {namespace="shop"} in the last 30 min: catalog, checkout, gateway'


async def test_a_label_that_no_stream_has_is_said_in_words(labels: Tool) -> None:
    assert (
        await labels.run({"name": "cluster"})
    ).text == "No values of cluster in the last 60 min. Look further back."
    text = (await labels.run({"name": "app", "match": '{namespace="nowhere"}'})).text
    assert text.endswith("Look further back, or at other streams.")


@pytest.mark.parametrize("name", ["../query", "app/values?x=", "app\n", "", "é", "app " * 50])
async def test_a_name_that_no_label_has_is_refused_before_asking(labels: Tool, world: World, name: str) -> None:
    with pytest.raises(ToolError, match="loki_labels: argument name"):
        await labels.run({"name": name})
    assert world.calls == []


async def test_a_selector_that_can_not_be_read_is_refused_in_the_apis_words(labels: Tool) -> None:
    with pytest.raises(ToolError, match="Loki answered 400: parse error"):
        await labels.run({"match": "gateway"})


async def test_many_values_are_cut_and_counted() -> None:
    async def respond(request: web.Request) -> web.Response:
        return web.json_response({"status": "success", "data": [f"p{number:03}" for number in range(203)]})

    app = web.Application()
    app.router.add_get("/loki/api/v1/label/pod/values", respond)
    async with TestServer(app) as server, aiohttp.ClientSession() as session:
        _, tool = loki.tools(str(server.make_url("/")), session, lambda: FIXED)
        text = (await tool.run({"name": "pod"})).text
    assert text.startswith("203 values of pod in the last 60 min: p000, p001")
    assert text.endswith("p199\n[3 more of them not shown: add a match]")
