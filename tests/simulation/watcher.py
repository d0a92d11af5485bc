"""The laws that need two moments: nothing that was committed is ever taken back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.simulation.laws import LAWS, ON_THE_WAY, invalid
from tests.simulation.laws_of_approvals import LAWS_OF_APPROVALS
from tests.simulation.snapshot import Row, Snapshot

FROZEN = ("entries", "settles", "costs", "diagnoses", "automation")
"""Tables whose rows never change."""

ENDS = {"messages": "consumed withdrawn stopped refused ignored control", "turns": "settled"}
"""States that are never left."""


class Watcher:
    """Looks at one database again and again. `look` says what is broken, and nothing when all is well."""

    def __init__(self) -> None:
        self._before: Snapshot | None = None
        self._valid: dict[str, int] = {}

    def look(self, now: Snapshot) -> list[str]:
        if now is self._before:
            return []
        broken = [f"{law.__name__}: {what}" for law in (*LAWS, *LAWS_OF_APPROVALS) for what in law(now)]
        broken += self._new_entries(now)
        if self._before is not None:
            broken += [f"nothing is taken back: {what}" for what in taken_back(self._before, now)]
        self._before = now
        return broken

    def _new_entries(self, now: Snapshot) -> Iterator[str]:
        """What was valid stays so, because entries never change."""
        for session in now["sessions"]:
            entries = now.of("entries", session_id=session["id"])
            for end in range(self._valid.get(session["id"], 0) + 1, len(entries) + 1):
                found = invalid(session, entries[:end])
                if found:
                    yield f"every request is valid: {session['id']}, after entry {end}: {found}"
            self._valid[session["id"]] = len(entries)


def taken_back(before: Snapshot, now: Snapshot) -> Iterator[str]:
    """What was there and is gone or changed."""
    for table in FROZEN:
        then, since = before[table], [_key(row) for row in now[table]]
        yield from (f"{table}: {_key(row)[0]} is gone or changed" for row in then if _key(row) not in since)
    for table, states in ENDS.items():
        later = {row["id"]: row for row in now[table]}
        for row in before[table]:
            if row["state"] in states.split() and later[row["id"]]["state"] != row["state"]:
                yield f"{table}: {row['id']} was {row['state']}, now {later[row['id']]['state']}"
    yield from _grows(before, now)
    yield from _ended(before, now)
    yield from _decided(before, now)


def _key(row: Row) -> tuple[Any, ...]:
    return tuple(row.values())


def _grows(before: Snapshot, now: Snapshot) -> Iterator[str]:
    for stop in before["stops"]:
        later = now.one("stops", id=stop["id"])
        if later is None or later | {"slack_ts": stop["slack_ts"]} != stop or later["slack_ts"] < stop["slack_ts"]:
            yield f"{stop['id']}: a stop does not stay as it is"
    for session in before["sessions"]:
        same = now.one("sessions", id=session["id"])
        assert same is not None
        for column in ("epoch", "next_seq", "next_turn", "version"):
            if same[column] < session[column]:
                yield f"{session['id']}: {column} fell from {session[column]} to {same[column]}"
        for column in ("model", "system", "tools", "fingerprint"):
            if session[column] is not None and same[column] != session[column]:
                yield f"{session['id']}: {column} changed"


def _ended(before: Snapshot, now: Snapshot) -> Iterator[str]:
    """Recorded results and ended attempts stay; only a stop before the settle may still restamp a cut."""
    calls = {call["id"]: call for call in now["calls"]}
    for call in before["calls"]:
        if call["status"] not in ON_THE_WAY and call["ended_at"] is not None:
            later = calls[call["id"]]
            if (call["status"], call["output"]) != (later["status"], later["output"]):
                yield f"{call['id']}: was {call['status']}, now {later['status']}"
    attempts = {(row["turn_id"], row["number"]): row for row in now["attempts"]}
    for attempt in before["attempts"]:
        later = attempts[attempt["turn_id"], attempt["number"]]
        stamps = {attempt["stamp"], "stop"} if attempt["ended"] == "cut" else {attempt["stamp"]}
        if attempt["ended"] is not None and (later["ended"] != attempt["ended"] or later["stamp"] not in stamps):
            yield f"{attempt['turn_id']}: attempt {attempt['number']} was {attempt['ended']}, now {later['ended']}"


def _decided(before: Snapshot, now: Snapshot) -> Iterator[str]:
    """A request has one end, and a wait too; neither is forgotten, and nobody gets more time."""
    for was in before["approvals"]:
        later = now.one("approvals", number=was["number"])
        if later is None or later["expires_at"] != was["expires_at"] or (was["state"] != "open" and later != was):
            yield f"ap-{was['number']}: was {was}, now {later}"
    for wait in before["suspensions"]:
        later = now.one("suspensions", id=wait["id"])
        if later is None or later["until"] != wait["until"] or (wait["ended_at"] is not None and later != wait):
            yield f"{wait['id']}: was {wait}, now {later}"
