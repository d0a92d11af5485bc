"""Draws a `Chart` as a PNG with Matplotlib: to be read on a phone, on a solid ground also in dark mode.

Labels come from outside: nothing in them is mathematics (`$`), what no font at hand can draw becomes `▯`, and what is
too long loses its middle. Only the object interface is used, no state that the process shares; the same chart gives
the same bytes with the same fonts. Import it through `bot.importing`: Matplotlib takes half a second.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import cache
from io import BytesIO
from itertools import pairwise
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, fontManager, get_font
from matplotlib.ticker import MaxNLocator

from bot.tools.charts import Chart, Line, columns, short

matplotlib.rcdefaults()

DPI = 200
WIDTH_IN = 5.12
PLOT_IN = 2.4
ROW_IN = 0.24
TITLE_ROW_IN = 0.2
EDGE_IN = 0.16
BELOW_IN = 0.46
ABOVE_IN = 0.3
LEFT_IN = 0.72
TITLE_COLUMNS = 59
TITLE_ROWS = 3

GROUND, INK, SOFT, GRID = "#ffffff", "#1b2327", "#57646b", "#e4e9eb"
COLOURS = ("#0b63b5", "#c8371f", "#0a7a55", "#8a4fbf", "#a06500", "#0f8fa3", "#c2337f", "#57646b")
MARK = "▯"
"""Stands for a character that no font at hand has."""
TICKS_S = (1, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 14_400, 21_600, 43_200)
MOST_TICKS = 6

TEXT_FONTS = ("DejaVu Sans", "Noto Sans CJK SC", "Noto Sans CJK JP", "WenQuanYi Zen Hei", "PingFang SC")
CODE_FONTS = ("DejaVu Sans Mono", "Noto Sans Mono CJK SC", *TEXT_FONTS)


def png_of(chart: Chart) -> bytes:
    """The chart as a PNG of 1,024 pixels in width."""
    title = _wrapped(chart.title)
    above = EDGE_IN + len(title) * TITLE_ROW_IN + (TITLE_ROW_IN if chart.shared else 0.0) + ABOVE_IN
    rows = 1 + len(chart.lines) + (chart.more > 0)
    height = above + PLOT_IN + BELOW_IN + rows * ROW_IN + EDGE_IN
    figure = Figure(figsize=(WIDTH_IN, height), dpi=DPI, facecolor=GROUND)
    FigureCanvasAgg(figure)
    write = Writing(figure, height)
    for number, line in enumerate(title):
        y = EDGE_IN + number * TITLE_ROW_IN
        write.at(EDGE_IN, y, line, fonts=CODE_FONTS, size=9.5, weight="bold", room=WIDTH_IN - 2 * EDGE_IN)
    if chart.shared:
        write.at(
            EDGE_IN,
            EDGE_IN + len(title) * TITLE_ROW_IN,
            chart.shared,
            size=9,
            colour=SOFT,
            room=WIDTH_IN - 2 * EDGE_IN,
        )
    if chart.word:
        write.at(EDGE_IN, above - ABOVE_IN + 0.07, chart.word, size=9, colour=SOFT)
    write.at(WIDTH_IN - EDGE_IN, above - ABOVE_IN + 0.07, f"UTC, {_dates(chart)}", size=9, colour=SOFT, right=True)
    plot = (WIDTH_IN - LEFT_IN - EDGE_IN) / WIDTH_IN, PLOT_IN / height
    axes = figure.add_axes((LEFT_IN / WIDTH_IN, 1 - (above + PLOT_IN) / height, *plot))
    _plot(axes, chart)
    _legend(write, axes, chart, above + PLOT_IN + BELOW_IN)
    out = BytesIO()
    figure.savefig(out, format="png", facecolor=GROUND, metadata={"Software": None})
    return out.getvalue()


# -- the lines


def _plot(axes: Axes, chart: Chart) -> None:
    factor = chart.factor
    values = [value / factor for line in chart.lines for _, value in line.points]
    low, high = _bounds(min(values), max(values))
    for number, line in reversed(list(enumerate(chart.lines))):
        _line(axes, chart, line, number, filled=len(chart.lines) == 1 and low == 0)
    axes.set_xlim(chart.start, chart.end)
    axes.set_ylim(low, high)
    ticks = [tick for tick in MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high) if low <= tick <= high]
    axes.set_yticks(ticks, _numbers(ticks))
    _times(axes, chart)
    axes.grid(True, color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=SOFT, labelsize=10, length=0, pad=5)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color("#c9d2d6")


def _bounds(low: float, high: float) -> tuple[float, float]:
    """The ends of the value axis: it begins at 0 unless that would flatten what there is to see."""
    if 0 <= low <= 0.7 * high:
        return 0.0, high * 1.08 or 1.0
    room = (high - low) * 0.08 or abs(high) * 0.1 or 1.0
    return low - room, high + room


def _numbers(ticks: Sequence[float]) -> list[str]:
    """The ticks of the value axis in as many digits as tell them apart."""
    apart = min((after - before for before, after in pairwise(ticks)), default=1.0)
    digits = math.ceil(-math.log10(apart * 1.001)) + 1 if apart > 0 else 0
    if not 0 < digits <= 6 or max(abs(tick) for tick in ticks) >= 1e5:
        return [short(float(f"{tick:.10g}")) for tick in ticks]
    written = [f"{tick:,.{digits}f}" for tick in ticks]
    while all(words.endswith("0") for words in written) and "." in written[0]:
        written = [words[:-1].removesuffix(".") for words in written]
    return written


def _line(axes: Axes, chart: Chart, line: Line, number: int, *, filled: bool) -> None:
    colour = COLOURS[number % len(COLOURS)]
    runs = _runs(line.points, chart.step * 1.5)
    for run in runs:
        drawn = columns(run, chart.start, chart.end)
        times, values = [t for t, _ in drawn], [value / chart.factor for _, value in drawn]
        alone = len(run) == 1
        axes.plot(
            times,
            values,
            color=colour,
            linewidth=1.8,
            marker="o" if alone else "",
            markersize=3.5,
            solid_joinstyle="round",
        )
        if filled:
            axes.fill_between(times, values, 0, color=colour, alpha=0.12, linewidth=0)
    t, value = line.highest
    if number == 0 and len(line.points) > 2:
        axes.plot([t], [value / chart.factor], marker="o", markersize=5, color=colour, clip_on=False)


def _runs(points: Sequence[tuple[float, float]], longest: float) -> list[list[tuple[float, float]]]:
    """The points, parted where some are missing: no line is drawn over what is not known."""
    runs: list[list[tuple[float, float]]] = []
    for point in points:
        if not runs or point[0] - runs[-1][-1][0] > longest:
            runs.append([])
        runs[-1].append(point)
    return runs


def _times(axes: Axes, chart: Chart) -> None:
    span = chart.end - chart.start
    step = next((step for step in TICKS_S if span / step <= (MOST_TICKS if step >= 60 else MOST_TICKS - 2)), 86_400)
    first = math.ceil(chart.start / step) * step
    ticks = [first + number * step for number in range(int((chart.end - first) // step) + 1)]
    form = "%H:%M" if step >= 60 else "%H:%M:%S"
    axes.set_xticks(ticks, [_utc(t).strftime(form) for t in ticks])
    for t, label in zip(ticks, axes.get_xticklabels(), strict=True):
        if chart.end - t < span * 0.04:
            label.set_horizontalalignment("right")


def _utc(t: float) -> datetime:
    return datetime.fromtimestamp(t, UTC)


def _dates(chart: Chart) -> str:
    start, end = (f"{_utc(t):%Y-%m-%d}" for t in (chart.start, chart.end))
    return start if start == end else f"{start} to {end}"


# -- words


class Writing:
    """Puts words into a figure; places in inches from its upper left corner."""

    def __init__(self, figure: Figure, height: float) -> None:
        self._figure = figure
        self._height = height
        canvas: Any = figure.canvas
        self._renderer = canvas.get_renderer()

    def at(
        self,
        x: float,
        y: float,
        words: str,
        *,
        fonts: Sequence[str] = TEXT_FONTS,
        size: float = 10,
        colour: str = INK,
        weight: str = "normal",
        right: bool = False,
        room: float | None = None,
    ) -> None:
        """Write one line whose top is at `y`; what needs more than `room` inches loses its middle."""
        font = FontProperties(family=[*_at_hand(fonts)], size=size, weight=weight)
        words = _drawable(words, fonts)
        if room is not None:
            words = _fitting(words, lambda text: self._width(text, font) <= room)
        self._figure.text(
            x / WIDTH_IN,
            1 - y / self._height,
            words,
            fontproperties=font,
            color=colour,
            va="top",
            ha="right" if right else "left",
            parse_math=False,
        )

    def _width(self, words: str, font: FontProperties) -> float:
        width, _, _ = self._renderer.get_text_width_height_descent(words, font, False)
        return float(width) / DPI


def _legend(write: Writing, axes: Axes, chart: Chart, top: float) -> None:
    """A row for each line: what it is, its last value, its highest and when."""
    last, highest = WIDTH_IN - EDGE_IN - 1.4, WIDTH_IN - EDGE_IN
    write.at(EDGE_IN + 0.3, top, chart.what or "series", size=9, colour=SOFT, room=last - 1.2)
    write.at(last, top, "last", size=9, colour=SOFT, right=True)
    write.at(highest, top, "highest", size=9, colour=SOFT, right=True)
    for number, line in enumerate(chart.lines):
        y = top + (number + 1) * ROW_IN
        write.at(EDGE_IN, y, "●", colour=COLOURS[number % len(COLOURS)])
        write.at(EDGE_IN + 0.3, y, line.label, room=last - 1.25)
        write.at(last, y, chart.say(line.last[1]), right=True)
        write.at(highest, y, f"{chart.say(line.highest[1])} at {_utc(line.highest[0]):%H:%M}", right=True)
    if chart.more:
        y = top + (len(chart.lines) + 1) * ROW_IN
        write.at(EDGE_IN + 0.3, y, f"and {chart.more} more series with lower values, not drawn", size=9, colour=SOFT)


def _wrapped(title: str) -> list[str]:
    """A title in at most three rows, broken behind a space, a comma or a bracket where there is one."""
    rows: list[str] = []
    while len(title) > TITLE_COLUMNS and len(rows) < TITLE_ROWS - 1:
        at = max(title.rfind(char, TITLE_COLUMNS // 2, TITLE_COLUMNS) for char in " ,()") + 1 or TITLE_COLUMNS
        rows.append(title[:at].rstrip())
        title = title[at:].lstrip()
    return [*rows, title if len(title) <= TITLE_COLUMNS else f"{title[: TITLE_COLUMNS - 1]}…"]


def _fitting(words: str, fits: Callable[[str], bool]) -> str:
    """`words`, or as much of both ends as fits."""
    if fits(words):
        return words
    low, high = 0, len(words) - 1
    while low < high:
        kept = (low + high + 1) // 2
        low, high = (kept, high) if fits(_ends(words, kept)) else (low, kept - 1)
    return _ends(words, low)


def _ends(words: str, kept: int) -> str:
    behind = kept // 2
    return f"{words[: kept - behind]}…{words[len(words) - behind :]}"


@cache
def _at_hand(fonts: Sequence[str]) -> tuple[str, ...]:
    """Those of `fonts` that this machine has; the first comes with Matplotlib."""
    known = {entry.name for entry in fontManager.ttflist}
    return tuple(font for font in fonts if font in known)


@cache
def _characters(font: str) -> frozenset[int]:
    """What a font can draw."""
    path = fontManager.findfont(FontProperties(family=[font]))
    return frozenset(get_font(path).get_charmap())


def _drawable(words: str, fonts: Sequence[str]) -> str:
    """`words` with a mark for each character that none of the fonts has."""
    return "".join(char if _can_draw(ord(char), fonts) else MARK for char in words)


def _can_draw(char: int, fonts: Sequence[str]) -> bool:
    return any(char in _characters(font) for font in _at_hand(tuple(fonts)))
