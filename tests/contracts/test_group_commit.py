"""SQLite's commits, made for all who wait for the disk at that moment."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import insert, select, text
from sqlalchemy.exc import DBAPIError

from storage.database import Database
from storage.tables import leases


async def _put(db: Database, name: str, then: BaseException | None = None) -> None:
    async with db.transaction() as tx:
        await tx.execute(insert(leases).values(name=name, owner="w", until=0))
        if then is not None:
            raise then


async def _names(db: Database) -> list[str]:
    async with db.reading() as tx:
        return list((await tx.execute(select(leases.c.name).order_by(leases.c.name))).scalars())


async def test_transactions_that_wait_together_share_one_commit(sqlite_database: Database) -> None:
    await _put(sqlite_database, "0")
    commits = sqlite_database.commits
    await asyncio.gather(*(_put(sqlite_database, str(number)) for number in range(1, 30)))
    assert len(await _names(sqlite_database)) == 30
    assert sqlite_database.commits - commits < 10


async def test_what_was_committed_together_is_there_for_each_when_it_goes_on(sqlite_database: Database) -> None:
    async def put_and_look(name: str) -> bool:
        await _put(sqlite_database, name)
        return name in await _names(sqlite_database)

    assert all(await asyncio.gather(*(put_and_look(f"n{number}") for number in range(20))))


async def test_one_that_fails_takes_back_its_own_words_only(sqlite_database: Database) -> None:
    trouble = {name: ZeroDivisionError() for name in ("a", "d", "f")}
    ends = await asyncio.gather(
        *(_put(sqlite_database, name, trouble.get(name)) for name in "abcdef"), return_exceptions=True
    )
    assert [type(end) for end in ends if end is not None] == [ZeroDivisionError] * 3
    assert await _names(sqlite_database) == ["b", "c", "e"]


async def test_when_sqlite_takes_a_transaction_back_nobody_in_it_believes_to_have_written(
    sqlite_database: Database,
) -> None:
    async def take_back() -> None:
        async with sqlite_database.transaction() as tx:
            await tx.execute(text("INSERT OR ROLLBACK INTO leases (name, owner, until) VALUES ('b', 'w', 0)"))

    ends = await asyncio.gather(
        _put(sqlite_database, "a"),
        _put(sqlite_database, "b"),
        take_back(),
        _put(sqlite_database, "c"),
        return_exceptions=True,
    )
    assert [isinstance(end, DBAPIError) for end in ends] == [True, True, True, False]
    assert await _names(sqlite_database) == ["c"]


async def test_a_commit_that_the_disk_refuses_is_told_to_everybody_in_it(sqlite_database: Database) -> None:
    async def dangle(session: str) -> None:
        async with sqlite_database.transaction() as tx:
            await tx.execute(text("PRAGMA defer_foreign_keys = ON"))
            await tx.execute(
                text(
                    "INSERT INTO stops (id, session_id, level, author, source, slack_ts, arrived_at) "
                    f"VALUES ('x', '{session}', 'step', 'u', 'button', '1', 0)"
                )
            )

    ends = await asyncio.gather(dangle("nowhere"), _put(sqlite_database, "a"), return_exceptions=True)
    assert all(isinstance(end, DBAPIError) for end in ends)
    await _put(sqlite_database, "b")
    assert await _names(sqlite_database) == ["b"]


async def test_a_database_that_was_closed_opens_again(sqlite_database: Database) -> None:
    await _put(sqlite_database, "a")
    await sqlite_database.close()
    await _put(sqlite_database, "b")
    assert await _names(sqlite_database) == ["a", "b"]


@pytest.mark.parametrize("ticks", range(0, 12, 2))
async def test_whoever_is_cancelled_while_the_disk_is_busy_holds_up_nobody(
    sqlite_database: Database, ticks: int
) -> None:
    tasks = [asyncio.create_task(_put(sqlite_database, str(number))) for number in range(6)]
    for _ in range(ticks):
        await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    await asyncio.wait(tasks)
    assert set(await _names(sqlite_database)) >= {"1", "3", "5"}
