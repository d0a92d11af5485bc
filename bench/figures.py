"""A figure with its aim, and how figures are shown: a table for people, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table

from bench.machine import Machine


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured value. `aim` is the most that it should be; `how` says what was measured."""

    part: str
    name: str
    value: float | None
    unit: str
    aim: float | None
    how: str = ""

    @property
    def of_aim(self) -> float | None:
        """The measured value as a share of its aim; at most 1 is well."""
        return self.value / self.aim if self.value is not None and self.aim else None

    @property
    def met(self) -> bool | None:
        """Whether the aim is met; None where nothing could be measured or nothing is aimed at."""
        if self.value is None or self.aim is None:
            return None
        return self.value <= self.aim


def show(figures: Sequence[Figure], machine: Machine, console: Console) -> None:
    """The table for people."""
    table = Table(title=machine.sentence, title_justify="left", title_style="", expand=False)
    for heading in ("", "measured", "aim", "of the aim", "how"):
        table.add_column(heading, justify="left" if heading in ("", "how") else "right")
    part = None
    for figure in figures:
        if figure.part != part and part is not None:
            table.add_section()
        part = figure.part
        table.add_row(figure.name, _value(figure.value, figure.unit), _aim(figure), _share(figure), figure.how)
    console.print(table)


def as_json(figures: Sequence[Figure], machine: Machine) -> str:
    """The same for programs."""
    found = [asdict(figure) | {"of_aim": figure.of_aim, "met": figure.met} for figure in figures]
    return json.dumps({"machine": asdict(machine), "figures": found}, indent=2)


def _value(value: float | None, unit: str) -> str:
    if value is None:
        return "not measured here"
    digits = f"{value:.0f}" if value >= 100 else f"{value:.3g}"
    return f"{digits} {unit}".strip()


def _aim(figure: Figure) -> str:
    return "" if figure.aim is None else f"≤ {_value(figure.aim, figure.unit)}"


def _share(figure: Figure) -> str:
    if figure.of_aim is None:
        return ""
    colour = "green" if figure.met else "red"
    return f"[{colour}]{figure.of_aim:.2f}[/{colour}]"
