"""Series as Prometheus and Loki send them, and as a model should read them.

Labels that all series share are said once. A range becomes a summary (first, last, lowest, highest, the largest
change and when) and, for a few series, a thinned table of values with the newest first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from pydantic import BaseModel, TypeAdapter

from bot.tools.reading import shaped
from bot.tools.shaping import clock, left_out, moment, number, one_line, table

MOST_SERIES = 50
MOST_COLUMNS = 6
MOST_ROWS = 30
MOST_SHARED_CHARS = 2_000

Point = tuple[float, float]


class Instant(BaseModel):
    """One element of an instant vector; native histograms carry no `value`."""

    metric: dict[str, str] = {}
    value: Point | None = None
    histogram: Any = None


class Range(BaseModel):
    """One element of a matrix; native histograms carry no `values`."""

    metric: dict[str, str] = {}
    values: list[Point] = []
    histograms: list[Any] = []


class Data(BaseModel):
    """What a query found; the shape of `result` depends on `resultType`."""

    resultType: str
    result: Any


class Response(BaseModel):
    """The envelope of a successful query. `warnings` say that the result may be incomplete."""

    data: Data
    warnings: list[str] = []


RESPONSE = TypeAdapter(Response)
INSTANTS = TypeAdapter(list[Instant])
RANGES = TypeAdapter(list[Range])
POINT = TypeAdapter(Point)
TEXT_POINT = TypeAdapter(tuple[float, str])


def named(labels: dict[str, str]) -> str:
    """`name{a="b"}` as people write it."""
    inner = ",".join(f'{key}="{value}"' for key, value in sorted(labels.items()) if key != "__name__")
    return f"{labels.get('__name__', '')}{{{inner}}}" if inner else labels.get("__name__", "(no labels)")


def split_labels(all_labels: Sequence[dict[str, str]]) -> tuple[dict[str, str], list[str]]:
    """The labels that all of them share, and the names of the others."""
    if not all_labels:
        return {}, []
    shared = set(all_labels[0].items()).intersection(*(labels.items() for labels in all_labels[1:]))
    names = {name for labels in all_labels for name in labels} - {name for name, _ in shared}
    return dict(sorted(shared)), sorted(names)


def shared_line(shared: dict[str, str]) -> str:
    return f"\nthe same for all: {one_line(named(shared), MOST_SHARED_CHARS)}" if shared else ""


def text_of(name: str, response: Response) -> str:
    """What a query found, as text. Raises ToolError for a shape that no query has."""
    kind, result = response.data.resultType, response.data.result
    if kind == "vector":
        text = instant_text(shaped(name, INSTANTS, result))
    elif kind == "matrix":
        text = range_text(shaped(name, RANGES, result))
    elif kind == "scalar":
        t, value = shaped(name, POINT, result)
        text = f"{number(value)} (a scalar, at {moment(t)})"
    else:
        t, words = shaped(name, TEXT_POINT, result)
        text = f"{one_line(words)} (a {one_line(kind, 40)}, at {moment(t)})"
    return text + "".join(f"\nwarning: {one_line(warning)}" for warning in response.warnings[:5])


def instant_text(found: list[Instant]) -> str:
    """An instant vector as a table, the largest value first."""
    if not found:
        return "No series matches. Look at the names and labels that exist, or at an earlier time."
    plain = [(one.metric, one.value) for one in found if one.value is not None]
    plain.sort(key=lambda one: (math.isnan(one[1][1]), -one[1][1] if not math.isnan(one[1][1]) else 0.0))
    shared, names = split_labels([labels for labels, _ in plain])
    rows = [[*(labels.get(name, "") for name in names), number(value)] for labels, (_, value) in plain[:MOST_SERIES]]
    at = f" at {moment(plain[0][1][0])}" if plain else ""
    text = f"{len(found)} series{at}{shared_line(shared)}"
    if rows:
        text += "\n" + table([*names, "value"], rows)
    text += left_out(len(rows), len(plain), "series", "aggregate with sum by (...) or topk, or add matchers")
    odd = len(found) - len(plain)
    return text + (f"\n[{odd} native histograms not shown: use histogram_quantile]" if odd else "")


def range_text(found: list[Range]) -> str:
    """A matrix as a summary of each series, and the values themselves if they are few series."""
    plain = [one for one in found if one.values]
    if not plain:
        return "No series has values in this range. Look at the names and labels that exist, or further back."
    plain.sort(key=lambda one: -_highest(one)[1])
    shared, names = split_labels([one.metric for one in plain])
    shown = plain[:MOST_SERIES]
    span = f"{moment(min(one.values[0][0] for one in plain))} to {moment(max(one.values[-1][0] for one in plain))}"
    head = [*names, "first", "last", "lowest", "highest", "largest change"]
    rows = [[*(one.metric.get(name, "") for name in names), *_summary(one.values)] for one in shown]
    text = f"{len(found)} series, {span}{shared_line(shared)}\n{table(head, rows)}"
    text += left_out(len(shown), len(plain), "series", "aggregate with sum by (...) or topk, or add matchers")
    return text + (f"\n\n{_values(plain, names)}" if len(plain) <= MOST_COLUMNS else "")


def _highest(one: Range) -> Point:
    return max(one.values, key=lambda point: -math.inf if math.isnan(point[1]) else point[1])


def _lowest(values: list[Point]) -> Point:
    return min(values, key=lambda point: math.inf if math.isnan(point[1]) else point[1])


def _summary(values: list[Point]) -> list[str]:
    low, high = _lowest(values), max(values, key=lambda p: -math.inf if math.isnan(p[1]) else p[1])
    changes = [(abs(after[1] - before[1]), before, after) for before, after in pairwise(values)]
    size, before, after = max(changes, key=lambda change: _known(change[0]), default=(0.0, values[0], values[0]))
    change = f"{number(before[1])} -> {number(after[1])} at {clock(after[0])}" if _known(size) else "none"
    first = f"{number(values[0][1])} at {clock(values[0][0])}"
    return [
        first,
        number(values[-1][1]),
        f"{number(low[1])} at {clock(low[0])}",
        f"{number(high[1])} at {clock(high[0])}",
        change,
    ]


def _known(size: float) -> float:
    return 0.0 if math.isnan(size) else size


def _values(plain: list[Range], names: list[str]) -> str:
    """Times down, series across, newest first, thinned evenly."""
    times = sorted({t for one in plain for t, _ in one.values}, reverse=True)
    nth = math.ceil(len(times) / MOST_ROWS)
    columns = [dict(one.values) for one in plain]
    heads = [",".join(one.metric.get(name, "-") for name in names) or "value" for one in plain]
    rows = [[clock(t), *(number(column[t]) if t in column else "" for column in columns)] for t in times[::nth]]
    note = f" (every {nth}. point)" if nth > 1 else ""
    return f"values, newest first{note}\n{table(['time', *heads], rows)}"
