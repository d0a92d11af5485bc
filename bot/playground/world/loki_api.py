"""Loki's HTTP API over the log streams of the playground, with its JSON shapes and its plain-text errors."""

from __future__ import annotations

import asyncio
import heapq
import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from aiohttp import web

from bot.playground.world.logql import Pipeline, is_metric, log_query, metric_query
from bot.playground.world.logs import Stream
from bot.playground.world.prometheus_api import number_text
from bot.playground.world.promql import Unsupported, seconds
from bot.playground.world.vectors import BadQuery, Sample

HOUR_S = 3600.0
LONGEST_S = 24 * HOUR_S
MOST_LINES = 5_000
MOST_QUERY_CHARS = 4_000
REFUSAL = "the playground's Loki cannot evaluate "
Parameters = Mapping[str, Sequence[str]]


class Refused(Exception):
    """A plain-text error with its status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status, self.text = status, text


async def answer(path: str, given: Parameters, streams: Sequence[Stream], now: float) -> web.Response:
    """Answer one request; `path` is what follows the prefix."""
    if path == "/ready":
        return web.Response(text="ready\n")
    try:
        return web.json_response(
            {"status": "success", "data": await asyncio.to_thread(_data, path, given, streams, now)}
        )
    except Refused as error:
        return web.Response(status=error.status, text=error.text)
    except BadQuery as error:
        return web.Response(status=400, text=str(error))
    except Unsupported as error:
        return web.Response(status=400, text=f"parse error: {REFUSAL}{error}")
    except RecursionError:
        return web.Response(status=400, text=f"parse error: {REFUSAL}an expression that is nested so deeply")


def _data(path: str, given: Parameters, streams: Sequence[Stream], now: float) -> Any:
    match path.removeprefix("/loki/api/v1").split("/")[1:]:
        case ["query_range"]:
            end = _time(given, "end", now)
            start = _time(given, "start", end - HOUR_S)
            return _range(_query(given), given, streams, (start, min(end, now)))
        case ["query"]:
            t = _time(given, "time", now)
            if not is_metric(query := _query(given)):
                raise Refused(400, "log queries are not supported as an instant query type, please change your query "
                              "to a range query type")  # fmt: skip
            value = metric_query(query, streams, t, t)(t)
            samples = value if isinstance(value, list) else [Sample({}, value)]
            result = [{"metric": one.labels, "value": [t, number_text(one.value)]} for one in samples]
            return {"resultType": "vector", "result": result, "stats": {}}
        case ["labels" | "label"]:
            return sorted({name for stream in _alive(given, streams, now) for name in stream.labels})
        case ["label", name, "values"]:
            return sorted({s.labels[name] for s in _alive(given, streams, now) if name in s.labels})
        case ["series"]:
            return [stream.labels for stream in _alive(given, streams, now)]
        case _:
            raise Refused(404, "404 page not found\n")


def _query(given: Parameters) -> str:
    query = given.get("query", [""])[0]
    if not query.strip():
        raise Refused(400, "parse error : syntax error: unexpected $end")
    if len(query) > MOST_QUERY_CHARS:
        raise Refused(400, f"query length exceeds limit: {MOST_QUERY_CHARS} characters")
    return query


def _time(given: Parameters, name: str, default: float) -> float:
    """Seconds, nanoseconds (as Loki tells them apart: by the number of digits) or RFC 3339."""
    text = given.get(name, [""])[0]
    if not text:
        return default
    try:
        number = float(text)
        number = number / 1e9 if number > 1e11 else number
    except ValueError:
        try:
            number = datetime.fromisoformat(text).timestamp()
        except ValueError:
            number = math.nan
    if not math.isfinite(number):
        raise Refused(400, f"could not parse '{name}' parameter: cannot parse {text!r} to a valid timestamp")
    return number


def _alive(given: Parameters, streams: Sequence[Stream], now: float) -> list[Stream]:
    end = _time(given, "end", now)
    start = _time(given, "start", end - 6 * HOUR_S)
    chosen = [log_query(text).keep for name in ("query", "match[]", "match") for text in given.get(name, []) if text]
    return [
        stream
        for stream in streams
        if stream.since <= end and stream.until > start
        if not chosen or any(keep(stream.labels) for keep in chosen)
    ]


def _whole(given: Parameters, name: str, default: int, most: int) -> int:
    text = given.get(name, [str(default)])[0]
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise Refused(400, f"{name} must be a positive value")
    if int(text) > most:
        raise Refused(400, f"max entries {name} per query exceeded, {name} > max_entries_{name} ({text} > {most})")
    return int(text)


def _range(query: str, given: Parameters, streams: Sequence[Stream], span: tuple[float, float]) -> Any:
    start, end = span
    if end - start > LONGEST_S:
        length = f"{(end - start) / HOUR_S:.0f}h0m0s"
        raise Refused(400, f"the query time range exceeds the limit (query length: {length}, limit: 24h0m0s)")
    if is_metric(query):
        return _matrix(query, _step(given, end - start), streams, span)
    pipeline, limit = log_query(query), _whole(given, "limit", 100, MOST_LINES)
    if given.get("direction", ["backward"])[0].lower() != "backward":
        raise Refused(400, f"{REFUSAL}direction=forward")
    found: dict[tuple[tuple[str, str], ...], list[list[str]]] = {}
    for t, line, labels in _newest(pipeline, streams, span, limit):
        found.setdefault(tuple(sorted(labels.items())), []).append([str(round(t * 1e3) * 1_000_000), line])
    result = [{"stream": dict(labels), "values": values} for labels, values in found.items()]
    return {"resultType": "streams", "result": result, "stats": {}}


def _newest(
    pipeline: Pipeline, streams: Sequence[Stream], span: tuple[float, float], limit: int
) -> list[tuple[float, str, dict[str, str]]]:
    chosen = [pipeline.backwards(stream, *span) for stream in streams if pipeline.keep(stream.labels)]
    merged = heapq.merge(*chosen, key=lambda entry: -entry[0])
    return [entry for entry, _ in zip(merged, range(limit), strict=False)]


def _step(given: Parameters, width_s: float) -> float:
    text = given.get("step", [""])[0]
    try:
        step = float(text) if text else max(width_s // 250, 1.0)
    except ValueError:
        try:
            step = seconds(text)
        except BadQuery:
            step = 0.0
    if not step > 0 or width_s / step > 11_000:
        raise Refused(400, f"invalid step {text!r}: it must be above 0 and give at most 11,000 points")
    return step


def _matrix(query: str, step: float, streams: Sequence[Stream], span: tuple[float, float]) -> Any:
    start, end = span
    value_at = metric_query(query, streams, start, end)
    rows: dict[tuple[tuple[str, str], ...], list[list[Any]]] = {}
    for index in range(int((end - start) / step) + 1):
        t = start + index * step
        value = value_at(t)
        for one in value if isinstance(value, list) else [Sample({}, value)]:
            rows.setdefault(tuple(sorted(one.labels.items())), []).append([t, number_text(one.value)])
    result = [{"metric": dict(labels), "values": values} for labels, values in sorted(rows.items())]
    return {"resultType": "matrix", "result": result, "stats": {}}
