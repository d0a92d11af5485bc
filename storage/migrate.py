"""Brings a database up to what this program expects. What is up to date is known after one read, without Alembic.

A walk is one transaction: it happens as a whole or not at all, and of two processes that start together one walks
and the other finds nothing to do.
"""

from __future__ import annotations

from importlib import import_module

from sqlalchemy import column, inspect, select, table, text
from sqlalchemy.ext.asyncio import AsyncConnection

from core.errors import BadInput
from storage.database import Database

REVISIONS = ("0001",)
"""Every revision that this program knows, oldest first (a test compares them with the scripts)."""

_VERSION = table("alembic_version", column("version_num"))
_ONE_AT_A_TIME = 7_203_411_190
"""The number of PostgreSQL's advisory lock: any that nobody else in this database uses."""


async def current(db: Database) -> str | None:
    """The revision that the database is at; None for an empty one."""
    async with db.reading() as tx:
        if not await tx.run_sync(lambda connection: inspect(connection).has_table(_VERSION.name)):
            return None
        revision: str | None = (await tx.execute(select(_VERSION.c.version_num))).scalar()
        return revision


async def upgrade(db: Database) -> None:
    """Bring the database to the newest revision. Raises BadInput when it is newer than this program."""
    revision = await current(db)
    if revision == REVISIONS[-1]:
        return
    if revision is not None and revision not in REVISIONS:
        raise BadInput(
            f"The database is at revision {revision}, which this version of Pilothouse does not know "
            f"(its newest is {REVISIONS[-1]}): start the newer version, or restore a backup made before it."
        )
    # Not imported at the top: Alembic takes 0.25 s to import and is needed once a release.
    walk = import_module("storage.migrations.walk")
    async with db.transaction() as tx:
        await _one_at_a_time(tx, db.dialect)
        await tx.run_sync(walk.upgrade, REVISIONS[-1])


async def _one_at_a_time(tx: AsyncConnection, dialect: str) -> None:
    """SQLite has one writer anyway; a walk on PostgreSQL may take its time."""
    if dialect == "postgresql":
        await tx.execute(text("SET LOCAL statement_timeout = 0"))
        await tx.execute(text("SET LOCAL lock_timeout = 0"))
        await tx.execute(select(text(f"pg_advisory_xact_lock({_ONE_AT_A_TIME})")))
