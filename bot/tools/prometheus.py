"""Prometheus: an instant query, a range query, and which series there are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
from pydantic import BaseModel, TypeAdapter

from bot.tools.charts import Charts
from bot.tools.reading import HEALTH_S, FarEnd, shaped
from bot.tools.series import RANGES, RESPONSE, Response, text_of
from bot.tools.shaping import (
    Arguments,
    ReadTool,
    left_out,
    moment,
    object_schema,
    one_line,
    parsed_moment,
    table,
    text_argument,
    whole_argument,
)
from core.errors import ToolError
from core.ports import Picture, Tool, ToolOutput, ToolSpec

MOST_POINTS = 11_000
MOST_METRICS = 150
MOST_VALUES = 8
RECENT_S = 3_600.0
DRAWING_S = 5.0
NAME = "Prometheus"

QUERY = ToolSpec(
    "prometheus_query",
    "Evaluate a PromQL expression at one moment. Rates need a range, e.g. "
    'sum by (host) (rate(http_requests_total{status=~"5.."}[5m])). Returns a table, largest value first.',
    object_schema(
        ["query"],
        query=text_argument("PromQL expression"),
        time=text_argument("Moment as RFC 3339, e.g. 2026-01-31T14:05:00Z; now if left out", 40),
    ),
)
RANGE = ToolSpec(
    "prometheus_range",
    "Evaluate a PromQL expression over the last minutes, to see when something changed. Returns for each series "
    "first, last, lowest, highest and the largest change with its time, and the values, newest first.",
    object_schema(
        ["query"],
        query=text_argument("PromQL expression"),
        minutes_back=whole_argument("How far back from now, in minutes", 60, 1, 1_440),
        step_s=whole_argument("Distance of the points, in seconds", 60, 1, 86_400),
    ),
)
SERIES = ToolSpec(
    "prometheus_series",
    "Which metrics there are (without match: all names with their type and meaning), or which labels and values "
    'the series have that a selector matches in the last hour, e.g. {service="checkout"}.',
    object_schema([], match=text_argument('Series selector, e.g. {service="checkout"} or up', 1_000)),
)


class Names(BaseModel):
    """`/api/v1/label/__name__/values`."""

    data: list[str]


class Meaning(BaseModel):
    """One entry of `/api/v1/metadata`."""

    type: str = ""
    help: str = ""


class Metadata(BaseModel):
    """`/api/v1/metadata`."""

    data: dict[str, list[Meaning]]


class Found(BaseModel):
    """`/api/v1/series`."""

    data: list[dict[str, str]]


NAMES, METADATA, FOUND = TypeAdapter(Names), TypeAdapter(Metadata), TypeAdapter(Found)


def tools(
    base_url: str,
    session: aiohttp.ClientSession,
    now: Callable[[], float],
    link_base: str | None = None,
    headers: Mapping[str, str] | None = None,
    charts: Charts | None = None,
) -> list[Tool]:
    """The tools for one Prometheus. `base_url` is where its `/api/v1` begins; `link_base` is its address for people;
    `headers` go with each request (authorisation, tenant); `now` gives seconds since the epoch; `charts` draws what
    ranges show.
    """
    far_end = FarEnd(NAME, base_url.rstrip("/"), session, dict(headers or {}))
    reader = Reader(far_end, now, link_base.rstrip("/") if link_base else None, charts)
    return [
        ReadTool(QUERY, reader.query, reader.check),
        ReadTool(RANGE, reader.range, reader.check),
        ReadTool(SERIES, reader.series, reader.check),
    ]


@dataclass(frozen=True, slots=True)
class Reader:
    """What the tools do. Every method raises only ToolError."""

    far_end: FarEnd
    now: Callable[[], float]
    link_base: str | None
    charts: Charts | None = None

    async def check(self) -> object:
        """Ask for the number 1: reaches the API itself, through whatever stands in front."""
        answer = await self.far_end.ask("/api/v1/query", {"query": "1"}, HEALTH_S)
        return shaped(NAME, RESPONSE, answer)

    async def query(self, arguments: Arguments) -> ToolOutput:
        query = arguments["query"]
        t = parsed_moment(arguments["time"]) if "time" in arguments else self.now()
        answer = await self.far_end.ask("/api/v1/query", {"query": query, "time": f"{t:.3f}"})
        text = text_of(NAME, shaped(NAME, RESPONSE, answer))
        return ToolOutput(text, self._links(query, t, 60))

    async def range(self, arguments: Arguments) -> ToolOutput:
        query, minutes, step_s = arguments["query"], arguments["minutes_back"], arguments["step_s"]
        if minutes * 60 / step_s > MOST_POINTS:
            raise ToolError(f"That is more than {MOST_POINTS} points: use a larger step_s or fewer minutes_back.")
        end = self.now()
        span: dict[str, str | float] = {"start": f"{end - minutes * 60:.3f}", "end": f"{end:.3f}", "step": step_s}
        answer = shaped(NAME, RESPONSE, await self.far_end.ask("/api/v1/query_range", {"query": query, **span}))
        text = text_of(NAME, answer)
        pictures = await self._chart(query, answer, end - minutes * 60, end, step_s)
        return ToolOutput(text, self._links(query, end, minutes), pictures=pictures)

    async def _chart(self, query: str, answer: Response, start: float, end: float, step_s: float) -> list[Picture]:
        """What the range shows, for people. A chart that takes too long is left out: the text is there."""
        if self.charts is None or answer.data.resultType != "matrix":
            return []
        found = shaped(NAME, RANGES, answer.data.result)
        try:
            async with asyncio.timeout(DRAWING_S):
                picture = await self.charts.draw(query, found, start, end, step_s)
        except TimeoutError:
            return []
        return [] if picture is None else [picture]

    async def series(self, arguments: Arguments) -> ToolOutput:
        if "match" not in arguments:
            return ToolOutput(await self._metrics())
        end = self.now()
        asked: dict[str, str | float] = {"match[]": arguments["match"], "start": end - RECENT_S, "end": end}
        found = shaped(NAME, FOUND, await self.far_end.ask("/api/v1/series", asked)).data
        if not found:
            return ToolOutput(f"No series matched {arguments['match']} in the last hour.")
        return ToolOutput(labels_text(found, await self._meanings()))

    async def _meanings(self) -> dict[str, list[Meaning]]:
        """What the targets say of their metrics."""
        return shaped(NAME, METADATA, await self.far_end.ask("/api/v1/metadata", {})).data

    async def _metrics(self) -> str:
        end = self.now()
        span: dict[str, str | float] = {"start": end - RECENT_S, "end": end}
        names = shaped(NAME, NAMES, await self.far_end.ask("/api/v1/label/__name__/values", span)).data
        meanings = await self._meanings()
        rows = [[name, *_meaning(name, meanings)] for name in names[:MOST_METRICS]]
        advice = 'give a match such as {__name__=~"http.*"}'
        return f"{len(names)} metrics\n{table(['name', 'type', 'meaning'], rows)}" + left_out(
            len(rows), len(names), "metrics", advice
        )

    def _links(self, query: str, end: float, minutes: int) -> list[tuple[str, str]]:
        if self.link_base is None:
            return []
        at = moment(end).replace("T", " ").removesuffix("Z")
        shown = {"g0.expr": query, "g0.tab": "0", "g0.range_input": f"{minutes}m", "g0.end_input": at}
        page = FarEnd(NAME, self.link_base, self.far_end.session, {})
        return [(f"{NAME}: {one_line(query, 80)}", page.link("/graph", shown))]


def _meaning(name: str, meanings: Mapping[str, list[Meaning]]) -> list[str]:
    """Type and help of a metric; the parts of a histogram carry the histogram's, a counter that of its bare name."""
    for ending in ("", "_bucket", "_sum", "_count", "_total"):
        base = name.removesuffix(ending)
        if meanings.get(base):
            return [meanings[base][0].type, meanings[base][0].help]
    return ["", ""]


def labels_text(found: list[dict[str, str]], meanings: Mapping[str, list[Meaning]]) -> str:
    """For each metric its type and meaning, and its labels with their first values."""
    metrics: dict[str, list[dict[str, str]]] = {}
    for labels in found:
        metrics.setdefault(labels.get("__name__", ""), []).append(labels)
    parts = [f"{len(found)} series of {len(metrics)} metrics in the last hour"]
    for name, series in sorted(metrics.items()):
        kind, meaning = _meaning(name, meanings)
        said = one_line(": ".join(part for part in (kind, meaning) if part))
        parts.append(f"{name} ({len(series)} series{f', {said}' if said else ''})")
        values: dict[str, set[str]] = {}
        for labels in series:
            for key, value in labels.items():
                values.setdefault(key, set()).add(value)
        parts += [f"  {key}: {_some(values[key])}" for key in sorted(values) if key != "__name__"]
    return "\n".join(parts)


def _some(values: set[str]) -> str:
    first: list[Any] = sorted(values)[:MOST_VALUES]
    more = f", and {len(values) - len(first)} more" if len(values) > len(first) else ""
    return ", ".join(one_line(value, 80) for value in first) + more
