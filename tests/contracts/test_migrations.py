"""The revisions build exactly what `storage/tables.py` says, and the way back leaves nothing."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Inspector, inspect, text

from core.errors import BadInput
from storage import migrate
from storage.database import Database
from storage.migrations import walk
from storage.tables import metadata
from tests.support.postgres import PostgresServer


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
async def empty_databases(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[list[Database]]:
    """Two databases without tables."""
    names = ["empty_a", "empty_b"]
    if request.param == "sqlite":
        urls = [f"sqlite+aiosqlite:///{tmp_path}/{name}.db" for name in names]
    else:
        server: PostgresServer = request.getfixturevalue("postgres_server")
        for name in names:
            await server.empty(name)
        urls = [server.url(name) for name in names]
    databases = [await Database.connect(url) for url in urls]
    yield databases
    for db in databases:
        await db.close()
    if request.param == "postgresql":
        for name in names:
            await server.drop(name)


async def _walk(db: Database, direction: Any, revision: str) -> None:
    async with db.transaction() as tx:
        await tx.run_sync(direction, revision)


async def _shape(db: Database) -> dict[str, Any]:
    async with db.reading() as tx:
        return await tx.run_sync(_shape_of)


def _shape_of(connection: Connection) -> dict[str, Any]:
    """Everything that the database itself says about its tables."""
    inspector = inspect(connection)
    tables = set(inspector.get_table_names()) - {"alembic_version"}
    return {name: _table(inspector, name) for name in sorted(tables)}


def _table(inspector: Inspector, name: str) -> dict[str, Any]:
    return {
        "columns": [column | {"type": repr(column["type"])} for column in inspector.get_columns(name)],
        "primary key": inspector.get_pk_constraint(name),
        "foreign keys": _by_name(inspector.get_foreign_keys(name)),
        "unique": _by_name(inspector.get_unique_constraints(name)),
        "checks": _by_name(inspector.get_check_constraints(name)),
        "indexes": _by_name([_index(index) for index in inspector.get_indexes(name)]),
    }


def _index(index: Any) -> dict[str, Any]:
    """The predicate of a partial index arrives as an expression, which compares by identity."""
    return index | {"dialect_options": {k: str(v) for k, v in index.get("dialect_options", {}).items()}}


def _by_name(found: Any) -> list[Any]:
    return sorted((dict(item) for item in found), key=lambda item: str(item["name"]))


async def test_the_walk_to_the_newest_and_back_and_there_again_builds_what_the_tables_say(
    empty_databases: list[Database],
) -> None:
    migrated, declared = empty_databases
    async with declared.transaction() as tx:
        await tx.run_sync(metadata.create_all)
    expected = await _shape(declared)

    await migrate.upgrade(migrated)
    assert await _shape(migrated) == expected
    await _walk(migrated, walk.downgrade, "base")
    assert await _shape(migrated) == {}
    await _walk(migrated, walk.upgrade, "head")
    assert await _shape(migrated) == expected
    assert await migrate.current(migrated) == migrate.REVISIONS[-1]


async def test_the_database_reports_every_check_and_every_predicate_by_name(database: Database) -> None:
    """Guards the comparison above: what reflection would not see, it would not compare."""
    shape = await _shape(database)
    for table in metadata.sorted_tables:
        named = {c.name for c in table.constraints if type(c).__name__ == "CheckConstraint"}
        assert {check["name"] for check in shape[table.name]["checks"]} == named
        partial = {i.name for i in table.indexes if i.dialect_options["sqlite"]["where"] is not None}
        seen = [i for i in shape[table.name]["indexes"] if f"{database.dialect}_where" in i["dialect_options"]]
        assert {index["name"] for index in seen} == partial


async def test_two_that_upgrade_at_once_both_end_well(empty_databases: list[Database]) -> None:
    db, _ = empty_databases
    await asyncio.gather(migrate.upgrade(db), migrate.upgrade(db))
    assert await migrate.current(db) == migrate.REVISIONS[-1]


async def test_an_empty_database_is_at_no_revision(empty_databases: list[Database]) -> None:
    assert await migrate.current(empty_databases[0]) is None


async def test_a_database_newer_than_the_program_is_refused_in_one_sentence(database: Database) -> None:
    async with database.transaction() as tx:
        await tx.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(BadInput, match="The database is at revision 9999, which this version of Pilothouse"):
        await migrate.upgrade(database)


def test_the_program_knows_exactly_the_revisions_that_are_written() -> None:
    scripts = ScriptDirectory.from_config(walk.configuration())
    written = [script.revision for script in scripts.walk_revisions()]
    assert tuple(reversed(written)) == migrate.REVISIONS


def test_what_is_up_to_date_is_known_without_alembic(sqlite_url: str) -> None:
    program = f"""
import asyncio, sys
from storage import migrate
from storage.database import Database

async def main():
    db = await Database.connect({sqlite_url!r})
    await migrate.upgrade(db)
    await db.close()

asyncio.run(main())
sys.exit("alembic" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 0
