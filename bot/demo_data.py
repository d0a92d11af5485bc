"""Where a demo keeps its data, and that no other demo is at work there.

Without `--data` each demo begins anew in a place of its own: `.pilothouse/demo`, or `.pilothouse/demo-2` beside a
demo that runs already. With `--data` nothing is deleted: the next demo there goes on where the last one ended, its
local Slack's messages included.
"""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from core.errors import BadInput

DEFAULT = Path(".pilothouse/demo")
LOCK = "demo.lock"
MOST_AT_ONCE = 20


@contextmanager
def demo_data(given: Path | None) -> Iterator[Path]:
    """The directory of this demo, held until the end. Raises `BadInput`."""
    place, lock = _given(given) if given is not None else _fresh()
    with lock:
        yield place


def _given(place: Path) -> tuple[Path, IO[str]]:
    lock = _hold(place)
    if lock is None:
        raise BadInput(f"Another demo is at work in {place}: end it first, or give another directory with --data.")
    return place, lock


def _fresh() -> tuple[Path, IO[str]]:
    for number in range(1, MOST_AT_ONCE + 1):
        place = DEFAULT if number == 1 else DEFAULT.with_name(f"{DEFAULT.name}-{number}")
        lock = _hold(place)
        if lock is not None:
            _empty(place)
            return place, lock
    raise BadInput(f"{MOST_AT_ONCE} demos are at work in {DEFAULT.parent}: end one of them, or use --data.")


def _hold(place: Path) -> IO[str] | None:
    """The open lock of a directory, or None if another demo holds it."""
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = (place / LOCK).open("a", encoding="utf-8")
    except (FileExistsError, NotADirectoryError):
        raise BadInput(f"{place} is no directory: give one with --data.") from None
    except OSError as error:
        raise BadInput(f"{place} can't be written ({error.strerror}): give another directory with --data.") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        return None
    return lock


def _empty(place: Path) -> None:
    for old in place.iterdir():
        if old.is_dir():
            shutil.rmtree(old, ignore_errors=True)
        elif old.name != LOCK:
            old.unlink()
