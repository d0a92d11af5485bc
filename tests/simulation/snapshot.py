"""One moment of a database, read with nothing of the product: every table as plain rows.

The laws are checked on this. What reads it shares no code with what wrote it, so a fault in both is unlikely.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Row = dict[str, Any]

ORDER = {
    "sessions": "created_at, id",
    "messages": "slack_ts, id",
    "stops": "arrived_at, id",
    "turns": "session_id, number",
    "attempts": "turn_id, number",
    "entries": "session_id, seq",
    "calls": "session_id, turn_id, step, position",
    "suspensions": "created_at, id",
    "approvals": "number",
    "settles": "created_at, turn_id",
    "cards": "opened_at, turn_id",
    "outbox": "id",
    "costs": "id",
    "diagnoses": "turn_id",
    "automation": "turn_id",
    "repairs": "id",
}


@dataclass(frozen=True)
class Snapshot:
    """All rows of one moment, by table, each in a useful order."""

    tables: Mapping[str, list[Row]]

    def __getitem__(self, table: str) -> list[Row]:
        return self.tables[table]

    def of(self, table: str, **wanted: Any) -> list[Row]:
        """The rows of a table whose columns have these values."""
        return [row for row in self.tables[table] if all(row[name] == value for name, value in wanted.items())]

    def one(self, table: str, **wanted: Any) -> Row | None:
        """The only such row, or None."""
        found = self.of(table, **wanted)
        assert len(found) <= 1, f"{len(found)} rows of {table} where one is expected: {wanted}"
        return found[0] if found else None

    def stops_in_scope(self, turn: Row) -> list[Row]:
        """The stops that reach a turn: those said after everything that it consumed."""
        return [stop for stop in self.of("stops", session_id=turn["session_id"]) if reaches(stop, turn)]


def reaches(stop: Row, turn: Row) -> bool:
    """Slack's own time decides; a place that was closed has none, and names the turn."""
    named = stop["slack_ts"] == "0" and stop["turn_id"] == turn["id"]
    return bool(named or stop["slack_ts"] > turn["newest_ts"])


class Reader:
    """Reads the committed state of the SQLite file at `path`; the same snapshot again while nobody committed."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None)
        self._connection.row_factory = sqlite3.Row
        self._version = -1
        self._last: Snapshot | None = None

    def read(self) -> Snapshot:
        (version,) = self._connection.execute("PRAGMA data_version").fetchone()
        if self._last is None or version != self._version:
            self._version, self._last = version, self._all()
        return self._last

    def close(self) -> None:
        self._connection.close()

    def _all(self) -> Snapshot:
        self._connection.execute("BEGIN")
        try:
            return Snapshot({table: self._rows(table, order) for table, order in ORDER.items()})
        finally:
            self._connection.execute("COMMIT")

    def _rows(self, table: str, order: str) -> list[Row]:
        return [dict(row) for row in self._connection.execute(f"SELECT * FROM {table} ORDER BY {order}")]


def read(path: Path) -> Snapshot:
    """The committed state of the SQLite file at `path`."""
    reader = Reader(path)
    try:
        return reader.read()
    finally:
        reader.close()


def body(entry: Row) -> list[dict[str, Any]]:
    """The content blocks of an entry."""
    blocks: list[dict[str, Any]] = json.loads(entry["body"])
    return blocks


def role(entry: Row) -> str:
    """Under which role the model sees an entry."""
    return "assistant" if entry["kind"] == "assistant" else "user"


def messages_of(entries: Iterable[Row]) -> list[dict[str, Any]]:
    """The messages of the request that these entries make."""
    messages: list[dict[str, Any]] = []
    for entry in entries:
        if entry["kind"] in ("mended", "condensed"):
            messages = body(entry)
        elif messages and messages[-1]["role"] == role(entry):
            messages[-1]["content"] += body(entry)
        else:
            messages.append({"role": role(entry), "content": body(entry)})
    return messages
