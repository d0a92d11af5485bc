"""Is the database there and at this program's revision, does its clock agree with ours, and is Redis there.

Looking changes nothing: no database is created, none is brought to another revision.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError

from bot.commands.place import Place, opened
from bot.doctor.finding import Finding, failing, ok, warning
from bot.importing import imported
from core.card_words import span
from core.errors import BadInput
from storage.database import Database, now
from storage.migrate import REVISIONS

SKEW_WARNING_S = 60.0


async def database(url: str, clock: Callable[[], float] = time.time) -> list[Finding]:
    """The database. `clock`: seconds since the epoch by this machine."""
    missing = _not_made_yet(url)
    if missing is not None:
        return [missing]
    place = Place(url)
    try:
        async with opened(place) as db:
            says = f"{place.name} is at this version's revision {REVISIONS[-1]}."
            return [ok("database", says), await _clock(db, clock)]
    except BadInput as error:
        return [failing("database", str(error))]
    except DBAPIError as error:
        says = f"The database {place.name} refuses to be read ({error.orig}): check that its user owns the tables."
        return [failing("database", says)]


def _not_made_yet(url: str) -> Finding | None:
    """An SQLite file that is not there is made at the start, if its place can be written."""
    try:
        parsed = make_url(url)
    except ArgumentError:
        return None
    if parsed.drivername != "sqlite+aiosqlite" or not parsed.database:
        return None
    file = Path(parsed.database)
    above = next(place for place in (file, *file.absolute().parents) if place.exists())
    if not os.access(above, os.W_OK):
        return failing("database", f"{above} can't be written by this user: give storage.data_dir another place.")
    if file.exists():
        return None
    says = f"There is no {file} yet: `pilothouse serve` makes it, and so does `pilothouse db upgrade`."
    return warning("database", says)


async def _clock(db: Database, clock: Callable[[], float]) -> Finding:
    began = clock()
    async with db.reading() as tx:
        told: float = (await tx.execute(select(now()))).scalar_one()
    off_s = max(began - told, min(clock() - told, 0.0))
    if abs(off_s) <= SKEW_WARNING_S:
        return ok("database clock", "The database's clock agrees with this machine's.")
    where = "ahead of" if off_s > 0 else "behind"
    says = f"This machine's clock is {span(abs(off_s))} {where} the database's: let NTP set both."
    return warning("database clock", says)


async def redis(url: str) -> list[Finding]:
    """Redis, by which workers wake each other."""
    bell = imported("storage.redis_doorbell")
    try:
        async with bell.RedisDoorbell(url) as doorbell:
            await doorbell.ping()
    except (bell.RedisError, OSError, ValueError) as error:
        why = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        says = (
            f"Redis does not answer ({why}), so workers wake each other later: start it, or mend storage.redis_url."
        )
        return [failing("redis", says)]
    return [ok("redis", "Redis answers.")]
