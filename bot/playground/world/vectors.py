"""Instant vectors: grouping, joining and ranking their samples."""

from __future__ import annotations

import math
from dataclasses import dataclass

from bot.playground.world.functions import OPERATORS

Labels = dict[str, str]
Key = tuple[tuple[str, str], ...]
COMPARISONS = frozenset({"==", "!=", ">", "<", ">=", "<="})


class BadQuery(Exception):
    """The query itself is wrong."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One element of an instant vector."""

    labels: Labels
    value: float


def nameless(labels: Labels) -> Labels:
    return {key: text for key, text in labels.items() if key != "__name__"}


def group_key(labels: Labels, names: frozenset[str] | None, keep: bool) -> Key:
    """The part of `labels` that counts: those in `names` if `keep`, else all others but the metric's name."""
    if names is None:
        names, keep = frozenset(), False
    return tuple(
        sorted((k, v) for k, v in labels.items() if (k in names) == keep and (keep or k != "__name__") and v)
    )


def ranked(name: str, amount: float, group: list[Sample]) -> list[Sample]:
    count = int(amount) if math.isfinite(amount) else 0
    return sorted(group, key=lambda s: s.value, reverse=name == "topk")[: max(count, 0)]


def quantile(share: float, group: list[Sample]) -> float:
    if math.isnan(share) or not 0 <= share <= 1:
        return math.nan if math.isnan(share) else math.copysign(math.inf, share)
    values = sorted(sample.value for sample in group)
    place = share * (len(values) - 1)
    low, high = math.floor(place), math.ceil(place)
    return values[low] + (values[high] - values[low]) * (place - low)


def combined(name: str, sample: Sample, left: float, right: float, boolean: bool) -> Sample | None:
    result = OPERATORS[name](left, right)
    if name in COMPARISONS and not boolean:
        return sample if result else None
    return Sample(nameless(sample.labels), result)


def joined(
    name: str, one: list[Sample], other: list[Sample], names: frozenset[str] | None, keep: bool, boolean: bool
) -> list[Sample]:
    right: dict[Key, Sample] = {}
    for sample in other:
        if right.setdefault(key := group_key(sample.labels, names, keep), sample) is not sample:
            raise BadQuery(f"found duplicate series for the match group {dict(key)} on the right hand-side")
    found: list[Sample] = []
    seen: set[Key] = set()
    for sample in one:
        key = group_key(sample.labels, names, keep)
        if key not in right:
            continue
        if key in seen:
            raise BadQuery("multiple matches for labels: many-to-one matching must be explicit (group_left)")
        seen.add(key)
        labels = sample.labels if name in COMPARISONS and not boolean else dict(key)
        if new := combined(name, Sample(labels, sample.value), sample.value, right[key].value, boolean):
            found.append(new)
    return found


def set_operation(
    name: str, one: list[Sample], other: list[Sample], names: frozenset[str] | None, keep: bool
) -> list[Sample]:
    left = {group_key(s.labels, names, keep) for s in one}
    right = {group_key(s.labels, names, keep) for s in other}
    if name == "or":
        return one + [s for s in other if group_key(s.labels, names, keep) not in left]
    return [s for s in one if (group_key(s.labels, names, keep) in right) == (name == "and")]
