"""`pilothouse history`: is this conversation one that the model's API accepts, and what would mend it."""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from bot.commands.output import complain, write_json
from core.errors import BadInput
from core.history_file import check as problems_of
from core.history_file import parse
from core.history_file import repair as repaired
from core.repair import NotRepairable
from core.validator import Profile

app = typer.Typer(help="Check or repair a conversation with the model.")

STDIN = "-"
NOT_REPAIRABLE = 2

File = Annotated[
    str,
    typer.Argument(
        metavar="FILE",
        help="A JSON list of messages, or an object with messages and any of tools, system, thinking and "
        "tool_choice; - reads standard input.",
    ),
]
For = Annotated[Profile, typer.Option("--profile", help="Who has to accept it.")]
Tools = Annotated[str | None, typer.Option("--tools", metavar="FILE", help="The tools of the request, a JSON list.")]
AlwaysJson = Annotated[bool, typer.Option("--json", hidden=True)]
"""What these commands print is JSON anyway; the option is taken so that every report takes it."""


@app.command()
def check(file: File, profile: For = Profile.EVERYWHERE, tools: Tools = None, as_json: AlwaysJson = True) -> int:
    """Print every reason for which the API would refuse it, one JSON object a line.

    Exit code 0 when there is none, 1 when there are some.
    """
    with _collector_at_rest():
        found = problems_of(_request(file, tools), profile)
        for problem in found:
            write_json(asdict(problem), indent=None)
    return 1 if found else 0


@app.command()
def repair(file: File, profile: For = Profile.EVERYWHERE, tools: Tools = None, as_json: AlwaysJson = True) -> int:
    """Print the messages as they can be sent, with every repair.

    Exit code 2 with the reason where no honest repair exists.
    """
    with _collector_at_rest():
        request = _request(file, tools)
        try:
            mended = repaired(request, profile)
        except NotRepairable as error:
            complain(str(error))
            return NOT_REPAIRABLE
        write_json(mended, indent=2 if sys.stdout.isatty() else None)
    return 0


@contextmanager
def _collector_at_rest() -> Iterator[None]:
    """Nothing of a history becomes garbage before the command ends; looking for it takes a third of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _request(file: str, tools: str | None) -> dict[str, Any]:
    request = parse(_read(file))
    if tools is not None:
        request["tools"] = _tools(tools)
    return request


def _tools(file: str) -> list[Any]:
    """A list of tools, or an object with one, such as a whole request."""
    try:
        found = json.loads(_read(file))
    except (ValueError, RecursionError):
        raise BadInput(f"{file} is not JSON: give a JSON list of tools as the API takes them.") from None
    if isinstance(found, dict):
        found = found.get("tools")
    if not isinstance(found, list):
        raise BadInput(f"{file} holds no tools: give a JSON list of tools, or an object with a list called tools.")
    return found


def _read(file: str) -> bytes:
    if file == STDIN:
        return sys.stdin.buffer.read()
    try:
        return Path(file).read_bytes()
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise BadInput(f"{file} can't be read ({reason}): give the path of a JSON file, or - for stdin.") from error
