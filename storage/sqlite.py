"""SQLite, in this process: statements run in the event loop, and only commits wait for the disk, in a thread.

* A statement takes tens of microseconds; an asynchronous driver around it (a hop to a thread and back, a greenlet, an
  adapter) takes several times that. So connections are plain ones of the standard library, under SQLAlchemy's own
  dialect for them, with the face of an `AsyncConnection`.
* Only the commit of a writer waits for the disk. It is made in a thread, and the writer is held until it has come
  back, whatever happens to whoever waits for it.
* A writer's transaction begins with `BEGIN IMMEDIATE`, because one that reads first and writes later silently loses
  updates or dies of SQLITE_BUSY half-way. What would block in SQLite's busy handler sleeps in the loop instead.

Under a virtual clock (`inline`) nothing has a thread: a commit must end before time can jump.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, TypeVar, cast

from sqlalchemy import Connection, Engine, NullPool, create_engine, event
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.ext.asyncio import AsyncConnection

Result = TypeVar("Result")
Counted = Callable[[], None]

READERS = 4
STATEMENTS = 512
"""So many prepared statements a connection keeps; there are more than the 128 of the driver."""
BUSY_TIMEOUT_S = 5.0
_BUSY_POLL_S = 0.002


class Sqlite:
    """One database file: one writer, and readers beside it.

    `clock` is what `pilothouse_now()` says. `statement` and `commit` are called for each that was sent.
    """

    def __init__(
        self,
        path: str,
        *,
        clock: Callable[[], float],
        inline: bool,
        durable: bool,
        statement: Counted,
        commit: Counted,
    ) -> None:
        opened = partial(_open, path, clock=clock, durable=durable)
        self._writer = _Writer(_engine(opened, statement), commit, threaded=durable and not inline)
        self._reads = _engine(partial(opened, reads=True), statement)
        self._readers = asyncio.Semaphore(READERS)
        self._free: list[_Side] = []

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection]:
        """A write transaction."""
        async with self._writer.transaction() as tx:
            yield tx

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncConnection]:
        """A read transaction."""
        async with self._readers:
            side = self._free.pop() if self._free else _Side(self._reads)
            side.raw.execute("BEGIN")
            try:
                yield side.tx
            finally:
                side.raw.rollback()
                self._free.append(side)

    async def close(self) -> None:
        """Close all connections. A later transaction opens the file anew."""
        await self._writer.close()
        while self._free:
            self._free.pop().close()
        self._readers = asyncio.Semaphore(READERS)
        self._reads.dispose()


class _Side:
    """One open connection. SQLAlchemy believes that it is for ever in one transaction: ours are begun beside it."""

    def __init__(self, engine: Engine) -> None:
        self._connection = engine.connect()
        self._connection.begin()
        self.raw = cast(sqlite3.Connection, self._connection.connection.driver_connection)
        self.tx = cast(AsyncConnection, _Face(self._connection))

    def close(self) -> None:
        self._connection.close()


class _Writer:
    """The connection that writes, one transaction at a time, first come first served."""

    def __init__(self, engine: Engine, committed: Counted, *, threaded: bool) -> None:
        self._engine = engine
        self._committed = committed
        self._threaded = threaded
        self._turn = asyncio.Lock()
        self._side: _Side | None = None

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection]:
        async with self._turn:
            side = self._side = self._side or _Side(self._engine)
            raw = side.raw
            await _unless_busy(partial(_say, raw, "BEGIN IMMEDIATE"))
            changes = raw.total_changes
            try:
                yield side.tx
                await self._commit(raw, written=raw.total_changes != changes)
            finally:
                if raw.in_transaction:
                    raw.rollback()

    async def close(self) -> None:
        """A later transaction opens the file anew, perhaps in another event loop."""
        async with self._turn:
            if self._side is not None:
                self._side.close()
            self._side = None
        self._turn = asyncio.Lock()
        self._engine.dispose()

    async def _commit(self, raw: sqlite3.Connection, *, written: bool) -> None:
        if not (self._threaded and written):
            _say(raw, "COMMIT")
        else:
            await _to_its_end(asyncio.ensure_future(asyncio.to_thread(_say, raw, "COMMIT")))
        if written:
            self._committed()


class _Face:
    """As much of an `AsyncConnection` as is used here, around a plain one."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def execute(
        self, statement: Any, parameters: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None
    ) -> Any:
        try:
            return self._connection.execute(statement, parameters)
        except DBAPIError as error:
            if not is_busy(error.orig):
                raise
        return await _unless_busy(partial(self._connection.execute, statement, parameters))

    async def run_sync(self, work: Callable[..., Result], *arguments: Any) -> Result:
        return work(self._connection, *arguments)


def is_busy(error: BaseException | None) -> bool:
    """Whether another process kept SQLite from doing it, so that it may be tried again."""
    return isinstance(error, sqlite3.Error) and str(getattr(error, "sqlite_errorname", "")).startswith("SQLITE_BUSY")


def _open(path: str, *, clock: Callable[[], float], durable: bool, reads: bool = False) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=STATEMENTS)
    for pragma in (
        "journal_mode = WAL",
        f"synchronous = {'FULL' if durable else 'OFF'}",
        "foreign_keys = ON",
        "busy_timeout = 0",
        f"query_only = {'ON' if reads else 'OFF'}",
    ):
        connection.execute(f"PRAGMA {pragma}").close()
    connection.create_function("pilothouse_now", 0, clock)
    return connection


def _engine(opened: Callable[[], sqlite3.Connection], statement: Counted) -> Engine:
    engine = create_engine("sqlite://", creator=opened, poolclass=NullPool)
    event.listen(engine, "before_cursor_execute", lambda *_: statement())
    return engine


def _say(raw: sqlite3.Connection, sql: str) -> None:
    try:
        raw.execute(sql).close()
    except sqlite3.Error as error:
        raise OperationalError(sql, None, error) from error


async def _to_its_end(commit: asyncio.Future[None]) -> None:
    """Wait for a commit. Whoever is cancelled meanwhile hears of it when the commit has come back."""
    try:
        await asyncio.shield(commit)
    except asyncio.CancelledError:
        while not commit.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([commit])
        commit.exception()
        raise


async def _unless_busy(work: Callable[[], Result]) -> Result:
    """Do `work`; while another process keeps SQLite busy, again, for at most `BUSY_TIMEOUT_S`."""
    for _ in range(round(BUSY_TIMEOUT_S / _BUSY_POLL_S)):
        try:
            return work()
        except DBAPIError as error:
            if not is_busy(error.orig):
                raise
        await asyncio.sleep(_BUSY_POLL_S)
    return work()
