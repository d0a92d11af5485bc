"""A stop sign that comes before its message, on both databases: their order makes no difference."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from core.messages import Arrival, ChannelId, Level, Marker, Place, SlackTs, Source, UserId, Who
from storage.database import Database
from storage.ledger.arrive import Arrived
from tests.support.scene import EVERYTHING, Scene, answer, scene
from tests.support.sweeps import ASK, work


@pytest.fixture
async def thread(database: Database) -> AsyncIterator[Scene]:
    async with scene(database, [answer("It is the index.")] * 3, running=False) as made:
        yield made


async def sign(thread: Scene, on: SlackTs, level: Level = Level.STEP) -> Arrived:
    """A stop sign, as it comes in: its thread is a guess."""
    at = thread.ts()
    return await thread.mailbox.arrive(
        Arrival(
            source=Source.REACTION,
            marker=Marker.STOP_STEP,
            who=Who.PARTICIPANT,
            rights=EVERYTHING,
            author=UserId("U0ONCALL"),
            team="T0HOME",
            channel=ChannelId("C0INCIDENT"),
            thread_ts=on,
            ts=at,
            dedupe_key=f"react:{at}",
            target_ts=on,
            level=level,
            place=Place.TARGET,
            only_in_session=True,
        )
    )


async def test_it_stops_the_message_and_the_turn_of_its_thread(thread: Scene) -> None:
    asked = await thread.say(ASK)
    at = thread.ts()
    kept = await sign(thread, at)
    assert kept.session != asked.session
    reply = await thread.say("look at the gateway instead", ts=at)
    assert reply.session == asked.session
    states = {row["id"]: row["state"] for row in await thread.rows("messages")}
    assert states[reply.message or ""] == "stopped"
    here = [row for row in await thread.rows("stops") if row["session_id"] == asked.session]
    assert [row["turn_id"] for row in here] == [asked.turn]
    assert await work(thread, 1) == ["stopped_step"]


async def test_it_leaves_alone_what_was_asked_after_it(thread: Scene) -> None:
    at = thread.ts()
    await sign(thread, at)
    asked = await thread.say(ASK)
    reply = await thread.say("look at the gateway instead", ts=at)
    assert reply.session == asked.session
    assert await work(thread, 1) == ["completed"]
    states = {row["id"]: row["state"] for row in await thread.rows("messages")}
    assert (states[asked.message or ""], states[reply.message or ""]) == ("consumed", "stopped")


async def test_a_mention_that_founds_its_thread_late_does_not_start(thread: Scene) -> None:
    at = thread.ts()
    await sign(thread, at)
    asked = await thread.say(ASK, ts=at)
    assert asked.turn is None
    assert [row["state"] for row in await thread.rows("messages") if row["source"] == "mention"] == ["stopped"]
    assert not await thread.rows("turns")


async def test_a_second_sign_on_the_message_counts_in_its_thread(thread: Scene) -> None:
    asked = await thread.say(ASK)
    at = thread.ts()
    await sign(thread, at)
    await thread.say("look at the gateway instead", ts=at)
    assert (await sign(thread, at)).session == asked.session
