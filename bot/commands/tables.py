"""Tables for people: drawn by rich on a terminal, else plain columns, one row a line and nothing cut off."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Sequence

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from bot.commands.output import printable, write


def write_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Rows under column heads."""
    cells = [[printable(cell) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        write(_plain([[column.upper() for column in columns], *cells]))
        return
    table = Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False)
    for row in cells:
        table.add_row(*(Text(cell) for cell in row))
    console = Console(width=shutil.get_terminal_size().columns)
    with console.capture() as drawn:
        console.print(table)
    write(drawn.get())


def _plain(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(cell_len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return "".join(_padded(row, widths).rstrip() + "\n" for row in rows)


def _padded(row: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell + " " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True))
