"""`pilothouse`: the command line.

It promises one clear sentence on stderr and exit code 2 for whatever a person gave that can't be used, exit code 130
for Ctrl-C, and silence when nobody reads any more. The commands are in `bot.commands`, one module a group, imported
when they are called.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from bot.commands.lazy import Entry, command_of
from bot.commands.output import NobodyReads, complain
from bot.version import version
from core.errors import BadInput

BAD_INPUT = 2
INTERRUPTED = 130
NOBODY_READS = 141

COMMANDS = {
    "demo": Entry(
        "bot.commands.run", "Try it in a browser: a local Slack, a scripted model and an incident.", "demo"
    ),
    "serve": Entry("bot.commands.run", "Work in a real Slack workspace.", "serve"),
    "doctor": Entry("bot.commands.doctor", "Check tokens, model, database, tools and configuration."),
    "policy": Entry("bot.commands.policy", "What becomes of a message, and why."),
    "turns": Entry("bot.commands.turns", "What the ledger says about turns."),
    "audit": Entry("bot.commands.audit", "Hand out every call, approval, stop and decision."),
    "stop": Entry("bot.commands.control", "Stop running turns.", "stop"),
    "pause": Entry("bot.commands.control", "Let no new turn start; running ones go on.", "pause"),
    "resume": Entry("bot.commands.control", "Let turns start again.", "resume"),
    "history": Entry("bot.commands.history", "Check or repair a conversation with the model."),
    "fetch": Entry("bot.commands.fetch", "Read a web page as the model would, or say why it is refused."),
    "db": Entry("bot.commands.db", "Look after the database."),
}


class LazyGroup(TyperGroup):
    """Knows its commands by name and help; imports the one that is called."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, entry in COMMANDS.items():
            self.add_command(TyperCommand(name, help=entry.help))

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[Any, Any, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        return name, None if command is None else command_of(COMMANDS[str(name)]), rest


app = typer.Typer(cls=LazyGroup, add_completion=False, invoke_without_command=True)


@app.callback()
def pilothouse(
    context: typer.Context,
    show_version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """An AI site-reliability engineer in Slack that can be steered and stopped."""
    if show_version:
        typer.echo(f"pilothouse {version()}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    try:
        code = _run(argv)
        sys.stdout.flush()
    except (BrokenPipeError, NobodyReads):
        _write_into_nothing()
        return NOBODY_READS
    return code


def _run(argv: Sequence[str] | None) -> int:
    try:
        result = typer.main.get_command(app).main(argv, prog_name="pilothouse", standalone_mode=False)
    except typer.TyperException as error:
        complain(_with_help(error))
        return BAD_INPUT
    except BadInput as error:
        complain(str(error))
        return BAD_INPUT
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    return result if isinstance(result, int) else 0


def _with_help(error: typer.TyperException) -> str:
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "pilothouse"
    message = error.format_message().replace("Value error, ", "").rstrip(".")
    return f"{message}{'' if message.endswith('?') else '.'} See `{command} --help`."


def _write_into_nothing() -> None:
    """What is still buffered can't be written any more; the interpreter must not fail over it when it ends."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stdout.fileno())
    os.close(nothing)


if __name__ == "__main__":
    sys.exit(main())
