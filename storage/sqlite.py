"""SQLite, in this process: statements run in the event loop, and only commits wait for the disk, in a thread.

* A statement takes tens of microseconds; an asynchronous driver around it (a hop to a thread and back, a greenlet, an
  adapter) takes several times that. So connections are plain ones, with the face of an `AsyncConnection`.
* Only a commit waits for the disk. It is made in a thread, and for all who are there: a transaction that comes while
  one before it waits to be committed joins it, as a savepoint. One that fails takes back what it wrote and nothing
  else; whoever succeeded goes on when the commit of all has come back.
* A writer's transaction begins with `BEGIN IMMEDIATE`, because one that reads first and writes later silently loses
  updates or dies of SQLITE_BUSY half-way. What would block in SQLite's busy handler sleeps in the loop instead.

Under a virtual clock (`inline`) nothing has a thread: a commit must end before time can jump.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
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
        """A write transaction of its own, committed with whatever else waits for the disk at that moment."""
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
        """Wait for the last commit and close everything."""
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
        self._group: asyncio.Future[None] | None = None
        self._changes = 0
        self._last: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection]:
        async with self._turn:
            side = self._side = self._side or _Side(self._engine)
            group = self._group
            if group is not None and not side.raw.in_transaction:
                self._lost(group)
                group = None
            if group is None:
                await _unless_busy(partial(_say, side.raw, "BEGIN IMMEDIATE"))
                self._changes = side.raw.total_changes
                with _undone(side.raw, "ROLLBACK"):
                    yield side.tx
                group = self._group = asyncio.get_running_loop().create_future()
                self._last = asyncio.ensure_future(self._commit(side.raw, group))
            else:
                _say(side.raw, "SAVEPOINT joined")
                with _undone(side.raw, "ROLLBACK TO joined", "RELEASE joined"):
                    yield side.tx
                _say(side.raw, "RELEASE joined")
        await asyncio.shield(group)

    async def close(self) -> None:
        """Wait for the last commit. A later transaction opens the file anew, perhaps in another event loop."""
        if self._last is not None and not self._last.done():
            await asyncio.wait([self._last])
        async with self._turn:
            if self._side is not None:
                self._side.close()
            self._side = self._group = self._last = None
        self._turn = asyncio.Lock()
        self._engine.dispose()

    async def _commit(self, raw: sqlite3.Connection, group: asyncio.Future[None]) -> None:
        """Whoever waits for the writer now comes first, and joins; then all are committed at once."""
        async with self._turn:
            if group.done():
                return
            if not raw.in_transaction:
                self._lost(group)
                return
            try:
                await self._to_disk(raw)
            except sqlite3.Error as error:
                if raw.in_transaction:
                    raw.rollback()
                self._lost(group, error)
            else:
                self._group = None
                group.set_result(None)

    async def _to_disk(self, raw: sqlite3.Connection) -> None:
        written = raw.total_changes != self._changes
        if self._threaded and written:
            await asyncio.to_thread(raw.commit)
        else:
            raw.commit()
        if written:
            self._committed()

    def _lost(self, group: asyncio.Future[None], error: sqlite3.Error | None = None) -> None:
        """Nothing of a group was committed: SQLite took it back, for want of room or because of the disk."""
        self._group = None
        error = error or sqlite3.OperationalError("SQLite took the transaction back")
        group.set_exception(OperationalError("COMMIT", None, error))
        group.exception()


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


@contextmanager
def _undone(raw: sqlite3.Connection, *statements: str) -> Iterator[None]:
    """Take back what was written, if it goes wrong. For grave errors SQLite has taken back everything itself."""
    try:
        yield
    except BaseException:
        for sql in statements if raw.in_transaction else ():
            _say(raw, sql)
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
