"""Words that nobody took, and requests that nobody began in time: what a sweep makes of them, on both databases."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from sqlalchemy import insert

from core.card import Button
from core.messages import Level, Source
from storage.database import Database, now
from storage.tables import attempts, cards, messages, stops, turns
from tests.support.scene import BOT, Scene, answer, scene
from tests.support.sweeps import ASK, HOUR, Watch, answered, change, drawn, pass_time, work


@pytest.fixture
async def thread(database: Database) -> AsyncIterator[Scene]:
    async with scene(database, [answer("It is the index.")] * 9, running=False) as made:
        yield made


@pytest.fixture
def watch(database: Database) -> Watch:
    return Watch(database)


# -- requests that nobody began


async def test_a_request_that_nobody_began_for_an_hour_is_not_run_and_its_card_asks(
    thread: Scene, watch: Watch
) -> None:
    arrived = await thread.say(ASK)
    assert arrived.turn is not None
    await pass_time(thread.db, HOUR)
    assert await watch.found() == {"turn_out_of_date": 1}
    assert await thread.reasons() == ["timed_out"]
    card = await drawn(thread.db, arrived.turn)
    said = [text for _, text in card.lines]
    assert card.headline == "Reached its limit before the first step, before there was an answer."
    assert any(
        text.startswith("Known: Nobody was there to begin: this waited 1 h 0 min, so I ask first. Nothing was run.")
        and text.endswith("Is it still wanted?")
        for text in said
    )
    assert Button.RETRY in card.buttons
    assert [row["state"] for row in await thread.rows("messages")] == ["withdrawn"]
    session = (await thread.rows("sessions"))[0]
    assert (session["state"], session["lease_owner"]) == ("idle", None)
    assert [row["state"] for row in await thread.rows("cards")] == ["open"], "the writer still has to send it"


async def test_after_an_old_request_was_let_go_the_thread_can_be_asked_again(thread: Scene, watch: Watch) -> None:
    await thread.say(ASK)
    await pass_time(thread.db, HOUR)
    await watch.found()
    await thread.say("yes, still wanted")
    assert await work(thread, 2) == ["timed_out", "completed"]


async def test_what_waited_behind_an_old_request_is_not_run_either_and_the_card_says_so(
    thread: Scene, watch: Watch
) -> None:
    arrived = await thread.say(ASK)
    assert arrived.turn is not None
    await thread.say("+ then restart it")
    await pass_time(thread.db, HOUR)
    assert await watch.found() == {"turn_out_of_date": 1}
    card = await drawn(thread.db, arrived.turn)
    said = " ".join(text for _, text in card.lines)
    assert "One message that waited behind it was not taken up either; send again what is still wanted." in said
    assert len(await thread.rows("turns")) == 1
    assert await watch.found() == {}


async def test_what_was_queued_a_minute_ago_still_runs(thread: Scene, watch: Watch) -> None:
    await thread.say(ASK)
    await pass_time(thread.db, HOUR)
    await thread.say("+ and the cache")
    assert await watch.found() == {"turn_out_of_date": 1}
    assert await work(thread, 2) == ["timed_out", "completed"]


async def test_a_request_that_somebody_still_talks_to_is_not_old(thread: Scene, watch: Watch) -> None:
    await thread.say(ASK)
    await pass_time(thread.db, HOUR)
    await thread.say("it's the index, I think")
    assert await watch.found() == {"turn_unclaimed": 1}
    assert await work(thread, 1) == ["completed"]


async def test_a_turn_that_was_begun_is_finished_however_long_the_downtime(thread: Scene, watch: Watch) -> None:
    arrived = await thread.say(ASK)
    assert arrived.session is not None
    await change(thread.db, "sessions", lease_owner="dead", lease_until=now() + 15, epoch=1)
    await change(thread.db, "turns", state="running")
    async with thread.db.transaction() as tx:
        await tx.execute(
            insert(attempts).values(turn_id=arrived.turn, number=1, worker="dead", epoch=1, started_at=now())
        )
    await pass_time(thread.db, HOUR)
    assert await watch.found() == {"lease_ran_out": 1}
    assert await work(thread, 1) == ["completed"]


async def test_an_old_request_that_was_stopped_ends_as_stopped(thread: Scene, watch: Watch) -> None:
    await thread.say(ASK)
    await thread.stop(Level.TASK)
    await pass_time(thread.db, HOUR)
    assert await watch.found() == {"turn_unclaimed": 1}
    assert await work(thread, 1) == ["cancelled"]


async def test_an_old_alert_is_booked_as_failed(thread: Scene, watch: Watch) -> None:
    await thread.say(f"<@{BOT}> [FIRING] HighLatency", source=Source.ALERT)
    await pass_time(thread.db, HOUR)
    assert await watch.found() == {"turn_out_of_date": 1}
    assert [(row["outcome"], row["evidence"]) for row in await thread.rows("automation")] == [("failed", None)]
    assert [row["kind"] for row in await thread.rows("diagnoses")] == ["timed_out"]


async def test_of_a_worker_and_a_sweep_that_want_the_same_old_turn_exactly_one_gets_it(
    thread: Scene, watch: Watch
) -> None:
    await thread.say(ASK)
    await pass_time(thread.db, HOUR)
    task = asyncio.ensure_future(thread.worker.run())
    await watch.found()
    reasons = await thread.settled(1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert reasons in (["timed_out"], ["completed"])
    assert not thread.faults


# -- words that nobody took


async def _lose_the_turn(thread: Scene) -> None:
    """What a bug would leave: the words wait, and no turn was ever begun for them."""
    waiting = [row["id"] for row in await thread.rows("turns") if row["state"] == "waiting"]
    await change(thread.db, "messages", messages.c.turn_id.in_(waiting), turn_id=None)
    await change(thread.db, "stops", stops.c.turn_id.in_(waiting), turn_id=None)
    async with thread.db.transaction() as tx:
        await tx.execute(cards.delete().where(cards.c.turn_id.in_(waiting)))
        await tx.execute(turns.delete().where(turns.c.id.in_(waiting)))
    await change(thread.db, "sessions", state="idle")


async def test_words_in_an_idle_session_get_the_turn_that_was_lost(thread: Scene, watch: Watch) -> None:
    await answered(thread)
    await thread.say("and since when?")
    await _lose_the_turn(thread)
    assert await watch.found() == {"words_unheard": 1}
    assert watch.counted == [("words_unheard", 1)]
    assert await work(thread, 2) == ["completed", "completed"]
    assert "since when?" in str(thread.model.requests[-1].messages)


async def test_words_of_people_come_before_alerts_as_at_the_end_of_a_turn(thread: Scene, watch: Watch) -> None:
    await thread.say(ASK)
    await thread.say("[FIRING] HighLatency", source=Source.ALERT)
    await thread.say("+ and the cache")
    await change(thread.db, "messages", messages.c.disposition == "start", state="withdrawn")
    await _lose_the_turn(thread)
    assert await watch.found() == {"words_unheard": 1}
    assert [row["source"] for row in await thread.rows("turns")] == ["reply"]
    assert await work(thread, 2) == ["completed", "completed"]
    assert [row["source"] for row in await thread.rows("turns", "number")] == ["reply", "alert"]


async def test_a_tombstone_also_stops_words_that_a_sweep_finds(thread: Scene, watch: Watch) -> None:
    await thread.say(ASK)
    await thread.stop(Level.STEP)
    await _lose_the_turn(thread)
    assert await watch.found() == {"words_unheard": 1}
    assert await thread.rows("turns") == []
    assert (await thread.rows("messages", "slack_ts"))[0]["state"] == "stopped"
    assert await watch.found() == {}


async def test_queued_words_become_a_note_where_a_later_stop_of_the_step_says_so(thread: Scene, watch: Watch) -> None:
    await answered(thread)
    first = await thread.say("more")
    queued = await thread.say("+ and the cache")
    await change(thread.db, "messages", messages.c.id == first.message, state="withdrawn")
    await _lose_the_turn(thread)
    await thread.stop(Level.STEP)
    await change(thread.db, "messages", messages.c.id == queued.message, disposition="queue")
    assert await watch.found() == {"words_unheard": 1}
    word = next(row for row in await thread.rows("messages") if row["id"] == queued.message)
    assert (word["disposition"], word["state"]) == ("note", "waiting")


async def test_nothing_queued_starts_after_an_unknown_outcome(thread: Scene, watch: Watch) -> None:
    await answered(thread)
    first = await thread.say("more")
    await thread.say("+ and the cache")
    await change(thread.db, "messages", messages.c.id == first.message, state="withdrawn")
    await _lose_the_turn(thread)
    await change(thread.db, "settles", reason="failed", detail="outcome_unknown", final_event_id=None)
    assert await watch.found() == {}
    assert len(await thread.rows("turns")) == 1


async def test_words_that_were_lost_an_hour_ago_are_asked_about_and_not_run(thread: Scene, watch: Watch) -> None:
    await thread.say(ASK)
    await _lose_the_turn(thread)
    await pass_time(thread.db, HOUR)
    assert await watch.found() == {"words_unheard": 1}
    assert await thread.reasons() == ["timed_out"]


async def test_words_left_behind_by_a_settled_turn_start_the_next_one(thread: Scene, watch: Watch) -> None:
    asked = await answered(thread)
    late = await thread.say("and since when?")
    await _lose_the_turn(thread)
    await change(thread.db, "messages", messages.c.id == late.message, turn_id=asked.turn)
    assert await watch.found() == {"words_left_behind": 1, "words_unheard": 1}
    assert await work(thread, 2) == ["completed", "completed"]
