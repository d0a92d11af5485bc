"""Where SQLite and PostgreSQL want the same thing written in the same way, but imported from two places."""

from __future__ import annotations

from functools import cache

from sqlalchemy import Table
from sqlalchemy.dialects import postgresql, sqlite

Insert = sqlite.Insert | postgresql.Insert


def upsert(table: Table, dialect: str) -> Insert:
    """An INSERT that knows `on_conflict_do_nothing` and `on_conflict_do_update`; `dialect` is `Database.dialect`."""
    return sqlite.insert(table) if dialect == "sqlite" else postgresql.insert(table)


@cache
def insert_ignore(table: Table, dialect: str) -> Insert:
    """An INSERT that leaves out what would break a unique key: `rowcount` says whether something was inserted.

    The same statement each time: give it its values when it runs.
    """
    statement = upsert(table, dialect)
    return statement.on_conflict_do_nothing()
