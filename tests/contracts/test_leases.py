"""Leases, over both databases; what takes time is tried with a clock of our own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from sqlalchemy import insert, select, update

from core.messages import Epoch, SessionId
from storage import leases
from storage.database import Database, now
from storage.tables import sessions
from tests.support.rows import good_rows

S1, S2, S3 = (SessionId(f"s{number}") for number in (1, 2, 3))


class Time:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
async def timed(sqlite_url: str, time: Time) -> AsyncIterator[Database]:
    db = await Database.connect(sqlite_url, clock=time)
    yield db
    await db.close()


async def _held_session(db: Database, number: int, owner: str, epoch: int) -> None:
    row = good_rows(number)["sessions"]
    async with db.transaction() as tx:
        held = {"lease_owner": owner, "lease_until": now() + 15, "epoch": epoch}
        await tx.execute(insert(sessions).values(**row | held))


async def _seconds_left(db: Database, session: SessionId) -> float | None:
    async with db.reading() as tx:
        query = select(sessions.c.lease_until - now()).where(sessions.c.id == session)
        return (await tx.execute(query)).scalar()


async def test_a_lease_is_taken_by_one_and_extended_by_the_same(database: Database) -> None:
    assert await leases.take(database, "writer", "w1", 60)
    assert not await leases.take(database, "writer", "w2", 60)
    assert await leases.take(database, "writer", "w1", 60)
    assert await leases.take(database, "sweep", "w2", 60)


async def test_a_lease_given_back_is_free_at_once(database: Database) -> None:
    await leases.take(database, "writer", "w1", 60)
    await leases.release(database, "writer", "w1")
    assert await leases.take(database, "writer", "w2", 60)


async def test_nobody_gives_back_what_another_holds(database: Database) -> None:
    await leases.take(database, "writer", "w1", 60)
    await leases.release(database, "writer", "w2")
    assert not await leases.take(database, "writer", "w2", 60)


async def test_of_many_that_want_a_free_lease_exactly_one_gets_it(database: Database) -> None:
    wants = [leases.take(database, "writer", f"w{number}", 60) for number in range(8)]
    assert sum(await asyncio.gather(*wants)) == 1


async def test_a_lease_that_ran_out_is_anybodys(database: Database) -> None:
    assert await leases.take(database, "writer", "w1", -1)
    assert await leases.take(database, "writer", "w2", 60)
    assert not await leases.take(database, "writer", "w1", 60)


async def test_a_lease_lives_exactly_as_long_as_it_was_taken_for(timed: Database, time: Time) -> None:
    await leases.take(timed, "writer", "w1", 15)
    time.now += 14.5
    assert not await leases.take(timed, "writer", "w2", 15)
    assert await leases.take(timed, "writer", "w1", 15)
    time.now += 14.5
    assert not await leases.take(timed, "writer", "w2", 15)
    time.now += 0.5
    assert await leases.take(timed, "writer", "w2", 15)


async def test_renewing_extends_all_that_are_still_ours_in_one_statement(database: Database) -> None:
    await _held_session(database, 1, "w1", 4)
    await _held_session(database, 2, "w1", 7)
    await _held_session(database, 3, "w2", 1)
    statements = database.statements
    held = {S1: Epoch(4), S2: Epoch(6), S3: Epoch(1)}
    assert await leases.renew(database, "w1", held, 60) == {S1}
    assert database.statements - statements == 1
    left = [await _seconds_left(database, session) for session in (S1, S2, S3)]
    assert [seconds is not None and seconds > 30 for seconds in left] == [True, False, False]


async def test_renewing_nothing_asks_nothing(database: Database) -> None:
    statements = database.statements
    assert await leases.renew(database, "w1", {}, 60) == set()
    assert database.statements == statements


async def test_a_session_whose_lease_ran_out_can_be_renewed_until_somebody_takes_it(
    timed: Database, time: Time
) -> None:
    await _held_session(timed, 1, "w1", 4)
    time.now += 100
    assert await leases.renew(timed, "w1", {S1: Epoch(4)}, 15) == {S1}
    async with timed.transaction() as tx:
        await tx.execute(update(sessions).values(lease_owner="w2", epoch=5))
    assert await leases.renew(timed, "w1", {S1: Epoch(4)}, 15) == set()


async def test_a_session_is_given_back_only_by_who_holds_it_in_this_epoch(database: Database) -> None:
    await _held_session(database, 1, "w1", 4)
    await leases.release_session(database, S1, "w2", Epoch(4))
    await leases.release_session(database, S1, "w1", Epoch(3))
    assert await _seconds_left(database, S1) is not None
    await leases.release_session(database, S1, "w1", Epoch(4))
    assert await _seconds_left(database, S1) is None
    assert await leases.renew(database, "w1", {S1: Epoch(4)}, 15) == set()
