"""Where the command line imports while it runs.

`pilothouse --help` must not import Slack's and the model's libraries, which take seconds; each command's module is
imported when that command is called, and the parts that it only needs sometimes likewise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import typer

from bot.importing import imported


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of `pilothouse --help`. `module` holds a `typer.Typer` called `app`.

    With `command` the entry is that one command of the app, else it is the app.
    """

    module: str
    help: str
    command: str | None = None


def load(module: str) -> Any:
    """Import a module by its name."""
    return imported(module)


def command_of(entry: Entry) -> Any:
    """Import what an entry stands for, as a command."""
    found: Any = typer.main.get_command(load(entry.module).app)
    return found if entry.command is None else found.commands[entry.command]
