"""One database file in memory, made anew for each run, while its connections keep what they have compiled."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from storage.database import Database
from tests.simulation.crashes import Life, MortalDatabase

MEMORY = Path("/dev/shm")


class Files:
    """A file and its connections. `clock` is the database's, and belongs to the run."""

    def __init__(self, directory: Path, template: Path) -> None:
        self.path = directory / "story.db"
        self.journal = directory / "story.db-calls"
        self.clock: Callable[[], float] = lambda: 0.0
        self._template = template
        self._own: Database | None = None
        self._lives: dict[int, MortalDatabase] = {}

    def fresh(self) -> None:
        for old in self.path.parent.glob("story.db*"):
            old.unlink()
        shutil.copyfile(self._template, self.path)

    async def own(self) -> Database:
        """The connection of what does not die."""
        if self._own is None:
            self._own = await Database.connect(self._url, clock=lambda: self.clock())
        return self._own

    async def of(self, life: Life, number: int) -> Database:
        """The connection of the life of this number."""
        if number not in self._lives:
            database = await MortalDatabase.connect(self._url, clock=lambda: self.clock())
            assert isinstance(database, MortalDatabase)
            self._lives[number] = database
        self._lives[number].life = life
        return self._lives[number]

    async def close(self) -> None:
        for database in (self._own, *self._lives.values()):
            if database is not None:
                await database.close()

    @property
    def _url(self) -> str:
        return f"sqlite+aiosqlite:///{self.path}"


@contextmanager
def in_memory(template: Path) -> Iterator[Files]:
    """A file that is gone afterwards; `template` is a database with all tables."""
    directory = Path(tempfile.mkdtemp(prefix="pilothouse-", dir=MEMORY if MEMORY.is_dir() else None))
    try:
        yield Files(directory, template)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
