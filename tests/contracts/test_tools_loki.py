"""What the model reads when it asks Loki, in the incident of the playground."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from urllib.parse import parse_qs, urlsplit

import aiohttp
import pytest

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
        (only,) = loki.tools(world.loki_url, session, world.now, "https://grafana.example.com")
        yield only


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
