"""How Alembic gets its connection: from the running program, or for developers from `-x url=...`.

A new revision is drafted with
`alembic -c storage/migrations/alembic.ini -x url=sqlite:///build/draft.db revision --autogenerate -m "..."`
(a database that is at the newest revision), read, corrected by hand, and added to `storage.migrate.REVISIONS`.
"""

from __future__ import annotations

from alembic import context
from sqlalchemy import Connection, create_engine

from storage.tables import metadata


def _run(connection: Connection) -> None:
    context.configure(connection=connection, target_metadata=metadata, transactional_ddl=True)
    with context.begin_transaction():
        context.run_migrations()


given: Connection | None = context.config.attributes.get("connection")
if given is not None:
    _run(given)
else:
    with create_engine(context.get_x_argument(as_dictionary=True)["url"]).begin() as made:
        _run(made)
