"""Which installation a command is about, and its database opened for one piece of work.

`--data DIR` names an embedded installation, a demo's too: its SQLite file is `DIR/pilothouse.db`. Without it the
configuration says where the database is; it is read only then. Looking never creates or changes a database.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from bot.commands.lazy import load
from core.errors import BadInput
from storage.database import Database
from storage.migrate import REVISIONS, current, upgrade

T = TypeVar("T")

FILE = "pilothouse.db"

Data = Annotated[
    Path | None,
    typer.Option("--data", metavar="DIR", help="The embedded installation in this directory.", show_default=False),
]
Config = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="The configuration that names the database.", show_default=False),
]


@dataclass(frozen=True, slots=True)
class Place:
    """One installation. `redis_url` is empty where workers are not rung over Redis."""

    database_url: str
    redis_url: str = ""

    @property
    def name(self) -> str:
        """The database's address without its password."""
        return make_url(self.database_url).render_as_string(hide_password=True)


def place_of(data: Path | None, config: Path | None) -> Place:
    """The installation that the options name. Raises BadInput."""
    if data is not None:
        return Place(f"sqlite+aiosqlite:///{data / FILE}")
    settings = _settings(config)
    return Place(settings.database_url, settings.redis_url or "")


def channel_policy(channel: str, config: Path | None) -> Any:
    """What the configuration says about one channel, a `storage.ledger.signs.ChannelPolicy`."""
    return _settings(config).channels_config(None).policy(channel)


def _settings(config: Path | None) -> Any:
    return load("bot.settings").Settings.read(config, None)


def read(data: Path | None, config: Path | None, ask: Callable[[AsyncConnection], Awaitable[T]]) -> T:
    """Run `ask` in one read transaction of the installation's database."""

    async def look() -> T:
        async with opened(place_of(data, config)) as db, db.reading() as tx:
            return await ask(tx)

    return asyncio.run(look())


@asynccontextmanager
async def opened(place: Place, *, make: bool = False) -> AsyncIterator[Database]:
    """The installation's database, at this program's revision. Raises BadInput for what an operator has to mend.

    With `make` it is created or brought to the newest revision first.
    """
    _must_exist(place, make)
    try:
        db = await Database.connect(place.database_url)
        try:
            await _at_this_revision(db, place, make)
            yield db
        finally:
            await db.close()
    except (DBAPIError, OSError) as error:
        raise BadInput(f"The database {place.name} can't be used: {_reason(error)} {_ADVICE}") from error


_ADVICE = "Check that it is there, runs and may be used by you."


def _must_exist(place: Place, make: bool) -> None:
    try:
        url = make_url(place.database_url)
    except ArgumentError:
        return
    if make or not url.drivername.startswith("sqlite") or url.database in (None, "", ":memory:"):
        return
    file = Path(str(url.database))
    if not file.is_file():
        raise BadInput(
            f"There is no installation in {file.parent}: it has no file {file.name}. Give the directory of one with "
            "--data DIR, as `pilothouse demo` prints it."
        )


async def _at_this_revision(db: Database, place: Place, make: bool) -> None:
    revision = await current(db)
    if revision == REVISIONS[-1]:
        return
    known = revision is None or revision in REVISIONS
    if known and not make:
        state = "has no tables yet" if revision is None else f"is at the older revision {revision}"
        raise BadInput(f"The database {place.name} {state}: run `pilothouse db upgrade` first.")
    await upgrade(db)


def _reason(error: DBAPIError | OSError) -> str:
    found = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    text = " ".join(str(found).split()) or type(found).__name__
    return text.rstrip(".") + "."
