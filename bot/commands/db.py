"""`pilothouse db`: the database's tables."""

from __future__ import annotations

import asyncio

import typer

from bot.commands.output import AsJson, write, write_json
from bot.commands.place import Config, Data, opened, place_of
from storage.migrate import REVISIONS

app = typer.Typer(help="Look after the database.")


@app.callback()
def group() -> None:
    """Look after the database."""


@app.command()
def upgrade(data: Data = None, config: Config = None, as_json: AsJson = False) -> None:
    """Bring the database to this version's revision; create it where there is none."""
    place = place_of(data, config)

    async def work() -> None:
        async with opened(place, make=True):
            pass

    asyncio.run(work())
    if as_json:
        write_json({"database": place.name, "revision": REVISIONS[-1]})
    else:
        write(f"{place.name} is at revision {REVISIONS[-1]}.\n")
