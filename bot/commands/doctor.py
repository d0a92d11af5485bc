"""`pilothouse doctor`: is everything there that serving needs, and what to do where it is not."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from bot.commands.lazy import load
from bot.commands.output import AsJson, write, write_json
from bot.commands.tables import write_table

app = typer.Typer()

FAILED = 1
COLUMNS = ("check", "state", "says")

Config = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="The configuration to check.", show_default=False),
]
Data = Annotated[
    Path | None,
    typer.Option("--data", metavar="DIR", help="The embedded installation in this directory.", show_default=False),
]


@app.command()
def doctor(config: Config = None, data: Data = None, as_json: AsJson = False) -> int:
    """Check tokens, model, database, tools and configuration.

    Exit code 1 when something would not work; warnings alone are 0. Nothing is changed.
    """
    settings = load("bot.settings").Settings.read(config, data)
    load("bot.telemetry").configure_logging(level=logging.CRITICAL)
    examine: Callable[[Any], Awaitable[Sequence[Any]]] = load("bot.app").examine
    found = asyncio.run(_all(examine, settings))
    states = [finding.health.value for finding in found]
    worst = next(state for state in ("failing", "warning", "ok") if state in states)
    if as_json:
        findings = [{"check": one.check, "status": one.health.value, "says": one.says} for one in found]
        write_json({"status": worst, "findings": findings})
    else:
        write_table(COLUMNS, [(one.check, one.health.value, one.says) for one in found], wrap={"says"})
        write(f"\n{_sum(states)}\n")
    return FAILED if worst == "failing" else 0


async def _all(examine: Callable[[Any], Awaitable[Sequence[Any]]], settings: Any) -> Sequence[Any]:
    return await examine(settings)


def _sum(states: Sequence[str]) -> str:
    failed, warned = states.count("failing"), states.count("warning")
    warnings = f", with {warned} warning{'s' if warned != 1 else ''}" if warned else ""
    if failed:
        return f"{failed} of {len(states)} checks failed{warnings}."
    return f"It works{warnings}." if warned else f"All {len(states)} checks are well."
