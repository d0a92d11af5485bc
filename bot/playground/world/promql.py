"""PromQL for the playground: `promql-parser` reads it, this compiles it to closures over the world's series.

`compiled(expression, source)` gives a function of time; series are looked up once, at compile time. What is not
in the tables of `functions` raises `Unsupported` with a sentence for the caller: a model asks freely, and a wrong
answer would be worse than none.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import promql_parser as ast

from bot.playground.world.functions import (
    AGGREGATES,
    OPERATORS,
    POINTWISE,
    Points,
    RangeFunction,
    histogram_quantiles,
)
from bot.playground.world.vectors import (
    BadQuery,
    Key,
    Labels,
    Sample,
    combined,
    group_key,
    joined,
    nameless,
    quantile,
    ranked,
    set_operation,
)

T = TypeVar("T")

LOOKBACK_S = 300.0
MOST_WORK = 8_000_000


class Unsupported(Exception):
    """The query is fine, but the playground can't evaluate it."""


@dataclass(slots=True)
class Budget:
    """How much more one query may cost, a touched sample being 1: an answer in seconds, or none."""

    left: int = MOST_WORK

    def take(self, count: int) -> None:
        self.left -= count
        if self.left < 0:
            raise Unsupported("queries over so many samples: ask for less time, fewer series or a larger step")


Value = float | list[Sample]
Compiled = Callable[[float], Value]
Vector = Callable[[float], list[Sample]]


class Stored(Protocol):
    """A series as a source keeps it. `within` is left-open: since < t <= until."""

    labels: Labels

    def at(self, t: float) -> float | None: ...

    def within(self, since: float, until: float) -> Points: ...


class Source(Protocol):
    """Where series come from. `ranges` are the functions over range vectors that it knows."""

    @property
    def ranges(self) -> Mapping[str, RangeFunction]: ...

    def select(self, keep: Callable[[Labels], bool], name: str | None) -> Sequence[Stored]: ...


def parsed(query: str) -> ast.Expr:
    """The syntax tree. Raises BadQuery with the parser's words."""
    return _understood(ast.parse, query)


def seconds(duration: str) -> float:
    """The seconds of `5m`. Raises BadQuery."""
    return _understood(ast.parse_duration, duration).total_seconds()


def _understood(parse: Callable[[str], T], text: str) -> T:
    """What the parser makes of `text`. The parser's panics (a number too large for a duration) are no `Exception`."""
    try:
        return parse(text)
    except ValueError as error:
        raise BadQuery(f"parse error: {error}") from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise BadQuery(f"parse error: {error}") from error


def matching(matchers: ast.Matchers) -> Callable[[Labels], bool]:
    """A test for labels: matchers are anchored, and a label that is missing is empty."""
    if matchers.or_matchers:
        raise Unsupported("'or' between label matchers")
    tests = [(matcher.name, *_test(matcher)) for matcher in matchers.matchers]
    return lambda labels: all(test(labels.get(name, "")) == wanted for name, test, wanted in tests)


def _test(matcher: ast.Matcher) -> tuple[Callable[[str], bool], bool]:
    value, positive = matcher.value, matcher.op in (ast.MatchOp.Equal, ast.MatchOp.Re)
    if matcher.op in (ast.MatchOp.Equal, ast.MatchOp.NotEqual):
        return lambda text: text == value, positive
    try:
        pattern = re.compile(value, re.DOTALL)
    except (re.error, OverflowError, RecursionError) as error:
        raise Unsupported(f"the regular expression {value!r} ({error})") from error
    return lambda text: pattern.fullmatch(text) is not None, positive


def compiled(expression: ast.Expr, source: Source) -> Compiled:
    """The expression as a function of time. Raises Unsupported or BadQuery."""
    match expression:
        case ast.NumberLiteral():
            number = expression.val
            return lambda t: number
        case ast.ParenExpr():
            return compiled(expression.expr, source)
        case ast.UnaryExpr():
            return _negated(compiled(expression.expr, source))
        case ast.VectorSelector():
            return _instant(expression, source)
        case ast.Call():
            return _call(expression, source)
        case ast.AggregateExpr():
            return _aggregate(expression, source)
        case ast.BinaryExpr():
            return _binary(expression, source)
        case ast.SubqueryExpr():
            raise Unsupported("subqueries such as x[1h:5m]")
        case ast.MatrixSelector():
            raise Unsupported("a range vector in this place")
        case _:
            raise Unsupported(f"expressions of the kind {type(expression).__name__}")


def stored(selector: ast.VectorSelector, source: Source) -> tuple[Sequence[Stored], float]:
    """The series that a selector names, and its offset in seconds."""
    if selector.at is not None:
        raise Unsupported("the @ modifier")
    offset_s = selector.offset.total_seconds() if selector.offset else 0.0
    return source.select(matching(selector.matchers), selector.name), offset_s


def _vector(expression: Any, source: Source, what: str) -> Vector:
    inner = compiled(expression, source)

    def value(t: float) -> list[Sample]:
        found = inner(t)
        if isinstance(found, list):
            return found
        raise BadQuery(f"expected an instant vector in {what}")

    return value


def _number(expression: Any, source: Source, what: str) -> Callable[[float], float]:
    inner = compiled(expression, source)

    def value(t: float) -> float:
        found = inner(t)
        if isinstance(found, list):
            raise BadQuery(f"expected a scalar in {what}")
        return found

    return value


def _instant(selector: ast.VectorSelector, source: Source) -> Compiled:
    series, offset_s = stored(selector, source)

    def value(t: float) -> Value:
        found = ((one.labels, one.at(t - offset_s)) for one in series)
        return [Sample(labels, number) for labels, number in found if number is not None]

    return value


def _negated(inner: Compiled) -> Compiled:
    def value(t: float) -> Value:
        found = inner(t)
        return [Sample(nameless(s.labels), -s.value) for s in found] if isinstance(found, list) else -found

    return value


def _call(call: ast.Call, source: Source) -> Compiled:
    name, args = call.func.name, call.args
    if name in source.ranges:
        return _over_range(name, args[0], source)
    if name in POINTWISE:
        return _pointwise(name, args, source)
    if name == "histogram_quantile":
        share, buckets = _number(args[0], source, name), _vector(args[1], source, name)
        return lambda t: [Sample(*found) for found in histogram_quantiles(share(t), pairs(buckets(t)))]
    if name == "vector":
        number = _number(args[0], source, name)
        return lambda t: [Sample({}, number(t))]
    if name == "time":
        return lambda t: t
    if name == "scalar":
        one = _vector(args[0], source, name)
        return lambda t: found[0].value if len(found := one(t)) == 1 else math.nan
    if name in ("sort", "sort_desc"):
        inner, backwards = _vector(args[0], source, name), name == "sort_desc"
        return lambda t: sorted(inner(t), key=lambda s: s.value, reverse=backwards)
    known = ", ".join(sorted({*source.ranges, *POINTWISE, "histogram_quantile", "vector", "scalar", "time", "sort"}))
    raise Unsupported(f"the function {name}() (it knows {known})")


def pairs(samples: list[Sample]) -> list[tuple[Labels, float]]:
    return [(sample.labels, sample.value) for sample in samples]


def _over_range(name: str, argument: Any, source: Source) -> Compiled:
    if not isinstance(argument, ast.MatrixSelector):
        raise Unsupported(f"{name}() over anything but a plain range such as x[5m]")
    series, offset_s = stored(argument.vector_selector, source)
    width_s, function = argument.range.total_seconds(), source.ranges[name]
    labels = [one.labels if name == "last_over_time" else nameless(one.labels) for one in series]

    def value(t: float) -> Value:
        until = t - offset_s
        found = []
        for one, its in zip(series, labels, strict=True):
            number = function(one.within(until - width_s, until), until - width_s, until)
            if number is not None:
                found.append(Sample(its, number))
        return found

    return value


def _pointwise(name: str, args: list[Any], source: Source) -> Compiled:
    inner = _vector(args[0], source, name)
    rest = [_number(argument, source, name) for argument in args[1:]]
    function = POINTWISE[name]

    def value(t: float) -> Value:
        numbers = [one(t) for one in rest]
        return [Sample(nameless(s.labels), function(s.value, *numbers)) for s in inner(t)]

    return value


def _aggregate(expression: ast.AggregateExpr, source: Source) -> Compiled:
    name, modifier = str(expression.op), expression.modifier
    inner = _vector(expression.expr, source, name)
    names = frozenset(modifier.labels) if modifier else frozenset[str]()
    keep = modifier is None or modifier.type == ast.AggModifierType.By
    if name not in AGGREGATES and name not in ("topk", "bottomk", "quantile"):
        raise Unsupported(
            f"the aggregation {name} (it knows {', '.join([*AGGREGATES, 'topk', 'bottomk', 'quantile'])})"
        )
    number = _number(expression.param, source, name) if expression.param is not None else None

    def value(t: float) -> Value:
        groups: dict[Key, list[Sample]] = {}
        for sample in inner(t):
            groups.setdefault(group_key(sample.labels, names, keep), []).append(sample)
        if number is None:
            return [Sample(dict(key), AGGREGATES[name]([s.value for s in group])) for key, group in groups.items()]
        amount = number(t)
        if name == "quantile":
            return [Sample(dict(key), quantile(amount, group)) for key, group in groups.items()]
        return [kept for group in groups.values() for kept in ranked(name, amount, group)]

    return value


def _binary(expression: ast.BinaryExpr, source: Source) -> Compiled:
    name, modifier = str(expression.op), expression.modifier
    left, right = compiled(expression.lhs, source), compiled(expression.rhs, source)
    boolean = bool(modifier and modifier.return_bool)
    if modifier and modifier.group_labels is not None:
        raise Unsupported("group_left and group_right")
    names, keep = None, False
    if modifier and modifier.matching:
        names = frozenset(modifier.matching.labels)
        keep = modifier.matching.type == ast.LabelModifierType.Include
    if name in ("and", "or", "unless"):
        return lambda t: set_operation(name, _as_vector(left(t)), _as_vector(right(t)), names, keep)
    if name not in OPERATORS:
        raise Unsupported(f"the operator {name}")

    def value(t: float) -> Value:
        one, other = left(t), right(t)
        if isinstance(one, list) and isinstance(other, list):
            return joined(name, one, other, names, keep, boolean)
        if isinstance(one, list):
            return [new for s in one if (new := combined(name, s, s.value, float(other), boolean))]  # type: ignore[arg-type]
        if isinstance(other, list):
            return [new for s in other if (new := combined(name, s, one, s.value, boolean))]
        return OPERATORS[name](one, other)

    return value


def _as_vector(value: Value) -> list[Sample]:
    if isinstance(value, list):
        return value
    raise BadQuery("set operators are allowed between vectors only")
