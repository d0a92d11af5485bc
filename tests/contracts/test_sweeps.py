"""What a bug or a crash leaves lying about: a sweep finds it, counts it and puts it right, on both databases."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import func, insert, select, text, update

from core.reconcile import RULES
from storage.database import Database, now
from storage.doorbell import LocalDoorbell
from storage.tables import attempts, cards, outbox, sessions, switches, turns
from tests.support.rows import good_rows
from tests.support.scene import Scene, answer, scene
from tests.support.sweeps import ASK, HOUR, Watch, answered, change, pass_time


@pytest.fixture
async def thread(database: Database) -> AsyncIterator[Scene]:
    async with scene(database, [answer("It is the index.")] * 9, running=False) as made:
        yield made


@pytest.fixture
def watch(database: Database) -> Watch:
    return Watch(database)


# -- nothing to find


async def test_a_healthy_database_has_nothing_to_find(thread: Scene, watch: Watch) -> None:
    await answered(thread)
    await thread.say("and why?")
    await thread.say("+ and then the cache")
    assert await watch.found() == {}
    assert watch.counted == []
    assert watch.changes == 0


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
    assert len(await watch.sweeps.once()) == len(RULES)
    assert await other.sweeps.once() == {}
    await watch.sweeps.stop()
    assert len(await other.sweeps.once()) == len(RULES)


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
