"""What a bug or a crash leaves lying about: a sweep finds it, counts it and puts it right, on both databases."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from sqlalchemy import func, insert, select, text, update

from bot.scheduler import Sweeps
from core.card import Button, view
from core.messages import Level, Source, TurnId
from core.ports import Doorbell
from core.reconcile import RULES, Find, Rule
from storage.card_facts import card_facts
from storage.database import Database, now
from storage.doorbell import LocalDoorbell
from storage.ledger.arrive import Arrived
from storage.tables import attempts, cards, messages, metadata, outbox, sessions, stops, switches, turns
from tests.support.rows import good_rows
from tests.support.scene import BOT, Scene, answer, scene

ASK = f"<@{BOT}> the database is slow"
HOUR = 3600.0


@dataclass
class Watch:
    """Sweeps of one process, and what they told."""

    db: Database
    doorbell: Doorbell = field(default_factory=LocalDoorbell)
    owner: str = "worker-1"
    rules: Mapping[Find, Rule] = field(default_factory=lambda: RULES)
    counted: list[tuple[str, int]] = field(default_factory=list)
    changes: int = 0

    def __post_init__(self) -> None:
        numbers = itertools.count(1)
        self.sweeps = Sweeps(
            self.db,
            self.doorbell,
            lambda kind: f"{kind}-sweep-{next(numbers)}",
            owner=self.owner,
            found=lambda kind, count: self.counted.append((kind, count)),
            changed=self._change,
            rules=self.rules,
        )

    def _change(self) -> None:
        self.changes += 1

    async def found(self) -> dict[str, int]:
        """What every sweep once finds."""
        return {kind: count for kind, count in (await self.sweeps.once()).items() if count}


@pytest.fixture
async def thread(database: Database) -> AsyncIterator[Scene]:
    async with scene(database, [answer("It is the index.")] * 9, running=False) as made:
        yield made


@pytest.fixture
def watch(database: Database) -> Watch:
    return Watch(database)


async def change(db: Database, table: str, where: Any = None, **values: Any) -> None:
    """What a bug, a crash or time does to rows."""
    statement = update(metadata.tables[table]).values(**values)
    async with db.transaction() as tx:
        await tx.execute(statement if where is None else statement.where(where))


async def pass_time(db: Database, seconds: float) -> None:
    """Let everything that is written be that much older."""
    for table in metadata.sorted_tables:
        times = [
            column
            for column in table.c
            if column.name.endswith("_at") or column.name in ("start_after", "lease_until", "until", "not_before")
        ]
        if times:
            async with db.transaction() as tx:
                await tx.execute(update(table).values({column: column - seconds for column in times}))


async def drawn(db: Database, turn: TurnId) -> Any:
    """The card of a turn, as people see it."""
    async with db.reading() as tx:
        facts = await card_facts(tx, turn, max_steps=8)
    assert facts is not None
    return view(facts)


async def work(thread: Scene, count: int) -> list[str]:
    """Let a worker work until `count` turns have settled; their reasons."""
    task = asyncio.ensure_future(thread.worker.run())
    try:
        return await thread.settled(count)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def answered(thread: Scene) -> Arrived:
    """A question that was asked and answered; its card is not sent yet."""
    arrived = await thread.say(ASK)
    assert await work(thread, 1) == ["completed"]
    return arrived


# -- nothing to find


async def test_a_healthy_database_has_nothing_to_find(thread: Scene, watch: Watch) -> None:
    await answered(thread)
    await thread.say("and why?")
    await thread.say("+ and then the cache")
    assert await watch.found() == {}
    assert watch.counted == []
    assert watch.changes == 0


# -- old requests


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
    assert card.headline == "Ran out of time before the first step, before there was an answer."
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


# -- sessions and turns


async def test_a_session_that_claims_to_run_without_a_turn_is_idle_again(thread: Scene, watch: Watch) -> None:
    await answered(thread)
    await change(thread.db, "sessions", state="running")
    assert await watch.found() == {"state_disagrees": 1}
    assert (await thread.rows("sessions"))[0]["state"] == "idle"
    await change(thread.db, "sessions", state="waiting")
    assert await watch.found() == {"state_disagrees": 1}, "what came back after a repair is another find"
    assert (await thread.rows("sessions"))[0]["state"] == "idle"


async def test_a_session_that_claims_to_be_idle_beside_its_turn_runs_again(thread: Scene, watch: Watch) -> None:
    await thread.say(ASK)
    await change(thread.db, "sessions", state="idle")
    assert await watch.found() == {"state_disagrees": 1}
    assert (await thread.rows("sessions"))[0]["state"] == "running"


async def test_a_session_that_waits_for_a_helper_is_left_to_wait(thread: Scene, watch: Watch) -> None:
    asked = await answered(thread)
    await change(thread.db, "sessions", state="waiting")
    async with thread.db.transaction() as tx:
        helper = good_rows(7)["sessions"] | {"parent_turn_id": asked.turn, "state": "waiting"}
        await tx.execute(insert(sessions).values(**helper))
        deeper = good_rows(8)
        await tx.execute(insert(turns).values(**deeper["turns"] | {"session_id": "s7"}))
        await tx.execute(insert(sessions).values(**deeper["sessions"] | {"parent_turn_id": "t8", "state": "running"}))
        await tx.execute(insert(turns).values(**good_rows(9)["turns"] | {"session_id": "s8", "start_after": now()}))
        await tx.execute(update(turns).where(turns.c.id == "t8").values(state="settled"))
    assert await watch.found() == {}


async def test_a_turn_that_no_worker_takes_rings_the_bell(thread: Scene) -> None:
    bell = LocalDoorbell()
    watch = Watch(thread.db, bell)
    arrived = await thread.say(ASK)
    await pass_time(thread.db, 61)
    async with bell.listen() as rings:
        assert await watch.found() == {"turn_unclaimed": 1}
        async with asyncio.timeout(5):
            assert await anext(rings) == arrived.session


async def test_what_is_still_there_at_the_next_sweep_is_counted_once(thread: Scene, watch: Watch) -> None:
    await thread.say(ASK)
    await pass_time(thread.db, 61)
    assert await watch.found() == {"turn_unclaimed": 1}
    assert await watch.found() == {}
    assert watch.counted == [("turn_unclaimed", 1)]


async def test_while_operators_pause_nobody_is_missed(thread: Scene, watch: Watch) -> None:
    await thread.say(ASK)
    async with thread.db.transaction() as tx:
        await tx.execute(
            insert(switches).values(name="paused", value="yes", changed_by="U0OPERATOR", changed_at=now())
        )
    await pass_time(thread.db, 61)
    assert await watch.found() == {}


async def test_a_turn_that_was_handed_over_a_moment_ago_is_not_missed_yet(thread: Scene, watch: Watch) -> None:
    arrived = await thread.say(ASK)
    await pass_time(thread.db, 300)
    await change(thread.db, "turns", state="running")
    drained = {"ended": "drained", "ended_at": now(), "stamp": "drain"}
    async with thread.db.transaction() as tx:
        row = {"turn_id": arrived.turn, "number": 1, "worker": "w", "epoch": 1, "started_at": now() - 90}
        await tx.execute(insert(attempts).values(**row | drained))
    assert await watch.found() == {}
    await pass_time(thread.db, 61)
    assert await watch.found() == {"turn_unclaimed": 1}


# -- cards and posts


async def _card(db: Database) -> dict[str, Any]:
    async with db.reading() as tx:
        row = (await tx.execute(select(cards, now().label("now")))).mappings().one()
        return dict(row)


async def test_an_open_card_of_a_settled_turn_is_due_again(thread: Scene, watch: Watch) -> None:
    await answered(thread)
    await change(thread.db, "cards", message_ts="1.000002", sending="update", sending_at=now(), tries=7)
    await pass_time(thread.db, 29)
    assert await watch.found() == {}, "the writer may still be at it"
    await pass_time(thread.db, 61)
    assert await watch.found() == {"card_unfinished": 1}
    card = await _card(thread.db)
    assert (card["state"], card["sending"], card["not_before"], card["tries"]) == ("open", None, 0.0, 0)
    assert watch.changes == 1


async def test_a_card_that_waits_as_long_as_slack_asked_is_left_to_wait(thread: Scene, watch: Watch) -> None:
    await answered(thread)
    await pass_time(thread.db, 61)
    await change(thread.db, "cards", not_before=now() + 100)
    assert await watch.found() == {}
    await change(thread.db, "cards", not_before=now() + 9000)
    assert await watch.found() == {"card_unfinished": 1}, "nobody asks us to wait that long"


async def test_a_post_without_outcome_stays_one_so_that_it_is_looked_up_first(thread: Scene, watch: Watch) -> None:
    await answered(thread)
    await change(thread.db, "cards", sending="post", sending_at=now())
    await pass_time(thread.db, 61)
    assert await watch.found() == {"card_unfinished": 1}
    assert (await _card(thread.db))["sending"] == "post"


async def test_the_card_of_a_turn_that_waits_for_its_helper_stays_open(thread: Scene, watch: Watch) -> None:
    asked = await answered(thread)
    await change(thread.db, "sessions", state="waiting")
    async with thread.db.transaction() as tx:
        helper = good_rows(7)["sessions"] | {"parent_turn_id": asked.turn, "state": "running"}
        await tx.execute(insert(sessions).values(**helper))
        await tx.execute(insert(turns).values(**good_rows(7)["turns"] | {"start_after": now() + 999}))
    await pass_time(thread.db, 61)
    assert await watch.found() == {}


async def _refuse_the_card(db: Database) -> None:
    await change(db, "outbox", outbox.c.kind != "status", state="failed", ended_at=now(), error="x")
    await change(db, "cards", error="some_odd_error", not_before=now() + 10_700)
    await pass_time(db, 601)


async def test_a_card_that_slack_refuses_while_it_takes_others_is_released_with_its_error(
    thread: Scene, watch: Watch
) -> None:
    await answered(thread)
    await _refuse_the_card(thread.db)
    async with thread.db.transaction() as tx:
        first = select(func.min(outbox.c.id)).scalar_subquery()
        await tx.execute(update(outbox).where(outbox.c.id == first).values(state="sent", ended_at=now()))
    assert (await watch.found())["card_given_up"] == 1
    card = await _card(thread.db)
    assert (card["state"], card["error"]) == ("released", "some_odd_error")
    assert card["released_at"] is not None


async def test_while_slack_takes_nothing_final_cards_wait_for_it(thread: Scene, watch: Watch) -> None:
    await answered(thread)
    await _refuse_the_card(thread.db)
    assert "card_given_up" not in await watch.found()
    assert (await _card(thread.db))["state"] == "open"
    await pass_time(thread.db, 86_400)
    assert (await watch.found())["card_given_up"] == 1


async def test_a_post_without_outcome_is_counted(thread: Scene, watch: Watch) -> None:
    await answered(thread)
    await change(thread.db, "cards", state="released", released_at=now())
    await change(thread.db, "outbox", outbox.c.kind == "answer", state="sending", sending_at=now())
    assert await watch.found() == {}
    await pass_time(thread.db, 121)
    assert await watch.found() == {"post_unclear": 1}
    assert watch.changes == 1


# -- who sweeps, and when


async def test_of_two_processes_one_sweeps(thread: Scene, watch: Watch) -> None:
    other = Watch(thread.db, owner="worker-2")
    assert len(await watch.sweeps.once()) == 9
    assert await other.sweeps.once() == {}
    await watch.sweeps.stop()
    assert len(await other.sweeps.once()) == 9


async def test_the_timetable_sweeps_until_it_is_stopped(thread: Scene) -> None:
    often = {find: replace(rule, every_s=0.05) for find, rule in RULES.items()}
    watch = Watch(thread.db, rules=often)
    await thread.say(ASK)
    await pass_time(thread.db, HOUR)
    watch.sweeps.start()

    async def counted() -> bool:
        return ("turn_out_of_date", 1) in watch.counted

    await thread.until(counted)
    await watch.sweeps.stop()
    assert await thread.rows("leases") == []
    await watch.sweeps.stop()


async def test_a_sweep_that_the_database_fails_does_not_keep_the_bot_from_starting(sqlite_url: str) -> None:
    db = await Database.connect(sqlite_url)
    async with db.transaction() as tx:
        await tx.execute(text("DROP TABLE outbox"))
    ran = await Watch(db).sweeps.once()
    await db.close()
    assert "turn_unclaimed" in ran
    assert "post_unclear" not in ran
