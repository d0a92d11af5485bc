"""What the model reads when it asks Prometheus, in the incident of the playground."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from urllib.parse import parse_qs, urlsplit

import aiohttp
import pytest

from bot.playground.world import World
from bot.tools import prometheus
from bot.tools.series import Instant, Range, instant_text, range_text
from core.errors import ToolError
from core.ports import Tier, Tool

FIXED = datetime(2026, 3, 14, 8, 30, tzinfo=UTC).timestamp()
ERRORS = 'sum by (host) (rate(http_requests_total{service="checkout",status=~"5.."}[5m]))'


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with World(clock=lambda: FIXED) as running:
        yield running


@pytest.fixture
async def tools(world: World) -> AsyncIterator[dict[str, Tool]]:
    async with aiohttp.ClientSession() as session:
        found = prometheus.tools(f"{world.prometheus_url}/", session, world.now, "https://prometheus.example.com/")
        yield {tool.spec.name: tool for tool in found}


async def test_an_instant_query_is_a_table_with_the_largest_value_first(tools: dict[str, Tool]) -> None:
    found = await tools["prometheus_query"].run({"query": ERRORS})
    head, names, *rows = found.text.splitlines()
    assert head == "3 series at 2026-03-14T14:20:00Z"
    assert names == "host | value"
    values = [float(row.split(" | ")[1]) for row in rows]
    assert len(values) == 3 and values == sorted(values, reverse=True) and 4 < values[-1] < values[0] < 9


async def test_an_earlier_moment_can_be_asked_for(tools: dict[str, Tool]) -> None:
    found = await tools["prometheus_query"].run({"query": ERRORS, "time": "2026-03-14T14:00:00Z"})
    assert "at 2026-03-14T14:00:00Z" in found.text
    assert all(float(row.split(" | ")[1]) < 0.1 for row in found.text.splitlines()[2:])


async def test_labels_that_all_series_share_are_said_once(tools: dict[str, Tool]) -> None:
    found = await tools["prometheus_query"].run({"query": 'gateway_route_timeout_seconds{route="/checkout"}'})
    lines = found.text.splitlines()
    assert lines[1].startswith("the same for all: gateway_route_timeout_seconds{") and 'route="/checkout"' in lines[1]
    assert lines[2] == "host | instance | pod | value"
    assert all(line.endswith(" | 0.3") for line in lines[3:])


async def test_a_scalar_and_no_series_are_said_in_words(tools: dict[str, Tool]) -> None:
    assert (await tools["prometheus_query"].run({"query": "6 * 7"})).text.startswith("42 (a scalar")
    assert (await tools["prometheus_query"].run({"query": "nothing"})).text.startswith("No series matches.")
    empty = await tools["prometheus_range"].run({"query": "nothing"})
    assert empty.text.startswith("No series has values in this range.")


async def test_a_range_says_when_it_changed(tools: dict[str, Tool]) -> None:
    query = ERRORS.replace("sum by (host) ", "sum").replace("5m", "1m")
    found = await tools["prometheus_range"].run({"query": query, "minutes_back": 30})
    lines = found.text.splitlines()
    assert lines[0] == "1 series, 2026-03-14T13:50:00Z to 2026-03-14T14:20:00Z"
    assert lines[1] == "first | last | lowest | highest | largest change"
    assert lines[2].rpartition(" at ")[2] in ("14:05:00", "14:06:00")
    newest, oldest = lines[6], lines[-1]
    assert lines[4] == "values, newest first (every 2. point)"
    assert newest.startswith("14:20:00 | ") and oldest.startswith("13:50:00 | ")


async def test_the_series_that_exist_can_be_listed(tools: dict[str, Tool]) -> None:
    everything = (await tools["prometheus_series"].run({})).text
    assert "\nhttp_requests_total | counter | Requests as the client saw them" in everything
    assert "\nhttp_request_duration_seconds_bucket | histogram | " in everything
    some = (await tools["prometheus_series"].run({"match": '{__name__="node_load1"}'})).text
    assert some == (
        "3 series of 1 metrics in the last hour\nnode_load1 (3 series, gauge: 1m load average.)\n"
        "  host: web-1, web-2, web-3\n"
        "  instance: web-1:9100, web-2:9100, web-3:9100\n  job: node"
    )
    assert "No series matched" in (await tools["prometheus_series"].run({"match": "nothing"})).text


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("rate(up", 'Prometheus answered 400: invalid parameter "query": parse error: unclosed left parenthesis'),
        ("up[5m:1m]", "Prometheus answered 422: the playground's Prometheus cannot evaluate subqueries"),
    ],
)
async def test_the_model_reads_the_apis_own_words(tools: dict[str, Tool], query: str, words: str) -> None:
    with pytest.raises(ToolError) as refused:
        await tools["prometheus_query"].run({"query": query})
    assert str(refused.value).startswith(words)


async def test_too_many_points_are_refused_before_asking(tools: dict[str, Tool], world: World) -> None:
    with pytest.raises(ToolError, match="larger step_s or fewer minutes_back"):
        await tools["prometheus_range"].run({"query": "up", "minutes_back": 1440, "step_s": 1})
    assert world.calls == []


async def test_people_get_a_link_to_the_same_graph(tools: dict[str, Tool]) -> None:
    ((title, address),) = (await tools["prometheus_range"].run({"query": "up", "minutes_back": 30})).links
    assert title == "Prometheus: up"
    parts = urlsplit(address)
    assert f"{parts.scheme}://{parts.netloc}{parts.path}" == "https://prometheus.example.com/graph"
    asked = parse_qs(parts.query)
    assert asked["g0.expr"] == ["up"] and asked["g0.range_input"] == ["30m"]


async def test_headers_go_with_each_request_and_no_link_is_made_without_an_address(world: World) -> None:
    async with aiohttp.ClientSession() as session:
        query, *_ = prometheus.tools(world.prometheus_url, session, world.now, headers={"X-Scope-OrgID": "shop"})
        assert (await query.run({"query": "up"})).links == []


async def test_health_is_none_or_a_sentence(tools: dict[str, Tool], world: World) -> None:
    assert [await tool.health() for tool in tools.values()] == [None, None, None]
    world.fail("prometheus", 503)
    sentence = "Prometheus answered 503: an HTML page, so something in front of it answered instead"
    assert await tools["prometheus_query"].health() == sentence


def test_all_tools_only_read_and_can_be_interrupted() -> None:
    specs = (prometheus.QUERY, prometheus.RANGE, prometheus.SERIES)
    assert all(spec.tier is Tier.READ and spec.interruptible for spec in specs)


def test_many_series_are_cut_and_counted() -> None:
    many = [Instant(metric={"pod": f"p{n}"}, value=(1.0, float(n))) for n in range(60)]
    text = instant_text(many)
    assert text.startswith("60 series") and "p59 | 59" in text and "p9 |" not in text
    assert text.endswith("[10 more series not shown: aggregate with sum by (...) or topk, or add matchers]")
    ranges = [Range(metric={"pod": f"p{n}"}, values=[(1.0, 0.0), (2.0, float(n))]) for n in range(60)]
    text = range_text(ranges)
    assert "p59 | 0 at 00:00:01 | 59" in text and "[10 more series" in text and "values, newest first" not in text


def test_native_histograms_are_counted_not_dropped() -> None:
    text = instant_text([Instant(metric={"a": "b"}, histogram={"count": "1"})])
    assert "[1 native histograms not shown: use histogram_quantile]" in text
