"""The arithmetic of PromQL, as tables: functions over ranges, over single values, aggregations and operators."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise

Points = Sequence[tuple[float, float]]
RangeFunction = Callable[[Points, float, float], float | None]


def _climb(points: Points) -> float:
    """What a counter gained, its resets taken out."""
    gained = points[-1][1] - points[0][1]
    return gained + sum(before[1] for before, after in pairwise(points) if after[1] < before[1])


def _stretched(points: Points, since: float, until: float) -> float | None:
    """`increase` as Prometheus extrapolates it: to the edges of the range, but not past a counter's zero."""
    if len(points) < 2:
        return None
    gained = _climb(points)
    first, last = points[0], points[-1]
    sampled_s = last[0] - first[0]
    usual_s = sampled_s / (len(points) - 1)
    before_s, after_s = first[0] - since, until - last[0]
    if gained > 0 and first[1] >= 0:
        before_s = min(before_s, sampled_s * first[1] / gained)
    width_s = sampled_s
    width_s += before_s if before_s < usual_s * 1.1 else usual_s / 2
    width_s += after_s if after_s < usual_s * 1.1 else usual_s / 2
    return gained * width_s / sampled_s


def _rate(points: Points, since: float, until: float) -> float | None:
    gained = _stretched(points, since, until)
    return None if gained is None else gained / (until - since)


def _irate(points: Points, since: float, until: float) -> float | None:
    if len(points) < 2:
        return None
    (t0, v0), (t1, v1) = points[-2:]
    return (v1 if v1 < v0 else v1 - v0) / (t1 - t0)


def _delta(points: Points, since: float, until: float) -> float | None:
    return points[-1][1] - points[0][1] if len(points) > 1 else None


def _of_values(function: Callable[[list[float]], float]) -> RangeFunction:
    return lambda points, since, until: function([v for _, v in points]) if points else None


def _resets(values: list[float]) -> float:
    return float(sum(after < before for before, after in pairwise(values)))


def _changes(values: list[float]) -> float:
    return float(sum(after != before for before, after in pairwise(values)))


def average(values: list[float]) -> float:
    return math.fsum(values) / len(values)


def deviation(values: list[float]) -> float:
    middle = average(values)
    return math.sqrt(average([(value - middle) ** 2 for value in values]))


RANGES: Mapping[str, RangeFunction] = {
    "rate": _rate,
    "increase": _stretched,
    "irate": _irate,
    "delta": _delta,
    "avg_over_time": _of_values(average),
    "min_over_time": _of_values(min),
    "max_over_time": _of_values(max),
    "sum_over_time": _of_values(math.fsum),
    "count_over_time": _of_values(lambda values: float(len(values))),
    "last_over_time": _of_values(lambda values: values[-1]),
    "resets": _of_values(_resets),
    "changes": _of_values(_changes),
}

POINTWISE: Mapping[str, Callable[..., float]] = {
    "abs": abs,
    "ceil": lambda value: float(math.ceil(value)) if math.isfinite(value) else value,
    "floor": lambda value: float(math.floor(value)) if math.isfinite(value) else value,
    "round": lambda value, to=1.0: math.floor(value / to + 0.5) * to if math.isfinite(value) and to else value,
    "clamp_min": max,
    "clamp_max": min,
}

AGGREGATES: Mapping[str, Callable[[list[float]], float]] = {
    "sum": math.fsum,
    "avg": average,
    "min": min,
    "max": max,
    "count": lambda values: float(len(values)),
    "group": lambda values: 1.0,
    "stddev": deviation,
}


def _divided(left: float, right: float) -> float:
    if right == 0:
        return math.nan if left == 0 or math.isnan(left) else math.copysign(math.inf, left)
    return left / right


def _remainder(left: float, right: float) -> float:
    return math.fmod(left, right) if right and math.isfinite(left) else math.nan


def _power(left: float, right: float) -> float:
    try:
        return math.pow(left, right)
    except (OverflowError, ValueError):
        return math.inf if left > 0 else math.nan


def _truth(test: Callable[[float, float], bool]) -> Callable[[float, float], float]:
    return lambda left, right: 1.0 if test(left, right) else 0.0


OPERATORS: Mapping[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divided,
    "%": _remainder,
    "^": _power,
    "==": _truth(operator.eq),
    "!=": _truth(operator.ne),
    ">": _truth(operator.gt),
    "<": _truth(operator.lt),
    ">=": _truth(operator.ge),
    "<=": _truth(operator.le),
}


def histogram_quantiles(
    share: float, buckets: Iterable[tuple[dict[str, str], float]]
) -> list[tuple[dict[str, str], float]]:
    """`histogram_quantile` for each set of labels besides `le`, interpolated linearly as Prometheus does."""
    groups: dict[tuple[tuple[str, str], ...], list[tuple[float, float]]] = {}
    for labels, count in buckets:
        try:
            bound = float(labels.get("le", ""))
        except ValueError:
            continue
        key = tuple(sorted((k, v) for k, v in labels.items() if k not in ("le", "__name__")))
        groups.setdefault(key, []).append((bound, count))
    return [(dict(key), _interpolated(share, sorted(group))) for key, group in groups.items()]


def _interpolated(share: float, buckets: list[tuple[float, float]]) -> float:
    if len(buckets) < 2 or buckets[-1][0] != math.inf or not buckets[-1][1] or math.isnan(share):
        return math.nan
    if not 0 <= share <= 1:
        return math.copysign(math.inf, share)
    rank, below = share * buckets[-1][1], (0.0, 0.0)
    for bound, count in buckets:
        if count >= rank:
            if bound == math.inf:
                return below[0]
            width = count - below[1]
            return below[0] + (bound - below[0]) * ((rank - below[1]) / width if width else 0.0)
        below = (bound, count)
    return math.nan
