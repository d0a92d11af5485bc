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
from sqlalchemy.exc import ArgumentError, DataError, DBAPIError, IntegrityError, ProgrammingError
from sqlalchemy.ext.asyncio import AsyncConnection

from bot.commands.lazy import load
from core.errors import BadInput
from storage.database import Database
from storage.migrate import REVISIONS, current, upgrade

T = TypeVar("T")

FILE = "pilothouse.db"
SQLITE = b"SQLite format 3\0"

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
    settings = configured(config)
    return Place(settings.database_url, settings.redis_url)


def configured(config: Path | None) -> Any:
    """The `bot.settings.Settings`. Imported only here, because pydantic takes as long as all the rest."""
    return load("bot.settings").Settings.read(config)


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
    try:
        _check_file(place, make)
        db = await Database.connect(place.database_url)
        try:
            await _at_this_revision(db, place, make)
            yield db
        finally:
            await db.close()
    except (IntegrityError, ProgrammingError, DataError):
        raise
    except (DBAPIError, OSError) as error:
        raise BadInput(f"The database {place.name} can't be used: {_reason(error)} {_ADVICE}") from error


_ADVICE = "Check that it is there, that it runs, and that you may use it."


def _check_file(place: Place, make: bool) -> None:
    """What can be said of an SQLite file before it is opened: opening would make it, or trip over what is in it."""
    file = _file_of(place)
    if file is None or (make and not file.exists()):
        return
    if not file.is_file():
        raise BadInput(
            f"There is no installation in {file.parent}: it has no file {file.name}. Give the directory of one with "
            "--data DIR, as `pilothouse demo` prints it."
        )
    with file.open("rb") as content:
        begins = content.read(len(SQLITE))
    if begins not in (b"", SQLITE):
        raise BadInput(f"{file} is not an SQLite database: give the directory of an installation with --data DIR.")


def _file_of(place: Place) -> Path | None:
    try:
        url = make_url(place.database_url)
    except ArgumentError:
        return None
    is_file = url.drivername == "sqlite+aiosqlite" and url.database not in (None, "", ":memory:")
    return Path(str(url.database)) if is_file else None


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
