"""The database: where transactions begin and end, and whose clock counts.

Every decision is one short write transaction (`transaction`), everything that only looks is a `reading`, which sees
one moment and can't write. SQLite has one writer at a time, first come first served, and `BEGIN IMMEDIATE` keeps
other processes out (`storage.sqlite`). PostgreSQL locks rows, so writers run side by side.

Times come from `now()`, the database's clock: workers' own clocks disagree, and a lease that one worker believes to
have ended must not be alive for another. A given `clock` (SQLite only) makes time virtual; then nothing has a thread,
so that a jump of time never overtakes a commit.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from sqlalchemy import Float, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, DisconnectionError
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from core.errors import BadInput
from storage.sqlite import Sqlite, is_busy

Result = TypeVar("Result")

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


class Side(Protocol):
    """One kind of database."""

    def transaction(self) -> AbstractAsyncContextManager[AsyncConnection]: ...

    def reading(self) -> AbstractAsyncContextManager[AsyncConnection]: ...

    async def close(self) -> None: ...


class Database:
    """One database and its connections. `commits` and `statements` count what was sent, for the bench."""

    def __init__(self, dialect: str, side: Callable[[Database], Side], scratch: Callable[[], None]) -> None:
        self.dialect = dialect
        self.commits = 0
        self.statements = 0
        self._side = side(self)
        self._scratch = scratch

    @classmethod
    async def connect(cls, url: str, *, clock: Callable[[], float] | None = None) -> Database:
        """The database at `url`, opened with the first transaction. Raises BadInput for a bad address."""
        try:
            parsed = make_url(url)
        except ArgumentError as error:
            raise BadInput(_ADDRESS_HELP) from error
        match parsed.drivername:
            case "sqlite+aiosqlite":
                return cls("sqlite", *_sqlite(parsed, clock))
            case "postgresql+asyncpg" if clock is None:
                return cls("postgresql", partial(_Postgresql, parsed), _nothing)
            case "postgresql+asyncpg":
                raise BadInput("A clock of one's own works with SQLite only.")
        raise BadInput(_ADDRESS_HELP)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection]:
        """A write transaction: committed at the end, rolled back by any exception."""
        async with self._side.transaction() as tx:
            yield tx

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncConnection]:
        """A read transaction that sees one moment; a write in it is refused by the database."""
        async with self._side.reading() as tx:
            yield tx

    async def close(self) -> None:
        await self._side.close()
        self._scratch()

    def count_statement(self, *_: Any) -> None:
        self.statements += 1

    def count_commit(self) -> None:
        self.commits += 1


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
    return is_busy(original)


_ADDRESS_HELP = (
    "The database address must begin with sqlite+aiosqlite:/// (then a path) or postgresql+asyncpg:// "
    "(then user:password@host/name)."
)


def _sqlite(url: URL, clock: Callable[[], float] | None) -> tuple[Callable[[Database], Side], Callable[[], None]]:
    in_memory = url.database in (None, "", ":memory:")
    if in_memory:
        # Readers and the writer have connections of their own, so they need a file.
        directory = tempfile.TemporaryDirectory(prefix="pilothouse-", ignore_cleanup_errors=True)
        path, scratch = f"{directory.name}/memory.db", directory.cleanup
    else:
        path, scratch = str(url.database), _nothing
        Path(path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)

    def side(db: Database) -> Side:
        return Sqlite(
            path,
            clock=clock or time.time,
            inline=clock is not None,
            durable=not in_memory,
            statement=db.count_statement,
            commit=db.count_commit,
        )

    return side, scratch


class _Postgresql:
    """A server, through one pool."""

    def __init__(self, url: URL, db: Database) -> None:
        self._db = db
        self._engine = create_async_engine(
            url,
            connect_args={"server_settings": _POSTGRESQL_SETTINGS, "timeout": 10},
            pool_size=POSTGRESQL_POOL,
            max_overflow=POSTGRESQL_POOL,
        )
        event.listen(self._engine.sync_engine, "checkout", _refuse_closed)
        event.listen(self._engine.sync_engine, "before_cursor_execute", db.count_statement)
        self._reads = self._engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection]:
        async with self._engine.begin() as tx:
            yield tx
        self._db.count_commit()

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncConnection]:
        async with self._reads.begin() as tx:
            yield tx

    async def close(self) -> None:
        await self._engine.dispose()


def _refuse_closed(dbapi_connection: Any, record: Any, proxy: Any) -> None:
    """After a restart of the server the pool opens anew, without a ping before every transaction."""
    if dbapi_connection.driver_connection.is_closed():
        raise DisconnectionError


def _nothing() -> None:
    """Nothing was put aside."""
