"""The engine, over both databases."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import insert, select, update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from core.errors import BadInput
from storage.database import Database, now, run
from storage.dialect import insert_ignore
from storage.tables import leases


async def _put(db: Database, name: str, until: float = 0) -> None:
    async with db.transaction() as tx:
        await tx.execute(insert(leases).values(name=name, owner="w", until=until))


async def _until(db: Database, name: str) -> float | None:
    async with db.reading() as tx:
        return (await tx.execute(select(leases.c.until).where(leases.c.name == name))).scalar()


async def test_what_a_transaction_wrote_is_there_after_it(database: Database) -> None:
    await _put(database, "a", 3)
    assert await _until(database, "a") == 3


async def test_an_exception_rolls_everything_back(database: Database) -> None:
    with pytest.raises(ZeroDivisionError):
        async with database.transaction() as tx:
            await tx.execute(insert(leases).values(name="a", owner="w", until=1))
            _ = 1 / 0
    assert await _until(database, "a") is None


async def test_a_cancelled_transaction_leaves_nothing_behind_and_the_next_one_works(database: Database) -> None:
    written, forever = asyncio.Event(), asyncio.Event()

    async def wait_inside() -> None:
        async with database.transaction() as tx:
            await tx.execute(insert(leases).values(name="a", owner="w", until=1))
            written.set()
            await forever.wait()

    task = asyncio.create_task(wait_inside())
    await written.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await _until(database, "a") is None
    await _put(database, "a", 2)
    assert await _until(database, "a") == 2


async def test_tasks_cancelled_at_any_moment_neither_lose_the_pool_nor_leave_half_a_transaction(
    database: Database,
) -> None:
    await _put(database, "left", 0)
    await _put(database, "right", 0)

    async def both() -> None:
        async with database.transaction() as tx:
            for name in ("left", "right"):
                await tx.execute(update(leases).where(leases.c.name == name).values(until=leases.c.until + 1))

    for ticks in range(40):
        task = asyncio.create_task(both())
        for _ in range(ticks):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
    await both()
    assert await _until(database, "left") == await _until(database, "right")


async def test_a_reading_can_not_write(database: Database) -> None:
    with pytest.raises(DBAPIError):
        async with database.reading() as tx:
            await tx.execute(insert(leases).values(name="a", owner="w", until=1))
    await _put(database, "a")


async def test_a_reading_sees_one_moment(database: Database) -> None:
    await _put(database, "a", 1)
    query = select(leases.c.until)
    async with database.reading() as tx:
        assert (await tx.execute(query)).scalar() == 1
        async with database.transaction() as other:
            await other.execute(update(leases).values(until=2))
        assert (await tx.execute(query)).scalar() == 1


async def test_counting_up_in_parallel_loses_nothing(database: Database) -> None:
    await _put(database, "a", 0)
    mine = leases.c.name == "a"

    async def count_up() -> None:
        for _ in range(30):
            async with database.transaction() as tx:
                query = select(leases.c.until).where(mine).with_for_update()
                value = (await tx.execute(query)).scalar_one()
                await tx.execute(update(leases).where(mine).values(until=value + 1))

    await asyncio.gather(*(count_up() for _ in range(4)))
    assert await _until(database, "a") == 120


async def test_counting_up_over_two_connections_pools_loses_nothing(database_url: str) -> None:
    """Two processes on one database, each with pools of its own."""
    first, second = await Database.connect(database_url), await Database.connect(database_url)
    await _put(first, "a", 0)

    async def count_up(db: Database) -> None:
        async def work(tx: AsyncConnection) -> None:
            value = (await tx.execute(select(leases.c.until).with_for_update())).scalar_one()
            await tx.execute(update(leases).values(until=value + 1))

        for _ in range(20):
            await run(db, work)

    await asyncio.gather(count_up(first), count_up(second), count_up(first), count_up(second))
    assert await _until(first, "a") == 80
    await first.close()
    await second.close()


async def test_a_second_row_with_the_same_key_is_left_out(database: Database) -> None:
    async with database.transaction() as tx:
        row = insert_ignore(leases, database.dialect).values(name="a", owner="w", until=1)
        assert (await tx.execute(row)).rowcount == 1
        assert (await tx.execute(row.values(until=2))).rowcount == 0
    assert await _until(database, "a") == 1


async def test_the_databases_clock_moves_inside_a_transaction(database: Database) -> None:
    async with database.transaction() as tx:
        first = (await tx.execute(select(now()))).scalar_one()
        later = first
        while later == first:
            later = (await tx.execute(select(now()))).scalar_one()
    assert later > first > 1_700_000_000


async def test_commits_and_statements_are_counted(database: Database) -> None:
    commits, statements = database.commits, database.statements
    await _put(database, "a")
    assert (database.commits - commits, database.statements - statements) == (1, 1)


async def test_a_broken_constraint_is_not_repeated(database: Database) -> None:
    tries = 0

    async def twice(tx: AsyncConnection) -> None:
        nonlocal tries
        tries += 1
        for _ in range(2):
            await tx.execute(insert(leases).values(name="a", owner="w", until=1))

    with pytest.raises(DBAPIError):
        await run(database, twice)
    assert tries == 1


@pytest.mark.postgres
async def test_of_two_that_lock_crosswise_both_end_well(postgres_database: Database) -> None:
    for name in "ab":
        await _put(postgres_database, name, 0)
    both_hold_one = asyncio.Barrier(2)
    tries = 0

    async def lock(first: str, second: str) -> None:
        met = False

        async def work(tx: AsyncConnection) -> None:
            nonlocal tries, met
            tries += 1
            await tx.execute(update(leases).where(leases.c.name == first).values(until=leases.c.until + 1))
            if not met:
                met = True
                await both_hold_one.wait()
            await tx.execute(update(leases).where(leases.c.name == second).values(until=leases.c.until + 1))

        await run(postgres_database, work)

    await asyncio.gather(lock("a", "b"), lock("b", "a"))
    assert (await _until(postgres_database, "a"), await _until(postgres_database, "b"), tries) == (2, 2, 3)


@pytest.mark.postgres
async def test_a_connection_that_died_in_the_pool_is_replaced(postgres_database: Database) -> None:
    async with postgres_database.transaction() as tx:
        driver = (await tx.get_raw_connection()).driver_connection
    assert driver is not None
    driver.terminate()
    await _put(postgres_database, "a")


async def test_a_virtual_clock_is_what_the_database_says(sqlite_url: str) -> None:
    time = 100.0
    db = await Database.connect(sqlite_url, clock=lambda: time)
    async with db.transaction() as tx:
        assert (await tx.execute(select(now()))).scalar() == 100
        time = 107.5
        assert (await tx.execute(select(now()))).scalar() == 107.5
    await db.close()


async def test_under_a_virtual_clock_writers_of_two_pools_wait_for_each_other(sqlite_url: str) -> None:
    first, second = [await Database.connect(sqlite_url, clock=lambda: 0.0) for _ in range(2)]
    async with first.transaction() as tx:
        await tx.execute(insert(leases).values(name="a", owner="w", until=1))
        waiting = asyncio.create_task(_put(second, "b", 2))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not waiting.done()
    await waiting
    assert await _until(first, "b") == 2
    await first.close()
    await second.close()


async def test_a_database_in_memory_survives_a_cancelled_statement() -> None:
    db = await Database.connect("sqlite+aiosqlite:///:memory:")
    async with db.transaction() as tx:
        await tx.run_sync(leases.create)
    for ticks in range(12):
        task = asyncio.create_task(_put(db, f"n{ticks}"))
        for _ in range(ticks):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
    await _put(db, "a", 5)
    assert await _until(db, "a") == 5
    await db.close()


@pytest.mark.parametrize("url", ["", "postgres://x", "sqlite:///x.db", "nonsense"])
async def test_an_address_that_can_not_be_used_says_what_would_be(url: str) -> None:
    with pytest.raises(BadInput, match=r"must begin with sqlite\+aiosqlite:///"):
        await Database.connect(url)
