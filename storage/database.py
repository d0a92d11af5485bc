"""The database: where transactions begin and end, and whose clock counts.

Every decision is one short write transaction (`transaction`), everything that only looks is a `reading`, which sees
one moment and can't write. SQLite has one writer at a time: its pool of one connection is the queue, first come
first served, and `BEGIN IMMEDIATE` keeps other processes out. PostgreSQL locks rows, so writers run side by side.

Times come from `now()`, the database's clock: workers' own clocks disagree, and a lease that one worker believes to
have ended must not be alive for another. A given `clock` (SQLite only) makes time virtual and runs statements in
the event loop itself, so that a jump of time never overtakes a statement.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Float, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, DisconnectionError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from core.errors import BadInput
from storage.sqlite import opener

Result = TypeVar("Result")

READERS = 4
POSTGRESQL_POOL = 10
_REPEATABLE = frozenset({"40001", "40P01"})
_POSTGRESQL_SETTINGS = {
    "application_name": "pilothouse",
    "statement_timeout": "30000",
    "lock_timeout": "15000",
    "idle_in_transaction_session_timeout": "60000",
    "jit": "off",
}


class now(FunctionElement[float]):
    """Seconds since the epoch by the database's clock, at the moment that the row is written."""

    type = Float()
    inherit_cache = True


@compiles(now, "sqlite")
def _now_on_sqlite(element: now, compiler: Any, **options: Any) -> str:
    return "pilothouse_now()"


@compiles(now, "postgresql")
def _now_on_postgresql(element: now, compiler: Any, **options: Any) -> str:
    return "CAST(extract(epoch FROM clock_timestamp()) AS double precision)"


class Database:
    """One database and its pools. `commits` and `statements` count what was sent, for the bench."""

    def __init__(self, writer: AsyncEngine, reader: AsyncEngine, scratch: Callable[[], None]) -> None:
        self.dialect: str = writer.dialect.name
        self.commits = 0
        self.statements = 0
        self._writer = writer
        self._reader = reader
        self._scratch = scratch
        for engine in {writer.sync_engine, reader.sync_engine}:
            event.listen(engine, "before_cursor_execute", self._count)

    @classmethod
    async def connect(cls, url: str, *, clock: Callable[[], float] | None = None) -> Database:
        """The database at `url`, opened with the first transaction. Raises BadInput for a bad address."""
        try:
            parsed = make_url(url)
        except ArgumentError as error:
            raise BadInput(_ADDRESS_HELP) from error
        match parsed.drivername:
            case "sqlite+aiosqlite":
                return cls(*_sqlite(parsed, clock))
            case "postgresql+asyncpg" if clock is None:
                return cls(*_postgresql(parsed))
            case "postgresql+asyncpg":
                raise BadInput("A clock of one's own works with SQLite only.")
        raise BadInput(_ADDRESS_HELP)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection]:
        """A write transaction: committed at the end, rolled back by any exception."""
        async with self._writer.begin() as tx:
            yield tx
        self.commits += 1

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncConnection]:
        """A read transaction that sees one moment; a write in it is refused by the database."""
        async with self._reader.begin() as tx:
            yield tx

    async def close(self) -> None:
        await self._reader.dispose()
        await self._writer.dispose()
        self._scratch()

    def _count(self, *_: Any) -> None:
        self.statements += 1


async def run(db: Database, work: Callable[[AsyncConnection], Awaitable[Result]], attempts: int = 3) -> Result:
    """Run `work` in a write transaction of its own; as a whole again when the database asks for that."""
    for _ in range(attempts - 1):
        try:
            async with db.transaction() as tx:
                return await work(tx)
        except DBAPIError as error:
            if not asks_for_repetition(error):
                raise
    async with db.transaction() as tx:
        return await work(tx)


def asks_for_repetition(error: DBAPIError) -> bool:
    """Whether nothing was written and the same transaction may succeed now: serialization, deadlock, busy."""
    original = error.orig
    if getattr(original, "sqlstate", None) in _REPEATABLE:
        return True
    return str(getattr(original, "sqlite_errorname", "")).startswith("SQLITE_BUSY")


_ADDRESS_HELP = (
    "The database address must begin with sqlite+aiosqlite:/// (then a path) or postgresql+asyncpg:// "
    "(then user:password@host/name)."
)


def _sqlite(url: URL, clock: Callable[[], float] | None) -> tuple[AsyncEngine, AsyncEngine, Callable[[], None]]:
    in_memory = url.database in (None, "", ":memory:")
    if in_memory:
        # A database in the memory of one connection is lost with the first statement that is cancelled.
        directory = tempfile.TemporaryDirectory(prefix="pilothouse-", ignore_cleanup_errors=True)
        url, scratch = url.set(database=f"{directory.name}/memory.db"), directory.cleanup
    else:
        Path(str(url.database)).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        scratch = _nothing

    def engine(begin: str, size: int) -> AsyncEngine:
        opened = opener(begin=begin, clock=clock or time.time, inline=clock is not None, durable=not in_memory)
        return create_async_engine(
            url,
            connect_args={"async_creator_fn": opened},
            pool_size=size,
            max_overflow=0,
            pool_timeout=60,
        )

    return engine("BEGIN IMMEDIATE", 1), engine("BEGIN", READERS), scratch


def _postgresql(url: URL) -> tuple[AsyncEngine, AsyncEngine, Callable[[], None]]:
    engine = create_async_engine(
        url,
        connect_args={"server_settings": _POSTGRESQL_SETTINGS, "timeout": 10},
        pool_size=POSTGRESQL_POOL,
        max_overflow=POSTGRESQL_POOL,
    )
    event.listen(engine.sync_engine, "checkout", _refuse_closed)
    reading = engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
    return engine, reading, _nothing


def _refuse_closed(dbapi_connection: Any, record: Any, proxy: Any) -> None:
    """After a restart of the server the pool opens anew, without a ping before every transaction."""
    if dbapi_connection.driver_connection.is_closed():
        raise DisconnectionError


def _nothing() -> None:
    """Nothing was put aside."""
