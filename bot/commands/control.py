"""`pilothouse stop`, `pause`, `resume`: what operators do to running turns, through the same mailbox as everybody.

A stop from here has no timestamp of Slack. It gets the one right behind the newest word that the ledger knows of the
session: so it reaches everything that is known there when it is given, whatever the clocks say, and nothing that is
asked later. Workers of other processes see it with their next look at the database, at the latest after a second;
where they are rung over Redis, at once.
"""

from __future__ import annotations

import asyncio
import getpass
import re
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any

import typer

from bot.commands.output import AsJson, complain, shorten, write, write_json
from bot.commands.place import Config, Data, Place, opened, place_of
from bot.commands.tables import write_table
from bot.ids import new_id
from bot.importing import imported
from bot.prices import cost_usd
from core.errors import BadInput
from core.limits import Limits
from core.messages import (
    Arrival,
    ChannelId,
    Level,
    Marker,
    Rights,
    SlackTs,
    Source,
    TurnId,
    UserId,
    Who,
    ts_order,
)
from core.ports import Doorbell
from storage.database import Database
from storage.doorbell import LocalDoorbell
from storage.ledger.signs import ChannelPolicy
from storage.ledger.sql import SqlLedger
from storage.mailbox import Mailbox
from storage.reports import Row, find_turn, list_turns, reached, targets

app = typer.Typer()

TRIES = 3
"""A turn may take new words between our look and our stop; then we look and stop again."""
_THREAD = re.compile(r"(?P<channel>[A-Z0-9]+):(?P<ts>\d+\.\d+)")
_USER = re.compile(r"[UW][A-Z0-9]+")


@app.command()
def stop(
    turn: Annotated[
        str | None,
        typer.Argument(metavar="[TURN]", help="A turn's id, or enough of its beginning.", show_default=False),
    ] = None,
    thread: Annotated[
        str | None, typer.Option(metavar="CHANNEL:TS", help="What runs in this thread.", show_default=False)
    ] = None,
    channel: Annotated[
        str | None, typer.Option(metavar="ID", help="Everything that runs in this channel.", show_default=False)
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Everything that runs.")] = False,
    step: Annotated[
        bool, typer.Option("--step", help="End the step and wait for words, not the whole task.")
    ] = False,
    by: Annotated[
        str | None,
        typer.Option(
            "--as", metavar="USER", help="Your Slack user id, so that the card names you.", show_default=False
        ),
    ] = None,
    data: Data = None,
    config: Config = None,
    as_json: AsJson = False,
) -> int:
    """Stop running turns. Give a turn, --thread, --channel or --all."""
    if sum((turn is not None, thread is not None, channel is not None, everything)) != 1:
        raise BadInput(
            "Say what to stop: give exactly one of a turn's id, --thread CHANNEL:TS, --channel ID or --all."
        )
    if by is not None and _USER.fullmatch(by) is None:
        raise BadInput(f"{by} is no Slack user id: give one such as U0123ABCD, or leave --as out.")
    wanted = _wanted(turn, thread, channel)
    place, level = place_of(data, config), Level.STEP if step else Level.TASK
    stopped, missed, settled = asyncio.run(_stop(place, wanted, level, by or ""))
    if as_json:
        write_json({"stopped": [_named(row, level) for row in stopped], "not_stopped": [row["id"] for row in missed]})
    else:
        _say(stopped, settled, level)
    if missed:
        names = ", ".join(row["id"] for row in missed)
        complain(f"Not stopped, because new words came in between: {names}. Give the command again.")
    return 1 if missed else 0


def _wanted(turn: str | None, thread: str | None, channel: str | None) -> dict[str, str]:
    if thread is None:
        return {name: value for name, value in (("turn", turn), ("channel", channel)) if value is not None}
    named = _THREAD.fullmatch(thread)
    if named is None:
        raise BadInput(f"{thread} names no thread: give CHANNEL:TS, such as C0INCIDENT:1790000000.000100.")
    return {"channel": named["channel"], "thread_ts": named["ts"]}


async def _stop(
    place: Place, wanted: dict[str, str], level: Level, author: str
) -> tuple[list[Row], list[Row], Row | None]:
    """The turns that were stopped, those that were not, and the turn that was named but had settled before."""
    async with opened(place) as db, _doorbell(place) as doorbell:
        mailbox = Mailbox(db, doorbell, new_id, lambda _channel: ChannelPolicy())
        settled: Row | None = None
        if "turn" in wanted:
            wanted = {"turn": await _id_of(db, wanted["turn"])}
        found = await _targets(db, wanted)
        if not found and "turn" in wanted:
            settled = await _settled(db, wanted["turn"])
        missed = [row for row in found if not await _stop_one(db, mailbox, row, level, author)]
        return [row for row in found if row not in missed], missed, settled


async def _stop_one(db: Database, mailbox: Mailbox, row: Row, level: Level, author: str) -> bool:
    for _ in range(TRIES):
        await mailbox.arrive(_arrival(row, level, author))
        async with db.reading() as tx:
            if await reached(tx, row["id"]):
                return True
            (row,) = await targets(tx, turn=row["id"])
    return False


def _arrival(row: Row, level: Level, author: str) -> Arrival:
    return Arrival(
        source=Source.OPERATOR,
        marker=Marker.CANCEL if level is Level.TASK else Marker.STOP_STEP,
        who=Who.MEMBER,
        rights=Rights(stop=True),
        author=UserId(author),
        team=row["team"],
        channel=ChannelId(row["channel"]),
        thread_ts=SlackTs(row["thread_ts"]),
        ts=SlackTs(_right_after(max(row["newest_ts"], row["newest_word"] or ""))),
        dedupe_key=f"operator:{row['id']}:{secrets.token_hex(8)}",
        text=f"stop by {_login()} on the command line",
        bare=True,
        level=level,
        turn_id=TurnId(row["id"]),
    )


def _right_after(ts: str) -> str:
    """The next timestamp that Slack could give, of the same width."""
    whole, micros = ts_order(ts)
    carry, micros = divmod(micros + 1, 1_000_000)
    digits = len(ts.partition(".")[0])
    return f"{whole + carry:0{digits}d}.{micros:06d}"


def _login() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return "an operator"


async def _id_of(db: Database, given: str) -> str:
    async with db.reading() as tx:
        return await find_turn(tx, given)


async def _targets(db: Database, wanted: dict[str, str]) -> list[Row]:
    async with db.reading() as tx:
        return await targets(tx, **wanted)


async def _settled(db: Database, turn: str) -> Row | None:
    async with db.reading() as tx:
        return next(iter(await list_turns(tx, turn=turn)), None)


@asynccontextmanager
async def _doorbell(place: Place) -> AsyncIterator[Doorbell]:
    if not place.redis_url:
        yield LocalDoorbell()
        return
    doorbell = imported("storage.redis_doorbell").RedisDoorbell(place.redis_url, time.monotonic)
    try:
        yield doorbell
    finally:
        await doorbell.close()


def _named(row: Row, level: Level) -> dict[str, Any]:
    named = {name: row[name] for name in ("channel", "thread_ts", "state", "asked_by")}
    return {"turn": row["id"], **named, "level": level.value}


def _say(stopped: Sequence[Row], settled: Row | None, level: Level) -> None:
    if settled is not None:
        write(f"{settled['id']} had ended already ({settled['reason']}); nothing was changed.\n")
    elif not stopped:
        write("Nothing is running there, so there was nothing to stop.\n")
    else:
        write_table(
            ["stopped", "level", "thread", "asked"],
            [
                [
                    row["id"],
                    level.value,
                    f"{row['channel']}:{row['thread_ts']}",
                    f"@{row['asked_by']} {shorten(row['asked_text'], 60)}",
                ]
                for row in stopped
            ],
            wrap={"asked"},
        )


@app.command()
def pause(data: Data = None, config: Config = None, as_json: AsJson = False) -> None:
    """Let no new turn start; running ones go on. What comes in meanwhile is kept and starts after `resume`."""
    _switch(place_of(data, config), paused=True, as_json=as_json)


@app.command()
def resume(data: Data = None, config: Config = None, as_json: AsJson = False) -> None:
    """Let turns start again."""
    _switch(place_of(data, config), paused=False, as_json=as_json)


def _switch(place: Place, *, paused: bool, as_json: bool) -> None:
    async def work() -> None:
        async with opened(place) as db, _doorbell(place) as doorbell:
            ledger = SqlLedger(db, doorbell, Limits(), worker="command-line", ids=new_id, price=cost_usd)
            await ledger.pause(paused, _login())

    asyncio.run(work())
    if as_json:
        write_json({"paused": paused})
    else:
        write("Paused: no new turn starts until `pilothouse resume`.\n" if paused else "Turns start again.\n")
