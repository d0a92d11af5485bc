"""Story 10, storage: what a database can't take is made fit for it, and what it did not take is not acknowledged."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncConnection

from bot.playground.model import call, say
from bot.settings import Settings, StoragePart
from bot.slack.normalise import Me, normalise_event
from core.messages import Arrival
from core.ports import ToolOutput
from storage.database import Database
from storage.ledger.common import rows
from storage.tables import metadata
from tests.support.house import ALL, House
from tests.support.redis import RedisServer
from tests.support.replay import Gate, Raw, ended, sent, staged

ME = Me("U0PILOT", "B0PILOT", "A0PILOT", "T0LOCAL")
DIRTY = "a\u0000b \ud800 \u202e\u001b[31mred"


class Spill(Gate):
    """A tool whose output nobody would want to keep as it is."""

    async def run(self, arguments: Mapping[str, Any]) -> ToolOutput:
        output = {"dirty": DIRTY, "large": "x" * 10_000_000, "number": "7" * 5_000}
        return ToolOutput(output[str(arguments["what"])])


Spill.spec = type(Gate.spec)("spill", "spills", {"type": "object", "additionalProperties": True})


class Lossy(Database):
    """A database whose next commit succeeds, and nobody is told."""

    lose = False

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection]:
        async with super().transaction() as tx:
            yield tx
        if self.lose:
            self.lose = False
            raise OperationalError("COMMIT", None, ConnectionResetError("connection was closed"))


def mention(words: str, ts: str = "1790000000.000100", **fields: Any) -> Arrival:
    event = {"type": "message", "channel": "C0INCIDENT", "channel_type": "channel", "user": "U0ENGINEER", "ts": ts}
    payload = {"team_id": "T0LOCAL", "event": event | {"text": f"<@U0PILOT> {words}", "event_ts": ts} | fields}
    found = normalise_event(payload, ME)
    assert isinstance(found, Arrival)
    return replace(found, rights=ALL)


async def count(db: Database, table: str) -> int:
    async with db.reading() as tx:
        return len(await rows(tx, metadata.tables[table].select()))


async def test_what_tools_bring_is_cleaned_and_cut_before_the_model_and_before_the_row(tmp_path: Path) -> None:
    lines = [call("spill", what="dirty") + call("spill", what="large") + call("spill", what="number"), say("Enough.")]
    async with staged(tmp_path, tools=[Spill()]) as stage:
        room = stage.room("spill", *lines)
        await room.ask()
        await ended(room, "completed")
        results = [row["output"] for row in sorted(room.all("calls"), key=lambda row: row["position"])]
        given = [str(block["content"]) for block in room.requests()[1]["messages"][-1]["content"]]
        for found in (results, given):
            assert "\u0000" not in found[0] and "\ud800" not in found[0] and "red" in found[0]
            assert (
                len(found[1]) < 25_000
                and "000 characters are left out here; the first 1,000,000 are kept for people" in found[1]
            )
            assert found[2].count("7") >= 5_000
        assert [row["status"] for row in room.all("calls")] == ["ok"] * 3


async def test_words_that_no_database_takes_are_taken(database: Database) -> None:
    house = House(database)
    files = [{"id": "F1", "name": DIRTY, "mimetype": "text/plain", "size": 1, "url_private": "https://f.test/1"}]
    arrived = await house.mailbox.arrive(mention(f"what is {DIRTY}?", files=files, client_msg_id=DIRTY))
    assert arrived.turn is not None
    claimed = await house.claim(arrived.session)
    assert "red" in str(claimed.messages)


async def test_one_event_at_two_workers_in_the_same_moment_is_one_arrival(database_url: str) -> None:
    workers = [await Database.connect(database_url) for _ in range(2)]
    try:
        arrival = mention("is the api down?")
        houses = [House(db) for db in workers]
        arrived = await asyncio.gather(*(house.mailbox.arrive(arrival) for house in houses for _ in range(4)))
        assert sum(not one.duplicate for one in arrived) == 1
        assert await count(workers[0], "messages") == await count(workers[0], "turns") == 1
    finally:
        for db in workers:
            await db.close()


async def test_a_commit_whose_outcome_nobody_knows_is_found_by_its_key_when_slack_asks_again(
    database_url: str,
) -> None:
    db = await Lossy.connect(database_url)
    assert isinstance(db, Lossy)
    try:
        house = House(db)
        db.lose = True
        with pytest.raises(OperationalError):
            await house.mailbox.arrive(mention("is the api down?"))
        again = await house.mailbox.arrive(mention("is the api down?"))
        assert again.duplicate
        assert await count(db, "messages") == await count(db, "turns") == await count(db, "cards") == 1
    finally:
        await db.close()


async def test_on_a_full_disk_an_event_is_not_acknowledged_and_its_retry_is_processed(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        stage.ends.slack.wire.ack_timeout_s = 1.0
        room = stage.room("full", say("There is room again."))
        raw = Raw(room)
        said = raw.message("<@U0PILOT> room full: " + "why is the disk full? " * 500, root=True)
        room.root = said["ts"]
        await limit_pages(stage.app.db, to_what_there_is=True)
        first = await stage.ends.slack.inject(raw.envelope(said))
        assert not first.acknowledged and room.all("messages") == []
        await limit_pages(stage.app.db, to_what_there_is=False)
        await raw.event(said, attempt=1, reason="timeout")
        await ended(room, "completed")
        assert sent(room).count("why is the disk full?") == 500


async def limit_pages(db: Database, *, to_what_there_is: bool) -> None:
    """A disk that is full, or not any more."""
    async with db.transaction() as tx:
        pages = (await tx.execute(text("PRAGMA page_count"))).scalar() if to_what_there_is else 1_000_000
        await tx.execute(text(f"PRAGMA max_page_count = {pages}"))


@pytest.mark.redis
async def test_a_redis_that_forgets_everything_in_the_middle_of_a_turn_costs_nothing(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    def with_redis(settings: Settings) -> Settings:
        storage = StoragePart(data_dir=settings.storage.data_dir, redis_url=redis_server.url)
        return settings.model_copy(update={"storage": storage})

    async with staged(tmp_path, settings=with_redis) as stage:
        room = await stage.busy("redis", say("It was the gateway."), say("Still the gateway."))
        reader, writer = await asyncio.open_connection("127.0.0.1", redis_server.port)
        writer.write(b"FLUSHALL\r\nSCRIPT FLUSH\r\n")
        assert await reader.readline() == b"+OK\r\n"
        writer.close()
        stage.let(room)
        await ended(room, "completed")
        epoch = room.all("sessions")[0]["epoch"]
        redis_server.kill()
        await room.reply("and now?", "U0ENGINEER")
        await ended(room, "completed", "completed")
        assert room.all("sessions")[0]["epoch"] > epoch
