"""Each constraint of each table refuses the row that it is there to refuse, in both databases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from sqlalchemy import CheckConstraint, Column, Table, UniqueConstraint, insert
from sqlalchemy.exc import IntegrityError

from storage.database import Database
from storage.tables import metadata
from tests.support.rows import PARENTS, good_rows

Change = dict[str, Any]

VIOLATIONS: dict[str, Sequence[Change]] = {
    "ck_sessions_state": [{"state": "asleep"}],
    "ck_sessions_lease": [{"lease_owner": "w1"}, {"lease_until": 5}],
    "ck_messages_disposition": [{"disposition": "maybe"}],
    "ck_messages_state": [{"state": "lost"}],
    "ck_messages_consumed_by": [{"turn_id": None}],
    "ck_stops_level": [{"level": "every"}],
    "ck_turns_state": [{"state": "lost"}],
    "ck_attempts_ended": [{"ended": "vanished", "ended_at": 5}],
    "ck_attempts_stamp": [{"stamp": "cut"}],
    "ck_attempts_ended_at": [{"ended": "finished"}, {"ended_at": 5}],
    "ck_entries_kind": [{"kind": "system"}],
    "ck_evidence_kind": [{"kind": "rumour"}],
    "ck_evidence_page": [{"kind": "page"}, {"kind": "page", "url": "https://docs.example.com/"}],
    "ck_calls_status": [{"status": "done"}],
    "ck_calls_tier": [{"tier": "root"}],
    "ck_suspensions_kind": [{"kind": "nap"}],
    "ck_approvals_state": [{"state": "maybe", "ended_at": 5}],
    "ck_approvals_ended_at": [{"ended_at": 5}, {"state": "expired"}],
    "ck_approvals_decided_by": [{"state": "approved", "ended_at": 5}],
    "ck_settles_reason": [{"reason": "bored", "final_event_id": None}],
    "ck_settles_final_event": [{"final_event_id": None}, {"reason": "empty"}],
    "ck_settles_detail": [
        {"reason": "failed", "final_event_id": None},
        {"reason": "failed", "final_event_id": None, "detail": "gremlins"},
        {"detail": "internal"},
    ],
    "ck_cards_state": [{"state": "closed"}],
    "ck_cards_sending": [{"sending": "delete"}],
    "ck_cards_released": [{"released_at": 5}, {"state": "released"}],
    "ck_outbox_kind": [{"kind": "shout"}],
    "ck_outbox_state": [{"state": "lost"}],
    "ck_automation_outcome": [{"outcome": "perhaps"}],
    "ck_automation_evidence": [{"outcome": "done"}, {"evidence": "[]"}],
}


def _checks() -> list[tuple[Table, str]]:
    found = [(table, constraint) for table in metadata.sorted_tables for constraint in table.constraints]
    return [(table, str(c.name)) for table, c in found if isinstance(c, CheckConstraint)]


def _uniques() -> list[tuple[Table, str, tuple[str, ...]]]:
    found: list[tuple[Table, str, tuple[str, ...]]] = []
    for table in metadata.sorted_tables:
        keys = [c for c in table.constraints if isinstance(c, UniqueConstraint)]
        indexes = [index for index in table.indexes if index.unique]
        found += [(table, _name(key), tuple(c.name for c in key.columns)) for key in [*keys, *indexes]]
        found.append((table, f"pk_{table.name}", tuple(c.name for c in table.primary_key.columns)))
    return found


def _name(key: Any) -> str:
    if isinstance(key, UniqueConstraint):
        return "_".join(["uq", key.table.name, *(column.name for column in key.columns)])
    return str(key.name)


def _foreign_keys() -> list[Column[Any]]:
    return [column for table in metadata.sorted_tables for column in table.c if column.foreign_keys]


async def _fill(db: Database) -> None:
    """Row 1 of every table, and row 2 of what others refer to, with its turn settled and its wait over."""
    second = good_rows(2)
    second["turns"]["state"] = "settled"
    second["suspensions"]["ended_at"] = 5
    async with db.transaction() as tx:
        for name, row in good_rows(1).items():
            await tx.execute(insert(metadata.tables[name]).values(**row))
        for name in PARENTS:
            await tx.execute(insert(metadata.tables[name]).values(**second[name]))


def _third(table: Table) -> Change:
    """A row that nothing but the constraint in question can refuse."""
    return good_rows(3, parents=2)[table.name]


async def _refusal(db: Database, table: Table, row: Change) -> str:
    with pytest.raises(IntegrityError) as refused:
        async with db.transaction() as tx:
            await tx.execute(insert(table).values(**row))
    return str(refused.value.orig)


def test_every_check_has_a_row_that_breaks_it() -> None:
    assert {name for _, name in _checks()} == set(VIOLATIONS)


async def test_the_third_row_of_every_table_is_taken(database: Database) -> None:
    """Guards the tests below: what is refused there is refused for the change alone."""
    await _fill(database)
    async with database.transaction() as tx:
        for table in metadata.sorted_tables:
            await tx.execute(insert(table).values(**_third(table)))


async def test_every_check_refuses_its_row_by_name(database: Database) -> None:
    await _fill(database)
    for table, name in _checks():
        for change in VIOLATIONS[name]:
            said = await _refusal(database, table, _third(table) | change)
            assert name in said, f"{change} was refused by another constraint: {said}"


async def test_every_key_refuses_a_second_row(database: Database) -> None:
    await _fill(database)
    for table, name, columns in _uniques():
        same = {column: good_rows(1)[table.name][column] for column in columns}
        row = _third(table) | same | ({} if name != "uq_turns_session_id_number" else {"state": "settled"})
        said = await _refusal(database, table, row)
        sqlite = ", ".join(f"{table.name}.{column}" for column in columns)
        expected = name if database.dialect == "postgresql" else f"UNIQUE constraint failed: {sqlite}"
        assert expected in said


async def test_every_reference_must_lead_somewhere(database: Database) -> None:
    await _fill(database)
    for column in _foreign_keys():
        table = column.table
        assert isinstance(table, Table)
        said = await _refusal(database, table, _third(table) | {column.name: "nobody"})
        assert "foreign key" in said.lower(), f"{column}: {said}"


async def test_settled_turns_leave_room_for_one_that_is_not(database: Database) -> None:
    turns = metadata.tables["turns"]
    first = good_rows(1)["turns"] | {"state": "settled"}
    async with database.transaction() as tx:
        await tx.execute(insert(metadata.tables["sessions"]).values(**good_rows(1)["sessions"]))
        await tx.execute(insert(turns).values(**first))
        await tx.execute(insert(turns).values(**first | {"id": "t2", "number": 2}))
        await tx.execute(insert(turns).values(**first | {"id": "t3", "number": 3, "state": "waiting"}))


async def test_helpers_may_share_the_thread_of_their_parent(database: Database) -> None:
    sessions = metadata.tables["sessions"]
    row = good_rows(1)["sessions"]
    async with database.transaction() as tx:
        await tx.execute(insert(sessions).values(**row))
        for number in range(2):
            await tx.execute(insert(sessions).values(**row | {"id": f"h{number}", "parent_turn_id": "t1"}))
