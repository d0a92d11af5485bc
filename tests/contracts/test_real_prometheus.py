"""The Prometheus tools against a real Prometheus that looks at itself and at a small shop."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from bot.tools import prometheus
from core.errors import ToolError
from core.gateway import CallStatus, Gateway
from core.limits import Limits
from core.ports import Tool
from tests.core.doubles import call
from tests.support.monitoring import REQUIRED, Server, binary, running_prometheus
from tests.support.processes import free_port, until


class Shop:
    """What a small shop tells Prometheus."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.orders = Counter("shop_orders", "Orders taken", ["country"], registry=self.registry)
        self.queue = Gauge("shop_queue_length", "Orders that wait", registry=self.registry)
        self.latency = Histogram("shop_latency_seconds", "Time for one order", registry=self.registry)
        for country, count in (("no", 5), ("fi", 3)):
            self.orders.labels(country).inc(count)
        self.queue.set(3)
        self.latency.observe(0.2)


@pytest.fixture(scope="module")
def shop() -> Shop:
    return Shop()


@pytest.fixture(scope="module")
def server(shop: Shop) -> Iterator[Server]:
    port = free_port()
    endpoint, thread = start_http_server(port, "127.0.0.1", shop.registry)
    try:
        with running_prometheus({"shop": f"127.0.0.1:{port}"}) as running:
            yield running
    finally:
        endpoint.shutdown()
        endpoint.server_close()
        thread.join()


@pytest.fixture
async def tools(server: Server) -> AsyncIterator[dict[str, Tool]]:
    """The tools, once both targets have been seen."""
    async with aiohttp.ClientSession() as session:
        found = {tool.spec.name: tool for tool in prometheus.tools(server.url, session, time.time)}
        await until(lambda: says(found, "sum(up)", "2"), timeout_s=60)
        yield found


async def says(tools: dict[str, Tool], query: str, value: str) -> bool:
    """Whether a query gives this one value."""
    return (await tools["prometheus_query"].run({"query": query})).text.endswith(f"\nvalue\n{value}")


async def test_an_instant_query_is_a_table_with_the_largest_value_first(tools: dict[str, Tool]) -> None:
    head, shared, *table = (await tools["prometheus_query"].run({"query": "shop_orders_total"})).text.splitlines()
    assert head.startswith("2 series at 20")
    assert shared.startswith('the same for all: shop_orders_total{instance="127.0.0.1:') and 'job="shop"' in shared
    assert table == ["country | value", "no | 5", "fi | 3"]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("6 * 7", "42 (a scalar, at 20"),
        ("1 / 0", "+Inf (a scalar, at 20"),
        ('"closed"', "closed (a string, at 20"),
        ("no_such_metric", "No series matches."),
        ("vector(1) / 0 - vector(1) / 0", "\nvalue\nNaN"),
    ],
)
async def test_other_kinds_of_results_are_said_in_words(tools: dict[str, Tool], query: str, words: str) -> None:
    assert words in (await tools["prometheus_query"].run({"query": query})).text


async def test_before_it_all_began_there_is_no_series(tools: dict[str, Tool]) -> None:
    found = await tools["prometheus_query"].run({"query": "up", "time": "2020-01-01T00:00:00Z"})
    assert found.text.startswith("No series matches.")


async def test_a_range_shows_what_changed(tools: dict[str, Tool], shop: Shop) -> None:
    await until(lambda: says(tools, "max(count_over_time(shop_queue_length[1m])) > bool 10", "1"), timeout_s=60)
    shop.queue.set(8)
    await until(lambda: says(tools, "max(shop_queue_length)", "8"))
    asked = {"query": "shop_queue_length", "minutes_back": 1, "step_s": 1}
    lines = (await tools["prometheus_range"].run(asked)).text.splitlines()
    assert lines[0].startswith("1 series, 20") and " to 20" in lines[0]
    assert lines[2] == "first | last | lowest | highest | largest change"
    first, last, lowest, highest, change = lines[3].split(" | ")
    assert (last, first.split()[0], lowest.split()[0], highest.split()[0]) == ("8", "3", "3", "8")
    assert change.startswith("3 -> 8 at ")


async def test_a_histogram_gives_a_quantile(tools: dict[str, Tool]) -> None:
    query = "histogram_quantile(0.5, sum by (le) (shop_latency_seconds_bucket))"
    text = (await tools["prometheus_query"].run({"query": query})).text
    assert 0.1 < float(text.rpartition("\n")[2]) <= 0.25


async def test_metrics_are_listed_with_their_type_and_meaning(tools: dict[str, Tool]) -> None:
    everything = (await tools["prometheus_series"].run({})).text
    assert "more metrics not shown: give a match" in everything
    some = (await tools["prometheus_series"].run({"match": '{job="shop",__name__=~"shop_orders.*"}'})).text
    assert some.startswith("4 series of 2 metrics in the last hour\nshop_orders_created (2 series)")
    assert "shop_orders_total (2 series, counter: Orders taken)\n  country: fi, no\n" in some
    assert "No series matched" in (await tools["prometheus_series"].run({"match": "no_such_metric"})).text


@pytest.mark.parametrize(
    ("tool", "arguments", "words"),
    [
        (
            "prometheus_query",
            {"query": "rate(up"},
            r'400: invalid parameter "query": .*parse error: unclosed left par',
        ),
        ("prometheus_query", {"query": "rate(up)"}, r"400: .*expected type range vector"),
        ("prometheus_query", {"query": "up + on() up"}, r"422: found duplicate series for the match group"),
        ("prometheus_range", {"query": "up["}, r"400: .*parse error"),
        ("prometheus_series", {"match": "{"}, r'400: invalid parameter "match\[\]": .*parse error'),
        ("prometheus_series", {"match": '{a=~".*"}'}, r"400: .*at least one non-empty matcher"),
    ],
)
async def test_what_prometheus_refuses_the_model_reads_in_its_words(
    tools: dict[str, Tool], tool: str, arguments: dict[str, object], words: str
) -> None:
    with pytest.raises(ToolError, match=f"^Prometheus answered {words}"):
        await tools[tool].run(arguments)


async def test_as_many_points_as_prometheus_allows_and_not_more(tools: dict[str, Tool]) -> None:
    most = {"query": "sum(up)", "minutes_back": 1_100, "step_s": 6}
    assert (await tools["prometheus_range"].run(most)).text.startswith("1 series, ")
    with pytest.raises(ToolError, match="more than 11000 points: use a larger step_s or fewer minutes_back"):
        await tools["prometheus_range"].run({**most, "step_s": 5})


@pytest.mark.parametrize("tool", ["prometheus_query", "prometheus_range", "prometheus_series"])
async def test_asking_for_everything_gives_a_short_part_of_it_that_says_so(tools: dict[str, Tool], tool: str) -> None:
    selector = '{__name__=~".+"}'
    asked = {"match": selector} if tool == "prometheus_series" else {"query": selector}
    found = await Gateway(tools.values(), Limits(), time.monotonic).run(call(tool, arguments=asked))
    assert found.status is CallStatus.OK and len(found.text) < Limits().output_chars + 1_000
    assert "more series not shown: aggregate" in found.text or "characters are left out here" in found.text


async def test_health_is_none_for_a_prometheus_and_a_sentence_otherwise(server: Server) -> None:
    async with aiohttp.ClientSession() as session:
        here, elsewhere, nowhere = (
            prometheus.tools(url, session, time.time)[0]
            for url in (server.url, f"{server.url}/graph", f"http://127.0.0.1:{free_port()}")
        )
        assert await here.health() is None
        assert "Prometheus answered" in (await elsewhere.health() or "")
        assert "could not be reached" in (await nowhere.health() or "")


def test_a_server_that_is_missing_skips_the_tests_unless_this_machine_must_have_it() -> None:
    with pytest.raises(pytest.skip.Exception, match="no-such-server is not installed"):
        binary(("no-such-server",), {})
    with pytest.raises(pytest.fail.Exception, match=f"but {REQUIRED} is set"):
        binary(("no-such-server",), {REQUIRED: "true"})
