"""Walks a database along the revisions. Apart from `storage.migrate`, because importing Alembic takes 0.25 s."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection


def configuration(connection: Connection | None = None) -> Config:
    """Alembic's configuration for one walk over `connection`, whose transaction stays the caller's."""
    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(Path(__file__).parent))
    config.set_main_option("path_separator", "os")
    return config


def upgrade(connection: Connection, revision: str) -> None:
    command.upgrade(configuration(connection), revision)


def downgrade(connection: Connection, revision: str) -> None:
    command.downgrade(configuration(connection), revision)
