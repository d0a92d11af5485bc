"""LogQL for the playground: a stream selector, line filters, `| json`, `| logfmt` and simple label filters; and
metric queries over them.

Two things are borrowed from PromQL: its parser reads the `{...}` of a stream selector, and a metric query is
evaluated as PromQL in which each log range stands as a series that has a sample of 1 for each line.
"""

from __future__ import annotations

import json
import operator
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import promql_parser as ast

from bot.playground.world.functions import Points, RangeFunction
from bot.playground.world.logs import Stream
from bot.playground.world.promql import Budget, Compiled, Unsupported, compiled, matching, parsed, seconds
from bot.playground.world.vectors import BadQuery, Labels

STRING = r'"(?:\\.|[^"\\])*"|`[^`]*`'
SELECTOR = re.compile(rf"\{{(?:{STRING}|[^\"`{{}}])*\}}")
LINE_FILTER = re.compile(rf"\s*(\|=|!=|\|~|!~)\s*({STRING})")
PARSER = re.compile(r"\s*\|\s*(json|logfmt)\b(?!\s*[=\w])")
LABEL_FILTER = re.compile(
    rf"\s*\|\s*([a-zA-Z_]\w*)\s*(==|=~|!~|!=|>=|<=|=|>|<)\s*({STRING}|-?\d+(?:\.\d+)?)(?!\s*(?:and|or)\b|[\w.])"
)
RANGE = re.compile(r"\s*\[([^\]]*)\]")
LOGFMT = re.compile(r'([^\s="]+)=(?:"((?:\\.|[^"\\])*)"|(\S*))')

LONGEST_RANGE_S = 86_400.0
Step = Callable[[str, Labels], bool]
COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    "==": operator.eq, "!=": operator.ne, ">": operator.gt, "<": operator.lt, ">=": operator.ge, "<=": operator.le,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A stream selector and what its lines go through. A step may add labels and says whether the line stays."""

    keep: Callable[[Labels], bool]
    steps: tuple[Step, ...]
    adds_labels: bool

    def backwards(self, stream: Stream, since: float, until: float) -> Iterator[tuple[float, str, Labels]]:
        for t, line in stream.backwards(since, until):
            labels = dict(stream.labels) if self.adds_labels else stream.labels
            if all(step(line, labels) for step in self.steps):
                yield t, line, labels


def is_metric(query: str) -> bool:
    return not query.lstrip().startswith("{")


def log_query(query: str) -> Pipeline:
    """Read a log query. Raises BadQuery or Unsupported."""
    pipeline, end = _pipeline(query.strip(), 0)
    if rest := query.strip()[end:].strip():
        raise Unsupported(
            f"{rest[:60]!r}: it knows |= != |~ !~, | json, | logfmt, and single label filters such as | status >= 500"
        )
    return pipeline


def _pipeline(text: str, start: int) -> tuple[Pipeline, int]:
    selector = SELECTOR.match(text, start)
    if selector is None:
        raise BadQuery('parse error: a log query begins with a stream selector such as {app="gateway"}')
    expression = parsed(selector.group().replace("`", '"') if "`" in selector.group() else selector.group())
    if not isinstance(expression, ast.VectorSelector):
        raise BadQuery("parse error: expected a stream selector")
    steps, end, adds = [], selector.end(), False
    while True:
        if found := LINE_FILTER.match(text, end):
            steps.append(_line_filter(found.group(1), _text(found.group(2))))
        elif found := PARSER.match(text, end):
            steps.append(_json if found.group(1) == "json" else _logfmt)
            adds = True
        elif found := LABEL_FILTER.match(text, end):
            steps.append(_label_filter(*found.groups()))
        else:
            return Pipeline(matching(expression.matchers), tuple(steps), adds), end
        end = found.end()


def _text(literal: str) -> str:
    if literal.startswith("`"):
        return literal[1:-1]
    try:
        return str(json.loads(literal))
    except ValueError as error:
        raise BadQuery(f"parse error: {literal[:40]} is not a valid string") from error


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise Unsupported(f"the regular expression {text!r} ({error})") from error


def _line_filter(kind: str, text: str) -> Step:
    if kind in ("|=", "!="):
        return lambda line, labels: (text in line) == (kind == "|=")
    pattern = _pattern(text)
    return lambda line, labels: (pattern.search(line) is not None) == (kind == "|~")


def _label_filter(name: str, kind: str, literal: str) -> Step:
    if literal[0] in '"`':
        text = _text(literal)
        if kind in ("=", "!="):
            return lambda line, labels: (labels.get(name, "") == text) == (kind == "=")
        if kind in ("=~", "!~"):
            pattern = _pattern(text)
            return lambda line, labels: (pattern.fullmatch(labels.get(name, "")) is not None) == (kind == "=~")
        raise BadQuery(f"parse error: {kind} compares numbers, not strings")
    number, test = float(literal), COMPARE.get("==" if kind == "=" else kind)
    if test is None:
        raise BadQuery(f"parse error: {kind} needs a string")

    def compare(line: str, labels: Labels) -> bool:
        try:
            return test(float(labels.get(name, "")), number)
        except ValueError:
            return False

    return compare


def _json(line: str, labels: Labels) -> bool:
    try:
        entry = json.loads(line)
    except ValueError:
        labels["__error__"] = "JSONParserErr"
        return True
    if isinstance(entry, dict):
        _add(labels, {key: value if isinstance(value, str) else json.dumps(value) for key, value in entry.items()})
    return True


def _logfmt(line: str, labels: Labels) -> bool:
    _add(labels, {found[1]: found[2] if found[2] is not None else found[3] for found in LOGFMT.finditer(line)})
    return True


def _add(labels: Labels, found: Mapping[str, Any]) -> None:
    for key, value in found.items():
        name = re.sub(r"\W", "_", key).strip("_")
        labels[f"{name}_extracted" if name in labels else name] = str(value)


@dataclass(slots=True)
class LogSeries:
    """The lines of one set of labels, as samples of 1."""

    labels: Labels
    times: list[float]
    budget: Budget

    def at(self, t: float) -> float | None:
        return None

    def within(self, since: float, until: float) -> Points:
        first, last = bisect_right(self.times, since), bisect_right(self.times, until)
        self.budget.take(last - first)
        return [(t, 1.0) for t in self.times[first:last]]


@dataclass(slots=True)
class LogSource:
    """The log ranges of one metric query, by the names under which they stand in it."""

    streams: Sequence[Stream]
    since: float
    until: float
    pipelines: dict[str, Pipeline] = field(default_factory=dict)
    budget: Budget = field(default_factory=Budget)
    ranges: Mapping[str, RangeFunction] = field(
        default_factory=lambda: {
            "count_over_time": lambda points, since, until: float(len(points)) if points else None,
            "rate": lambda points, since, until: len(points) / (until - since) if points else None,
        }
    )

    def select(self, keep: Callable[[Labels], bool], name: str | None) -> list[LogSeries]:
        pipeline = self.pipelines.get(name or "")
        if pipeline is None:
            raise BadQuery(f"parse error: unexpected identifier {name}")
        found: dict[tuple[tuple[str, str], ...], LogSeries] = {}
        for stream in self.streams:
            if not pipeline.keep(stream.labels):
                continue
            for t, _, labels in pipeline.backwards(stream, self.since, self.until):
                found.setdefault(tuple(sorted(labels.items())), LogSeries(labels, [], self.budget)).times.append(t)
        for series in found.values():
            series.times.sort()
        return list(found.values())


def metric_query(query: str, streams: Sequence[Stream], start: float, end: float) -> Compiled:
    """Read a metric query that will be asked for times from `start` to `end`. Raises BadQuery or Unsupported."""
    source = LogSource(streams, start, end)
    text, place = "", 0
    while selector := SELECTOR.search(query, place):
        pipeline, after = _pipeline(query, selector.start())
        width = RANGE.match(query, after)
        if width is None:
            raise Unsupported(f"{query[after : after + 60]!r} after a log selector: expected a range such as [5m]")
        if seconds(width.group(1)) > LONGEST_RANGE_S:
            raise Unsupported(f"the range [{width.group(1)}]: more than a day")
        source.since = min(source.since, start - seconds(width.group(1)))
        name = f"log_range_{len(source.pipelines)}"
        source.pipelines[name] = pipeline
        text += f"{query[place : selector.start()]}{name}[{width.group(1)}]"
        place = width.end()
    return compiled(parsed(text + query[place:]), source)
