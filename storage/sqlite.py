"""SQLite's connections: one hop to the connection's thread a statement, and every transaction opened on purpose.

Two promises:

* The driver is in autocommit and the connection itself sends `begin` before the first statement of a transaction:
  `BEGIN IMMEDIATE` for writers, because a transaction that reads first and writes later silently loses updates
  or dies of SQLITE_BUSY half-way. It travels with that statement, so it costs no hop of its own.
* A statement, its rows and the end of its cursor are one hop, where aiosqlite needs four: most of the CPU of a
  durable turn would be spent on those hops.

`InlineConnection` has no thread at all: under a virtual clock a statement must end before time can jump.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Protocol

import aiosqlite

BUSY_TIMEOUT_S = 5.0
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
        f"PRAGMA busy_timeout = {0 if inline else round(BUSY_TIMEOUT_S * 1000)}",
    ]
    if begin == "BEGIN":
        pragmas.append("PRAGMA query_only = ON")

    def open_file(path: str, options: dict[str, Any]) -> sqlite3.Connection:
        options = options | {"isolation_level": None, "check_same_thread": False}
        connection: sqlite3.Connection = sqlite3.connect(path, **options)
        for pragma in pragmas:
            connection.execute(pragma).close()
        connection.create_function("pilothouse_now", 0, clock)
        return connection

    async def open_connection(path: str, **options: Any) -> aiosqlite.Connection:
        kind = InlineConnection if inline else OneHopConnection
        connection: OneHopConnection = kind(partial(open_file, path, options), begin)
        await connection
        return connection

    return open_connection


class OneHopCursor:
    """The cursor that SQLAlchemy drives: the rows are here when `execute` returns."""

    def __init__(self, connection: OneHopConnection) -> None:
        self._connection = connection
        self._rows: list[Any] = []
        self.description: Any = None
        self.rowcount = -1
        self.lastrowid: int | None = None
        self.arraysize = 1

    async def __aenter__(self) -> OneHopCursor:
        return self

    async def execute(self, sql: str, parameters: Sequence[Any] = ()) -> OneHopCursor:
        return await self._connection.step(partial(self._run, "execute", sql, parameters))

    async def executemany(self, sql: str, parameters: Sequence[Sequence[Any]]) -> OneHopCursor:
        return await self._connection.step(partial(self._run, "executemany", sql, parameters))

    async def fetchall(self) -> list[Any]:
        rows, self._rows = self._rows, []
        return rows

    async def close(self) -> None:
        """Nothing is open: the hop closed it."""

    def _run(self, method: str, sql: str, parameters: Any, connection: sqlite3.Connection) -> OneHopCursor:
        cursor = getattr(connection, method)(sql, parameters)
        self.description = cursor.description
        self._rows = cursor.fetchall() if cursor.description else []
        self.rowcount = cursor.rowcount
        self.lastrowid = cursor.lastrowid
        cursor.close()
        return self


class OneHopConnection(aiosqlite.Connection):
    """A connection whose thread gets a whole statement at a time."""

    def __init__(self, connector: Callable[[], sqlite3.Connection], begin: str) -> None:
        super().__init__(connector, iter_chunk_size=64)
        self._begin = begin
        self._thread.daemon = True

    def cursor(self) -> Any:
        return OneHopCursor(self)

    async def step(self, work: Callable[[sqlite3.Connection], OneHopCursor]) -> OneHopCursor:
        result: OneHopCursor = await self._hop(partial(self._in_transaction, work))
        return result

    async def commit(self) -> None:
        if self._conn.in_transaction:
            await self._hop(self._conn.commit)

    async def rollback(self) -> None:
        if self._conn.in_transaction:
            await self._hop(self._conn.rollback)

    async def _hop(self, work: Callable[[], Any]) -> Any:
        return await self._execute(work)  # type: ignore[no-untyped-call]

    def _in_transaction(self, work: Callable[[sqlite3.Connection], OneHopCursor]) -> OneHopCursor:
        connection = self._conn
        if not connection.in_transaction:
            connection.execute(self._begin).close()
        return work(connection)


class InlineConnection(OneHopConnection):
    """The same without a thread. What would block in SQLite's busy handler sleeps in the loop instead."""

    async def _connect(self) -> InlineConnection:
        self._connection = self._connector()
        return self

    def __await__(self) -> Any:
        return self._connect().__await__()

    async def _execute(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        for _ in range(round(BUSY_TIMEOUT_S / _BUSY_POLL_S)):
            try:
                return fn(*args, **kwargs)
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                    raise
                await asyncio.sleep(_BUSY_POLL_S)
        return fn(*args, **kwargs)

    async def close(self) -> None:
        self.stop()

    def stop(self) -> None:
        connection, self._connection = self._connection, None
        self._running = False
        if connection is not None:
            connection.close()
