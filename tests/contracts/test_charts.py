"""Charts of range queries: what is drawn, in which unit, and in which words it is told."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from io import BytesIO
from random import Random
from typing import Any

import aiohttp
import pytest
from PIL import Image

from bot.playground.world import World
from bot.tools import prometheus
from bot.tools.charts import COLUMNS, MOST_LINES, Chart, Charts, alt_of, chart_of, columns, short
from bot.tools.drawing import COLOURS, png_of
from bot.tools.series import Range
from bot.tools.units import unit_of
from core.gateway import clean
from core.pictures import admitted

END = datetime(2026, 3, 14, 14, 20, tzinfo=UTC).timestamp()
START = END - 3_600.0
STEP = 60.0


def series(value: Callable[[int], float], step: float = STEP, **labels: str) -> Range:
    """One series of an hour; `value` gets the number of the point."""
    count = round(3_600 / step)
    return Range(metric=labels, values=[(START + number * step, value(number)) for number in range(count + 1)])


def charted(*found: Range, query: str = "up", step: float = STEP) -> Chart:
    chart = chart_of(query, found, START, END, step)
    assert chart is not None
    return chart


def pixels(chart: Chart) -> Any:
    return Image.open(BytesIO(png_of(chart))).convert("RGBA")


def coloured(picture: Any, number: int) -> list[tuple[int, int]]:
    """Where the colour of a line is above its row in the legend."""
    wanted = tuple(bytes.fromhex(COLOURS[number][1:]))
    data, width = picture.load(), picture.width
    return [(x, y) for y in range(690) for x in range(150, width) if data[x, y][:3] == wanted]


# -- what is drawn


def test_eight_lines_are_drawn_those_that_rise_highest_and_the_rest_is_counted() -> None:
    chart = charted(*[series(lambda _, n=n: float(n), pod=f"p{n}") for n in range(20)])
    assert [line.label for line in chart.lines] == [f"p{n}" for n in range(19, 19 - MOST_LINES, -1)]
    assert chart.more == 12
    assert "20 series" in alt_of(chart) and "and 17 more series" in alt_of(chart)


def test_labels_that_all_lines_share_are_said_once_and_a_single_other_one_is_a_heading() -> None:
    chart = charted(series(lambda _: 1.0, host="web-1", env="prod"), series(lambda _: 1.0, host="web-2", env="prod"))
    assert (chart.shared, chart.what) == ("env=prod", "host")
    assert sorted(line.label for line in chart.lines) == ["web-1", "web-2"]
    two = charted(series(lambda _: 1.0, a="1", b="x"), series(lambda _: 2.0, a="2", b="y"))
    assert [line.label for line in two.lines] == ["a=2, b=y", "a=1, b=x"]


@pytest.mark.parametrize(
    "found",
    [
        [],
        [Range(metric={"a": "b"}, values=[])],
        [series(lambda _: math.nan)],
        [series(lambda _: math.inf)],
        [series(lambda _: 1e300)],
        [Range(metric={}, values=[(END, 1.0)])],
        [Range(metric={}, values=[(1e300, 1.0), (-1e300, 1.0), (math.nan, 1.0)])],
    ],
)
def test_what_no_line_can_show_is_no_chart(found: list[Range]) -> None:
    assert chart_of("up", found, START, END, STEP) is None


def test_a_missing_value_is_a_gap_and_a_lonely_one_is_a_point() -> None:
    gap = charted(series(lambda n: math.nan if 20 < n < 40 else 5.0), series(lambda _: 0.0, b="c"))
    drawn = {x for x, _ in coloured(pixels(gap), 0)}
    assert not any(440 < x < 690 for x in drawn) and any(x < 400 for x in drawn) and any(x > 730 for x in drawn)
    lonely = charted(series(lambda n: 5.0 if n == 30 else math.nan, a="b"), series(lambda _: 0.0, b="c"))
    assert len(coloured(pixels(lonely), 0)) > 20


@pytest.mark.parametrize("step", [60.0, 1.0])
def test_one_bad_point_among_many_is_seen_at_its_height(step: float) -> None:
    at = round(1_800 / step) + 7
    chart = charted(series(lambda n: 40.0 if n == at else 0.1, step, status="503"), step=step)
    drawn = coloured(pixels(chart), 0)
    top = min(y for _, y in drawn)
    bottom = max(y for _, y in drawn)
    assert bottom - top > 350, "from the ground to the upper end of the plot"
    assert 0.4 < (sum(x for x, y in drawn if y < top + 40) / sum(y < top + 40 for _, y in drawn) - 144) / 848 < 0.65


@pytest.mark.parametrize("seed", range(12))
def test_thinning_keeps_the_lowest_and_the_highest(seed: int) -> None:
    random = Random(seed)
    count = random.randint(2 * COLUMNS + 1, 12 * COLUMNS)
    values, at = [random.uniform(-1e6, 1e6) for _ in range(count)], random.randrange(count)
    values[at] = 1e7
    points = [(START + number, value) for number, value in enumerate(values)]
    kept = columns(points, START, START + len(points))
    assert len(kept) <= 4 * (COLUMNS + 1) and kept == sorted(set(kept))
    assert min(value for _, value in kept) == min(values) and (START + at, 1e7) in kept
    assert kept[0] == points[0] and kept[-1] == points[-1]


# -- how it looks


def test_the_same_chart_is_the_same_picture_on_a_solid_ground_within_the_limits_of_the_gateway() -> None:
    chart = charted(*[series(lambda k, n=n: n + math.sin(k / 9), pod=f"p{n}") for n in range(9)])
    picture = pixels(chart)
    assert png_of(chart) == png_of(chart)
    assert picture.width == 1024 and picture.height < 1400
    assert all(picture.getpixel(at) == (255, 255, 255, 255) for at in ((0, 0), (1023, 0), (0, picture.height - 1)))


HOSTILE = [
    "$x^2$ and \\frac{1}{2}",
    "$\\unknown{",
    "_starts_with_a_line",
    "很长的标签 主机",
    "🚨🔥👩‍👩‍👧",
    "שלום עולם",
    "العربية",
    "a\u202eb\u0000c\nd\te",
    "\ud800",
    "x" * 5_000,
    "W" * 300,
    "",
    " ",
    "{}%s%d{0}",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_no_label_and_no_expression_breaks_the_drawing(text: str) -> None:
    chart = charted(series(math.sin, pod=text, other=text), series(lambda _: 1.0, pod="b"), query=text or "up")
    picture = pixels(chart)
    assert picture.width == 1024 and picture.height < 1200
    assert len(alt_of(chart)) <= 1_000
    assert not set("\n\t\0\u202e\ud800") & set(alt_of(chart) + chart.title)


@pytest.mark.parametrize(
    "value",
    [
        lambda _: 0.0,
        lambda _: -3.0,
        lambda n: 1e249 * (-1) ** n,
        lambda n: 1e-300 * n,
        lambda n: 1e15 + n,
        lambda n: 5e-324,
        lambda n: (-1) ** n * 1e-9,
    ],
)
def test_no_value_breaks_the_drawing(value: Callable[[int], float]) -> None:
    assert pixels(charted(series(value))).width == 1024


def test_a_secret_in_a_label_is_not_drawn() -> None:
    secret = "xoxb-1234567890-1234567890123-AbCdEfGhIjKlMnOpQrStUvWx"
    chart = charted(series(lambda _: 1.0, a=secret), series(lambda _: 2.0, a="b"), query=f'up{{a="{secret}"}}')
    assert secret not in chart.title + alt_of(chart) + "".join(line.label for line in chart.lines)


# -- words and units


def test_the_words_say_when_and_how_much() -> None:
    chart = charted(series(lambda n: 8.0 if n >= 45 else 0.02), query="sum(rate(errors_total[5m]))")
    assert alt_of(chart) == (
        "1 series, 2026-03-14 13:20 to 14:20 UTC, per second. first 0.02, last 8, highest 8 at 14:05:00."
    )


@pytest.mark.parametrize(
    ("query", "word"),
    [
        ("process_resident_memory_bytes", "MiB"),
        ("sum by (pod) (container_memory_working_set_bytes{ns='a/b'})", "MiB"),
        ("rate(node_network_receive_bytes_total[5m])", "MiB/s"),
        ('sum(rate(http_requests_total{status=~"5.."}[1m])) by (host)', "per second"),
        ("rate(http_request_duration_seconds_count[5m])", "per second"),
        ("histogram_quantile(0.99, sum by (le) (rate(http_request_duration_seconds_bucket[5m])))", "d"),
        ("max_over_time(node_hwmon_temp_celsius[5m] offset 1h)", "°C"),
        ("avg(disk_used_ratio)", "%"),
        ("rate(process_cpu_seconds_total[5m])", ""),
        ("process_start_time_seconds", ""),
        ("time() - process_start_time_seconds", ""),
        ("a_bytes / b_bytes", ""),
        ("a_bytes * 8", ""),
        ("count(a_bytes)", ""),
        ("a_bytes or b_seconds", ""),
        ("a_bytes or b_bytes", "MiB"),
        ("job:memory_bytes:sum", ""),
        ("up", ""),
        ('{__name__="a_bytes"}', ""),
        ("increase(http_requests_total[1h])", ""),
        ("rate(", ""),
        ("", ""),
    ],
)
def test_a_unit_is_named_only_where_it_is_clear(query: str, word: str) -> None:
    assert unit_of(query).size(3 * 2.0**20)[1] == word


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0.0, "0"),
        (0.01234, "0.01234"),
        (12.345, "12.35"),
        (1_234.0, "1,234"),
        (567_800.0, "567.8k"),
        (2.5e9, "2.5G"),
        (-1e-7, "-1e-07"),
        (1e18, "1e+18"),
    ],
)
def test_values_are_short(value: float, words: str) -> None:
    assert short(value) == words


# -- as a tool


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1, "drawing") as pool:
        yield pool


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with World(clock=lambda: datetime(2026, 3, 14, 8, 30, tzinfo=UTC).timestamp()) as running:
        yield running


class Watched(list[Range]):
    """Tells which thread looks at it."""

    def __init__(self, *found: Range) -> None:
        super().__init__(found)
        self.threads: list[str] = []

    def __iter__(self) -> Iterator[Range]:
        self.threads.append(threading.current_thread().name)
        return super().__iter__()


async def test_a_range_brings_a_picture_that_the_gateway_takes(world: World, executor: ThreadPoolExecutor) -> None:
    async with aiohttp.ClientSession() as session:
        _, ranges, _ = prometheus.tools(world.prometheus_url, session, world.now, charts=Charts(executor))
        query = 'sum by (host) (rate(http_requests_total{service="checkout",status=~"5.."}[5m]))'
        found = await ranges.run({"query": query, "minutes_back": 30})
        (picture,) = found.pictures
        assert picture.title == query and "3 series, 2026-03-14 13:50 to 14:20 UTC, per second" in picture.alt
        assert found.text.startswith("3 series, 2026-03-14T13:50:00Z")
        kept, _ = admitted(found.pictures, clean)
        assert len(kept) == 1
        assert not (await ranges.run({"query": "nothing"})).pictures


async def test_drawing_leaves_the_event_loop_alone(executor: ThreadPoolExecutor) -> None:
    found = Watched(series(lambda _: 1.0))
    assert await Charts(executor).draw("up", found, START, END, STEP) is not None
    assert found.threads and all(name.startswith("drawing") for name in found.threads)


async def test_a_cancelled_call_leaves_nothing_behind(executor: ThreadPoolExecutor) -> None:
    held = threading.Event()
    before = asyncio.get_running_loop().run_in_executor(executor, held.wait)
    found = Watched(series(lambda _: 1.0))
    task = asyncio.ensure_future(Charts(executor).draw("up", found, START, END, STEP))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    held.set()
    await before
    executor.shutdown(wait=True)
    assert not found.threads, "it was not even begun"
