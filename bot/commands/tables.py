"""Tables for people: drawn by rich on a terminal, else plain columns, one row a line and nothing cut off."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Collection, Iterable, Sequence

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from bot.commands.output import printable, write

NARROWEST = 12
"""A column whose text is wrapped gets at least this many cells; where that does not fit, nothing is drawn."""


def write_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, wrap: Collection[str] = ()) -> None:
    """Rows under column heads. The columns in `wrap` share what the others leave of a terminal's width."""
    cells = [[printable(cell) for cell in row] for row in rows]
    heads = [column.upper() for column in columns]
    widths = [max(cell_len(cell) for cell in column) for column in zip(heads, *cells, strict=True)]
    width = shutil.get_terminal_size().columns
    needed = sum(min(wide, NARROWEST) if name in wrap else wide for name, wide in zip(columns, widths, strict=True))
    if not sys.stdout.isatty() or needed + 2 * len(columns) > width:
        write("".join(_padded(row, widths).rstrip() + "\n" for row in [heads, *cells]))
        return
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name, head in zip(columns, heads, strict=True):
        table.add_column(head, no_wrap=name not in wrap, overflow="fold")
    for row in cells:
        table.add_row(*(Text(cell) for cell in row))
    console = Console(width=width)
    with console.capture() as drawn:
        console.print(table)
    write(drawn.get())


def _padded(row: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell + " " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True))
