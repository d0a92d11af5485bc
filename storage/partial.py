"""The conditions of the partial indexes, word for word.

A planner uses a partial index only for a query that says the same as the index does, and a bound parameter could be
anything: so these values stand in the query itself. Without them every look for work would read every turn, card and
outbox row that ever was.
"""

from __future__ import annotations

from sqlalchemy import ColumnElement, FromClause, literal_column


def not_settled(turns: FromClause) -> ColumnElement[bool]:
    """Of turns: those that have no settle yet."""
    return turns.c.state != literal_column("'settled'")


def waits(messages: FromClause) -> ColumnElement[bool]:
    """Of messages: those that no turn has taken, and that nobody took back."""
    return messages.c.state == literal_column("'waiting'")


def is_open(cards: FromClause) -> ColumnElement[bool]:
    """Of cards: those that are not released."""
    return cards.c.state == literal_column("'open'")


def unsent(outbox: FromClause) -> ColumnElement[bool]:
    """Of outbox rows: those that have no end yet."""
    return outbox.c.state.in_([literal_column("'waiting'"), literal_column("'sending'")])
