"""`pilothouse demo` and `pilothouse serve`: the two that run until they are told to stop.

What they start is imported when they are called: it brings Slack's libraries and, later, the model's.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from bot.commands.lazy import load

app = typer.Typer()

PORT = 8765

Data = Annotated[
    Path | None,
    typer.Option("--data", metavar="DIR", help="Where the installation keeps its data.", show_default=False),
]


@app.command()
def demo(
    port: Annotated[int, typer.Option(min=0, max=65535, help="Where the page is served; 0 takes a free one.")] = PORT,
    data: Data = None,
    speed: Annotated[float, typer.Option(min=0.01, max=1000, help="How fast the model plays, 2 is twice.")] = 1.0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")] = True,
) -> int:
    """Try it in a browser: a local Slack, a scripted model and an incident."""
    began = time.monotonic()
    typer.echo("Starting: a local Slack, a world with one incident, and the real Pilothouse between them ...")
    run: Callable[[int, Path | None, float, bool, float], int] = load("bot.demo").run
    return run(port, data, speed, browser, began)


@app.command()
def serve(
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="The configuration, in the form of pilothouse.example.toml.", show_default=False
        ),
    ] = None,
    data: Data = None,
) -> int:
    """Work in a real Slack workspace."""
    run: Callable[[Path | None, Path | None], int] = load("bot.serve").run
    return run(config, data)
