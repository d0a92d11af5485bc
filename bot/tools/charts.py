"""Charts of range queries: what is drawn of a matrix, and in which words it is told.

At most eight lines, those that rise highest; the rest is counted. A line that has more points than the picture has
columns keeps the lowest and the highest of each column, so no spike is lost. Drawing takes a tenth of a second and
more, so it is done by one thread beside the event loop; a cancelled call drops what the thread brings.
"""

from __future__ import annotations

import asyncio
import math
import unicodedata
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

from bot.importing import imported
from bot.tools.series import Point, Range, split_labels
from bot.tools.shaping import clock, moment, one_line
from bot.tools.units import unit_of
from core.ports import Picture
from core.redaction import redact

MOST_LINES = 8
MOST_TOLD = 3
COLUMNS = 440
LARGEST = 1e250
"""What is larger than this can't be put on an axis; it is left out like a missing value."""
NAME = "__name__"
LABEL_CHARS = 200
TITLE_CHARS = 400


@dataclass(frozen=True, slots=True)
class Line:
    """One series as it is drawn. `points` are (seconds since the epoch, value), at least one, without NaN."""

    label: str
    points: Sequence[Point]
    first: Point
    last: Point
    highest: Point


@dataclass(frozen=True, slots=True)
class Chart:
    """Everything that is in a picture. `what` names the labels that tell the lines apart; times in seconds.

    `factor` says how much of the base unit stands for 1 on the axis, and `word` what that is called.
    """

    title: str
    shared: str
    what: str
    factor: float
    word: str
    start: float
    end: float
    step: float
    lines: Sequence[Line]
    more: int

    def say(self, value: float) -> str:
        """A value as people read it, without its unit."""
        return short(value / self.factor)


class Charts:
    """Draws charts, one at a time, with `executor` (of one thread: the drawing library is not made for more)."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    async def draw(self, query: str, found: list[Range], start: float, end: float, step: float) -> Picture | None:
        """A picture of what a range query found; None when there is nothing that a line could show."""
        return await asyncio.get_running_loop().run_in_executor(
            self._executor, _drawn, query, found, start, end, step
        )


def _drawn(query: str, found: list[Range], start: float, end: float, step: float) -> Picture | None:
    chart = chart_of(query, found, start, end, step)
    if chart is None:
        return None
    png: bytes = imported("bot.tools.drawing").png_of(chart)
    return Picture(one_line(chart.title, 150), alt_of(chart), png)


def chart_of(query: str, found: Sequence[Range], start: float, end: float, step: float) -> Chart | None:
    """The chart of a matrix; None when no series has two values that can be drawn, at different times."""
    usable = [(one.metric, _usable(one.values, start - step, end + step)) for one in found]
    drawable = [(labels, points) for labels, points in usable if points]
    if len({t for _, points in drawable for t, _ in points}) < 2:
        return None
    drawable.sort(key=lambda one: -max(value for _, value in one[1]))
    shared, names = split_labels([labels for labels, _ in drawable])
    lines = [
        Line(_label(labels, names), points, points[0], points[-1], max(points, key=lambda point: point[1]))
        for labels, points in drawable[:MOST_LINES]
    ]
    largest = max(abs(value) for line in lines for _, value in line.points)
    factor, word = unit_of(query).size(largest)
    return Chart(
        title=_shown(query, TITLE_CHARS),
        shared=_shown(", ".join(f"{key}={value}" for key, value in shared.items() if key != NAME), LABEL_CHARS),
        what=_shown(", ".join(names), 80),
        factor=factor,
        word=word,
        start=start,
        end=end,
        step=step,
        lines=lines,
        more=len(drawable) - len(lines),
    )


def _usable(values: Sequence[Point], start: float, end: float) -> list[Point]:
    return sorted((t, value) for t, value in values if start <= t <= end and abs(value) < LARGEST)


def _label(labels: dict[str, str], names: Sequence[str]) -> str:
    if not names:
        return _shown(labels.get(NAME, ""), LABEL_CHARS) or "value"
    if len(names) == 1:
        return _shown(labels.get(names[0], ""), LABEL_CHARS) or "(none)"
    return _shown(", ".join(f"{name}={labels[name]}" for name in names if name in labels), LABEL_CHARS) or "(none)"


def _shown(text: str, limit: int) -> str:
    """A text from outside on one line: no secrets, no control characters, nothing that turns the direction."""
    kept = "".join(" " if char.isspace() else char for char in redact(text))
    return one_line("".join(char for char in kept if unicodedata.category(char)[0] != "C"), limit)


def alt_of(chart: Chart) -> str:
    """The chart in words, beside its title: when, and the first, last and highest value of the first lines."""
    word = chart.word
    span = f"{moment(chart.start)[:16].replace('T', ' ')} to {_end(chart)} UTC"
    count = len(chart.lines) + chart.more
    told = "; ".join(_told(chart, line) for line in chart.lines[:MOST_TOLD])
    rest = f"; and {count - MOST_TOLD} more series" if count > MOST_TOLD else ""
    in_unit = f", in {word}" if word and word != "per second" else f", {word}" if word else ""
    return f"{count} series, {span}{in_unit}. {told}{rest}."


def _end(chart: Chart) -> str:
    start, end = moment(chart.start), moment(chart.end)
    return end[11:16] if start[:10] == end[:10] else end[:16].replace("T", " ")


def _told(chart: Chart, line: Line) -> str:
    values = (
        f"first {chart.say(line.first[1])}, last {chart.say(line.last[1])}, "
        f"highest {chart.say(line.highest[1])} at {clock(line.highest[0])}"
    )
    return f"{one_line(line.label, 80)}: {values}" if len(chart.lines) + chart.more > 1 else values


def short(value: float) -> str:
    """A value in at most four digits where that is enough: 0.0123, 12.35, 1,234, 567.8k, 1.2e-07."""
    size = abs(value)
    if size >= 1e15:
        return f"{value:.3g}"
    for factor, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if size >= factor:
            return f"{value / factor:.4g}{letter}"
    if size >= 1e5:
        return f"{value / 1e3:.4g}k"
    return f"{value:,.0f}" if size >= 1_000 else f"{value:.4g}"


def columns(points: Sequence[Point], start: float, end: float) -> list[Point]:
    """The points of a line, or of each column of the picture its first, lowest, highest and last."""
    if len(points) <= 2 * COLUMNS:
        return list(points)
    kept: list[Point] = []
    width = (end - start) / COLUMNS or 1.0
    column: list[Point] = []
    for point in points:
        if column and math.floor((point[0] - start) / width) != math.floor((column[0][0] - start) / width):
            kept += _outline(column)
            column = []
        column.append(point)
    return kept + _outline(column)


def _outline(column: Sequence[Point]) -> list[Point]:
    lowest, highest = min(column, key=lambda p: p[1]), max(column, key=lambda p: p[1])
    return sorted({column[0], lowest, highest, column[-1]})
