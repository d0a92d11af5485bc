"""Which unit the values of a PromQL expression have, where its metric names and functions leave no doubt.

Prometheus knows no units: the convention is in the names (`_bytes`, `_seconds`, `_ratio`). A wrong unit is worse
than none, so whatever multiplies or divides, counts, or mixes names of different units has none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit in its sizes: (how much of the base unit, what it is called), the smallest first."""

    sizes: tuple[tuple[float, str], ...]

    def size(self, largest: float) -> tuple[float, str]:
        """The size in which values up to `largest` read well."""
        fitting = [size for size in self.sizes if size[0] <= largest]
        return fitting[-1] if fitting else self.sizes[0]


def _binary(behind: str) -> Unit:
    words = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
    return Unit(tuple((1024.0**power, f"{word}{behind}") for power, word in enumerate(words)))


NONE = Unit(((1.0, ""),))
BYTES = _binary("")
BYTES_PER_SECOND = _binary("/s")
PER_SECOND = Unit(((1.0, "per second"),))
SECONDS = Unit(((1e-6, "µs"), (1e-3, "ms"), (1.0, "s"), (60.0, "min"), (3_600.0, "h"), (86_400.0, "d")))
RATIO = Unit(((0.01, "%"),))
PERCENT = Unit(((1.0, "%"),))
CELSIUS = Unit(((1.0, "°C"),))

BY_ENDING = {
    "_bytes": BYTES,
    "_seconds": SECONDS,
    "_ratio": RATIO,
    "_percent": PERCENT,
    "_celsius": CELSIUS,
}
MOMENTS = ("_timestamp_seconds", "start_time_seconds", "boot_time_seconds", "node_time_seconds")
"""Seconds since the epoch are no duration."""

_QUOTED = re.compile(r"\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|`[^`]*`")
_COMMENT = re.compile(r"#[^\n]*")
_INSIDE = re.compile(r"\{[^{}]*\}|\[[^\[\]]*\]")
_LABELS = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^()]*\)")
_OFFSET = re.compile(r"\b(?:offset\s+-?\s*\w+|@\s*(?:[\d.]+|start\(\)|end\(\)))")
_CALCULATES = re.compile(r"[*/%^]|\b(?:bool|atan2)\b")
_WORD = re.compile(r"(?<![\w.:])([A-Za-z_:][\w:]*)\s*(\(?)")
_RATES = {"rate", "irate", "deriv"}
_UNITLESS = re.compile(
    r"count\w*|group|absent\w*|changes|resets|time|timestamp|minute|hour|day\w*|month|year|present_over_time|stdvar\w*"
    r"|ln|log2|log10|exp|sqrt|sgn|histogram_count|histogram_fraction|a?(?:sin|cos|tan)h?|deg|rad"
)
_OF_OBSERVATIONS = {"histogram_quantile", "histogram_avg", "histogram_stddev"}
_KEYWORD = re.compile(
    r"and|or|unless|by|without|on|ignoring|group_left|group_right|inf|nan|pi|vector|scalar", re.IGNORECASE
)


def unit_of(query: str) -> Unit:
    """The unit of the values of `query`; `NONE` when it is not clear."""
    bare = _QUOTED.sub("", query)
    for noise in (_COMMENT, _INSIDE, _LABELS, _OFFSET):
        bare = noise.sub(" ", bare)
    found = [(word, bool(bracket)) for word, bracket in _WORD.findall(bare) if not _KEYWORD.fullmatch(word)]
    functions = {word for word, called in found if called}
    names = {word for word, called in found if not called}
    if _CALCULATES.search(bare) or any(_UNITLESS.fullmatch(function) for function in functions):
        return NONE
    rated, observed = bool(functions & _RATES), bool(functions & _OF_OBSERVATIONS)
    units = {_of_name(name, rated=rated, observed=observed) for name in names}
    return units.pop() if len(units) == 1 else NONE


def _of_name(name: str, *, rated: bool, observed: bool) -> Unit:
    """The unit of one metric: `rated` by its change per second, `observed` as what a histogram has seen."""
    if ":" in name or name.endswith(MOMENTS):
        return NONE
    base = name.removesuffix("_total").removesuffix("_sum")
    if observed:
        base = base.removesuffix("_bucket")
    own = next((unit for ending, unit in BY_ENDING.items() if base.endswith(ending)), NONE)
    if not rated or observed:
        return own
    return {BYTES: BYTES_PER_SECOND, NONE: PER_SECOND}.get(own, NONE)
