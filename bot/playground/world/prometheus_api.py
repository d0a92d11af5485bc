"""Prometheus's HTTP API over the series of the playground, with its JSON shapes and its errors."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import promql_parser as ast
from aiohttp import web

from bot.playground.world.functions import RANGES, Points, RangeFunction
from bot.playground.world.promql import LOOKBACK_S, Budget, Unsupported, compiled, matching, parsed, seconds, stored
from bot.playground.world.series import FAMILIES, Series
from bot.playground.world.vectors import BadQuery, Labels, Sample

SCRAPE_S = 15.0
WORK_OF_A_VALUE = 20
MOST_POINTS = 11_000
MOST_QUERY_CHARS = 4_000
REFUSAL = "the playground's Prometheus cannot evaluate "
Parameters = Mapping[str, Sequence[str]]


@dataclass(slots=True)
class Scraped:
    """A series as a scraper saw it: one value each 15 s, remembered for the query at hand."""

    series: Series
    now: float
    budget: Budget
    labels: Labels = field(init=False)
    seen: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.labels = self.series.labels

    def _value(self, number: int) -> float:
        value = self.seen.get(number)
        if value is None:
            self.budget.take(WORK_OF_A_VALUE)
            value = self.seen[number] = float(self.series.value(number * SCRAPE_S))
        return value

    def at(self, t: float) -> float | None:
        number = math.floor(min(t, self.now) / SCRAPE_S)
        scraped = number * SCRAPE_S
        alive = self.series.since <= scraped < self.series.until and t - scraped <= LOOKBACK_S
        return self._value(number) if alive else None

    def within(self, since: float, until: float) -> Points:
        first = math.floor(max(since, self.series.since - 0.001) / SCRAPE_S) + 1
        last = math.floor(min(until, self.now, self.series.until - 0.001) / SCRAPE_S)
        self.budget.take(max(last - first, 0))
        return [(number * SCRAPE_S, self._value(number)) for number in range(first, last + 1)]


@dataclass(frozen=True, slots=True)
class Scrapes:
    """All series of the world, as a source for PromQL."""

    series: Sequence[Series]
    now: float
    ranges: Mapping[str, RangeFunction] = field(default_factory=lambda: RANGES)
    budget: Budget = field(default_factory=Budget)

    def select(self, keep: Callable[[Labels], bool], name: str | None) -> list[Scraped]:
        return [
            Scraped(one, self.now, self.budget)
            for one in self.series
            if (name is None or one.labels["__name__"] == name) and keep(one.labels)
        ]


class Refused(Exception):
    """An answer in Prometheus's error shape."""

    def __init__(self, status: int, kind: str, text: str) -> None:
        super().__init__(text)
        self.status, self.kind, self.text = status, kind, text


async def answer(path: str, given: Parameters, series: Sequence[Series], now: float) -> web.Response:
    """Answer one request; `path` is what follows the prefix."""
    if path in ("/-/ready", "/-/healthy"):
        return web.Response(text=f"Prometheus Server is {path[3:].capitalize()}.\n")
    try:
        return web.json_response({"status": "success", "data": await _data(path, given, series, now)})
    except Refused as error:
        body = {"status": "error", "errorType": error.kind, "error": error.text}
        return web.json_response(body, status=error.status)
    except BadQuery as error:
        body = {"status": "error", "errorType": "bad_data", "error": f'invalid parameter "query": {error}'}
        return web.json_response(body, status=400)
    except (Unsupported, RecursionError) as error:
        what = str(error) if isinstance(error, Unsupported) else "an expression that is nested so deeply"
        body = {"status": "error", "errorType": "execution", "error": REFUSAL + what}
        return web.json_response(body, status=422)


async def _data(path: str, given: Parameters, series: Sequence[Series], now: float) -> Any:
    source = Scrapes(series, now)
    match path.removeprefix("/api/v1").split("/")[1:]:
        case ["query"]:
            return await asyncio.to_thread(_instant, _query(given), _time(given, "time", now), source)
        case ["query_range"]:
            return await asyncio.to_thread(_range, _query(given), given, source)
        case ["series"]:
            return [labels for labels, _ in _matched(given, source, required=True)]
        case ["labels"]:
            return sorted({name for labels, _ in _matched(given, source) for name in labels})
        case ["label", name, "values"]:
            return sorted({labels[name] for labels, _ in _matched(given, source) if name in labels})
        case ["metadata"]:
            wanted = given.get("metric", [""])[0]
            return {
                name: [{"type": family.type, "help": family.help, "unit": family.unit}]
                for name, family in FAMILIES.items()
                if wanted in ("", name)
            }
        case ["status", "buildinfo"]:
            return {"version": "3.7.3", "revision": "playground", "goVersion": "go1.25"}
        case _:
            raise Refused(404, "not_found", f"the playground's Prometheus has no {path}")


def _query(given: Parameters) -> str:
    query = given.get("query", [""])[0]
    if not query.strip():
        raise Refused(400, "bad_data", 'invalid parameter "query": parse error: no expression found in input')
    if len(query) > MOST_QUERY_CHARS:
        raise Refused(422, "execution", f"{REFUSAL}queries of more than {MOST_QUERY_CHARS} characters")
    return query


def _time(given: Parameters, name: str, default: float | None) -> float:
    text = given.get(name, [""])[0]
    if not text and default is not None:
        return default
    try:
        number = float(text)
    except ValueError:
        number = _rfc3339(name, text)
    if not math.isfinite(number) or abs(number) > 1e11:
        raise Refused(400, "bad_data", f'invalid parameter "{name}": cannot parse "{text}" to a valid timestamp')
    return number


def _rfc3339(name: str, text: str) -> float:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise Refused(400, "bad_data", f'invalid parameter "{name}": cannot parse "{text}" to a valid timestamp')
    return moment.timestamp()


def _step(given: Parameters) -> float:
    text = given.get("step", [""])[0]
    try:
        step = float(text)
    except ValueError:
        try:
            step = seconds(text)
        except BadQuery:
            step = math.nan
    if not step > 0 or math.isinf(step):
        raise Refused(400, "bad_data", f'invalid parameter "step": cannot parse "{text}" to a valid duration above 0')
    return step


def number_text(value: float) -> str:
    """A number as Prometheus writes it."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)


def _unique(samples: list[Sample]) -> list[Sample]:
    if len({tuple(sorted(sample.labels.items())) for sample in samples}) < len(samples):
        raise Refused(422, "execution", "vector cannot contain metrics with the same labelset")
    return samples


def _instant(query: str, t: float, source: Scrapes) -> Any:
    expression = parsed(query)
    if isinstance(expression, ast.StringLiteral):
        return {"resultType": "string", "result": [t, expression.val]}
    if isinstance(expression, ast.MatrixSelector):
        found, offset_s = stored(expression.vector_selector, source)
        since, until = t - offset_s - expression.range.total_seconds(), t - offset_s
        raw = [(one.labels, one.within(since, until)) for one in found]
        return {
            "resultType": "matrix",
            "result": [
                {"metric": labels, "values": [[at, number_text(value)] for at, value in points]}
                for labels, points in raw
                if points
            ],
        }
    value = compiled(expression, source)(t)
    if not isinstance(value, list):
        return {"resultType": "scalar", "result": [t, number_text(value)]}
    result = [{"metric": one.labels, "value": [t, number_text(one.value)]} for one in _unique(value)]
    return {"resultType": "vector", "result": result}


def _range(query: str, given: Parameters, source: Scrapes) -> Any:
    start, end, step = _time(given, "start", None), _time(given, "end", None), _step(given)
    if end < start:
        raise Refused(400, "bad_data", 'invalid parameter "end": end timestamp must not be before start time')
    count = int((end - start) / step) + 1
    if count > MOST_POINTS:
        words = f"exceeded maximum resolution of {MOST_POINTS:,} points per timeseries."
        raise Refused(400, "bad_data", f"{words} Try decreasing the query resolution (?step=XX)")
    value_at = compiled(parsed(query), source)
    rows: dict[tuple[tuple[str, str], ...], list[list[Any]]] = {}
    for index in range(count):
        t = start + index * step
        value = value_at(t)
        for one in _unique(value) if isinstance(value, list) else [Sample({}, value)]:
            rows.setdefault(tuple(sorted(one.labels.items())), []).append([t, number_text(one.value)])
    result = [{"metric": dict(labels), "values": values} for labels, values in sorted(rows.items())]
    return {"resultType": "matrix", "result": result}


def _matched(given: Parameters, source: Scrapes, required: bool = False) -> list[tuple[Labels, Scraped]]:
    """Labels and series for the `match[]` parameters, alive between `start` and `end`."""
    selectors = given.get("match[]", [])
    if required and not selectors:
        raise Refused(400, "bad_data", "no match[] parameter provided")
    end = _time(given, "end", source.now)
    start = _time(given, "start", end - 6 * 3600)
    found: dict[tuple[tuple[str, str], ...], Scraped] = {}
    for text in selectors or ['{__name__!=""}']:
        selector = parsed(text) if text != '{__name__!=""}' else None
        if selector is None:
            series: Sequence[Scraped] = source.select(lambda labels: True, None)
        elif isinstance(selector, ast.VectorSelector):
            series = source.select(matching(selector.matchers), selector.name)
        else:
            raise BadQuery(f"{text!r} is not a series selector")
        for one in series:
            if one.series.since <= end and one.series.until > start:
                found[tuple(sorted(one.labels.items()))] = one
    return [(one.labels, one) for one in found.values()]
