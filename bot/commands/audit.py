"""`pilothouse audit`: what was decided and done, for somebody who checks it elsewhere."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from bot.commands.output import write
from bot.commands.place import Config, Data, opened, place_of
from core.errors import BadInput
from storage.audit import records
from storage.reports import find_turn

app = typer.Typer(help="Hand out every call, approval, stop and decision.")

UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_AGE = re.compile(r"([0-9]{1,9})([smhdw])", re.IGNORECASE)
_DATE = re.compile(r"\d{4}-\d\d-\d\d(?:[Tt ]\d\d:\d\d:\d\d(?:\.\d{1,6})?(?:[Zz]|[+-]\d\d:\d\d)?)?", re.ASCII)
_UNSAFE = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""What JSON lets pass in a text, but a terminal or a reader of lines does not."""


@app.callback()
def group() -> None:
    """Hand out every call, approval, stop and decision."""


@app.command()
def export(
    since: Annotated[
        str | None,
        typer.Option(
            metavar="WHEN",
            help="A date such as 2026-12-01T08:00:00Z, or an age such as 24h or 7d.",
            show_default=False,
        ),
    ] = None,
    turn: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Only of this turn; enough of the id's beginning.", show_default=False),
    ] = None,
    data: Data = None,
    config: Config = None,
    as_json: Annotated[bool, typer.Option("--json", hidden=True)] = True,
) -> None:
    """Print one JSON object a line, oldest first: message, stop, approval, call, settle.

    `at` is when the record changed last. Secrets are taken out.
    """
    begins = 0.0 if since is None else moment_of(since, time.time())
    place = place_of(data, config)

    async def work() -> None:
        async with opened(place) as db:
            wanted = None
            if turn is not None:
                async with db.reading() as tx:
                    wanted = await find_turn(tx, turn)
            async for batch in records(db, begins, wanted):
                write("".join(map(line_of, batch)))

    asyncio.run(work())


def moment_of(given: str, now: float) -> float:
    """Seconds since the epoch of a date (UTC where it names no offset) or an age. Raises BadInput."""
    age = _AGE.fullmatch(given.strip())
    if age is not None:
        return max(0.0, now - int(age[1]) * UNITS_S[age[2].lower()])
    try:
        if _DATE.fullmatch(given.strip()) is None:
            raise ValueError
        found = datetime.fromisoformat(given.strip().upper())
        return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise BadInput(
            f"{given or 'Nothing'} is no time: give a date such as 2026-12-01T08:00:00Z, or an age such as 24h or 7d."
        ) from None


def line_of(record: Mapping[str, Any]) -> str:
    """One line, readable where the output's encoding allows it, and harmless to a terminal."""
    utf8 = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    text = json.dumps(record, ensure_ascii=not utf8)
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n"
