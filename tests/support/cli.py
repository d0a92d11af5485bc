"""The command line for tests: read what it said, and let something happen in an installation.

The fixtures are in `tests/e2e/cli_fixtures.py`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from storage.database import Database
from tests.support.house import House

T = TypeVar("T")
REPOSITORY = Path(__file__).parents[2]
PROGRAM = [sys.executable, "-m", "bot.cli"]


def happen(place: Path, story: Callable[[House], Awaitable[T]]) -> T:
    """Let something happen in the installation."""

    async def run() -> T:
        db = await Database.connect(f"sqlite+aiosqlite:///{place / 'pilothouse.db'}")
        try:
            return await story(House(db))
        finally:
            await db.close()

    return asyncio.run(run())


Run = Callable[..., tuple[int, str, str]]


def json_of(result: tuple[int, str, str]) -> Any:
    assert (result[0], result[2]) == (0, "")
    return json.loads(result[1])


def sentence_of(result: tuple[int, str, str]) -> str:
    """What a refused command said: one sentence on stderr, nothing on stdout."""
    code, out, err = result
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("pilothouse: ")
    return err.removeprefix("pilothouse: ").rstrip("\n")
