"""SQLite's connections: statements run in the event loop, commits in a thread, every transaction opened on purpose.

Three promises:

* The driver is in autocommit and the connection itself sends `begin` before the first statement of a transaction:
  `BEGIN IMMEDIATE` for writers, because a transaction that reads first and writes later silently loses updates
  or dies of SQLITE_BUSY half-way.
* A statement takes tens of microseconds, a hop to a thread and back takes longer: so statements run where they are
  asked for. Only the commit of a writer waits for the disk, and waits for it in the connection's thread.
* What would block in SQLite's busy handler sleeps in the loop instead, so another process that writes stops nobody
  here but whoever wants to write.

Under a virtual clock nothing has a thread: a statement must end before time can jump.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Protocol

import aiosqlite

BUSY_TIMEOUT_S = 5.0
STATEMENTS = 512
"""So many prepared statements a connection keeps; there are more than the 128 of the driver."""
_BUSY_POLL_S = 0.002


class Opened(Protocol):
    """What makes a ready connection: pragmas set, functions registered."""

    def __call__(self, path: str, **options: Any) -> Awaitable[aiosqlite.Connection]: ...


def opener(*, begin: str, clock: Callable[[], float], inline: bool, durable: bool) -> Opened:
    """How to open connections whose transactions start with `begin` and whose `pilothouse_now()` is `clock`."""
    pragmas = [
        "PRAGMA journal_mode = WAL",
        f"PRAGMA synchronous = {'FULL' if durable else 'OFF'}",
        "PRAGMA foreign_keys = ON",
        "PRAGMA busy_timeout = 0",
    ]
    reads = begin == "BEGIN"
    if reads:
        pragmas.append("PRAGMA query_only = ON")

    def open_file(path: str, options: dict[str, Any]) -> sqlite3.Connection:
        options = options | {"isolation_level": None, "check_same_thread": False, "cached_statements": STATEMENTS}
        connection: sqlite3.Connection = sqlite3.connect(path, **options)
        for pragma in pragmas:
            connection.execute(pragma).close()
        connection.create_function("pilothouse_now", 0, clock)
        return connection

    async def open_connection(path: str, **options: Any) -> aiosqlite.Connection:
        kind = InlineConnection if inline or reads or not durable else ThreadedCommits
        connection: ThreadedCommits = kind(partial(open_file, path, options), begin)
        await connection
        return connection

    return open_connection


class Cursor:
    """The cursor that SQLAlchemy drives: the rows are here when `execute` returns."""

    def __init__(self, connection: ThreadedCommits) -> None:
        self._connection = connection
        self._rows: list[Any] = []
        self.description: Any = None
        self.rowcount = -1
        self.lastrowid: int | None = None
        self.arraysize = 1

    async def __aenter__(self) -> Cursor:
        return self

    async def execute(self, sql: str, parameters: Sequence[Any] = ()) -> Cursor:
        return await self._connection.step(partial(self._run, "execute", sql, parameters))

    async def executemany(self, sql: str, parameters: Sequence[Sequence[Any]]) -> Cursor:
        return await self._connection.step(partial(self._run, "executemany", sql, parameters))

    async def fetchall(self) -> list[Any]:
        rows, self._rows = self._rows, []
        return rows

    async def close(self) -> None:
        """Nothing is open: the statement has ended."""

    def _run(self, method: str, sql: str, parameters: Any, connection: sqlite3.Connection) -> Cursor:
        cursor = getattr(connection, method)(sql, parameters)
        self.description = cursor.description
        self._rows = cursor.fetchall() if cursor.description else []
        self.rowcount = cursor.rowcount
        self.lastrowid = cursor.lastrowid
        cursor.close()
        return self


class ThreadedCommits(aiosqlite.Connection):
    """A connection whose statements run here; its commits and rollbacks run in its thread, one after another."""

    def __init__(self, connector: Callable[[], sqlite3.Connection], begin: str) -> None:
        super().__init__(connector, iter_chunk_size=64)
        self._begin = begin
        self._thread.daemon = True

    def cursor(self) -> Any:
        return Cursor(self)

    async def step(self, work: Callable[[sqlite3.Connection], Cursor]) -> Cursor:
        """One statement, in a transaction."""
        result: Cursor = await unless_busy(partial(self._in_transaction, work))
        return result

    async def commit(self) -> None:
        if self._conn.in_transaction:
            await self._execute(self._conn.commit)  # type: ignore[no-untyped-call]

    async def rollback(self) -> None:
        if self._conn.in_transaction:
            await self._execute(self._conn.rollback)  # type: ignore[no-untyped-call]

    def _in_transaction(self, work: Callable[[sqlite3.Connection], Cursor]) -> Cursor:
        connection = self._conn
        if not connection.in_transaction:
            connection.execute(self._begin).close()
        return work(connection)


class InlineConnection(ThreadedCommits):
    """The same without a thread: for what never waits for the disk."""

    async def _connect(self) -> InlineConnection:
        self._connection = self._connector()
        return self

    def __await__(self) -> Any:
        return self._connect().__await__()

    async def _execute(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return await unless_busy(partial(fn, *args, **kwargs))

    async def close(self) -> None:
        self.stop()

    def stop(self) -> None:
        connection, self._connection = self._connection, None
        self._running = False
        if connection is not None:
            connection.close()


async def unless_busy(work: Callable[[], Any]) -> Any:
    """Do `work`; while another process keeps SQLite busy, again, for at most `BUSY_TIMEOUT_S`."""
    for _ in range(round(BUSY_TIMEOUT_S / _BUSY_POLL_S)):
        try:
            return work()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                raise
            await asyncio.sleep(_BUSY_POLL_S)
    return work()
