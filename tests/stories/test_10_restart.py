"""Story 10, ends and starts: what was acknowledged is worked on by whoever comes next, or its author is asked."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from bot.playground.model import say
from tests.support.replay import Configured, Gate, Raw, ended, with_strangers
from tests.support.rooms import far_ends, program
from tests.support.story import QUICK
from tests.support.thread import shown


async def test_what_was_acknowledged_before_the_end_is_answered_after_the_next_start(tmp_path: Path) -> None:
    async with far_ends(tmp_path, workspace=with_strangers()) as made:
        ends = Configured(**vars(made))
        room = ends.room("between", say("It was the gateway."))
        raw = Raw(room)
        async with program(ends, limits=QUICK, tools=[Gate()]) as app:
            await app.ledger.pause(True, "an operator")
            question = raw.message("<@U0PILOT> room between: investigate", root=True)
            room.root = question["ts"]
            await raw.event(raw.mention(question))
            assert [(row["state"], row["disposition"]) for row in room.all("messages")] == [("waiting", "start")]
            assert [turn["state"] for turn in room.all("turns")] == ["waiting"]
        assert room.requests() == []
        async with program(ends, limits=QUICK, tools=[Gate()]) as app:
            await app.ledger.pause(False, "an operator")
            await ended(room, "completed")
        assert len(room.every("answer")) == 1


async def test_what_waited_too_long_is_not_run_and_its_author_is_asked(tmp_path: Path) -> None:
    async with far_ends(tmp_path, workspace=with_strangers()) as made:
        ends = Configured(**vars(made))
        room = ends.room("old", say("Still wanted, then."))
        raw = Raw(room)
        async with program(ends, limits=QUICK, tools=[Gate()]) as app:
            await app.ledger.pause(True, "an operator")
            question = raw.message("<@U0PILOT> room old: investigate", root=True)
            room.root = question["ts"]
            await raw.event(question)
        with closing(sqlite3.connect(ends.data / "pilothouse.db")) as db, db:
            db.execute("UPDATE turns SET start_after = start_after - 100000, first_at = first_at - 100000")
            db.execute("UPDATE messages SET arrived_at = arrived_at - 100000")
            db.execute("UPDATE switches SET value = 'no', changed_at = changed_at - 100000")
        async with program(ends, limits=QUICK, tools=[Gate()]):
            await room.until(lambda: len(room.all("settles")) == 1)
            await room.until(lambda: "retry" in str(room.own("card")))
            assert room.requests() == []
            await room.press("retry", "U0ENGINEER")
            await room.until(lambda: len(room.every("answer")) == 1)
            assert "Still wanted" in shown(room.every("answer")[0])
