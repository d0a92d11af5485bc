"""What an auditor is handed, from both databases: everything that was decided and done, in order, without secrets."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest
from sqlalchemy import insert, update
from sqlalchemy.exc import NoResultFound

from core.approvals import digest
from core.gateway import Call
from core.ledger import Spent
from core.messages import ChannelId, Level, Marker, Source, TurnId
from core.ports import Usage
from storage.audit import records
from storage.database import Database
from storage.tables import metadata
from tests.support.house import FROZEN, House
from tests.support.rows import good_rows

Row = dict[str, Any]
PLACE = {"turn", "session", "team", "channel", "thread_ts", "asked_by"}
FIELDS = {
    "message": {"id", "source", "marker", "who", "author", "slack_ts", "target_ts", "text"}
    | {"disposition", "policy_row", "state"},
    "stop": {"id", "level", "author", "source", "slack_ts"},
    "approval": {"id", "call", "tool", "tier", "state", "decided_by", "reason", "digest", "preview", "message_ts"}
    | {"asked_at", "expires_at", "decided_at"},
    "call": {"id", "step", "position", "call_id", "tool", "tier", "status", "arguments", "digest", "input_summary"}
    | {"output_summary", "output_digest", "evidence", "links", "started_at", "ended_at", "duration_ms"},
    "settle": {"id", "reason", "detail", "ended_by", "step", "final_event_id", "known", "evidence"}
    | {"input_tokens", "output_tokens", "cost_usd"},
}


async def exported(db: Database, **scope: Any) -> list[Row]:
    return [record async for batch in records(db, **scope) for record in batch]


@pytest.fixture
def house(database: Database) -> House:
    return House(database)


async def fill(db: Database, tables: tuple[str, ...], rows: list[dict[str, Row]]) -> None:
    """Insert these rows of these tables, in the order that foreign keys allow."""
    async with db.transaction() as tx:
        for table in metadata.sorted_tables:
            if table.name in tables:
                await tx.execute(insert(table), [row[table.name] for row in rows])


async def test_a_turn_is_told_from_the_question_to_its_settle(house: House) -> None:
    turn = await house.completed()
    found = await exported(house.db)
    assert [one["type"] for one in found] == ["message", "call", "call", "settle"]
    assert {one["turn"] for one in found} == {turn}
    assert {(one["channel"], one["thread_ts"], one["asked_by"]) for one in found} == {
        ("C0INCIDENT", "1790000000.000100", "U0ENGINEER")
    }
    message, first, second, settle = found
    assert (message["text"], message["disposition"], message["state"]) == ("why 5xx?", "start", "consumed")
    assert message["policy_row"] == "asked"
    assert [one["tool"] for one in (first, second)] == ["prometheus_query", "loki_query"]
    assert (first["arguments"], first["status"], first["output_summary"]) == ({"query": "up"}, "ok", "all fine")
    assert first["digest"] == digest("prometheus_query", {"query": "up"})
    assert (first["duration_ms"], len(first["output_digest"])) == (250.0, 64)
    assert (settle["reason"], settle["input_tokens"], settle["output_tokens"]) == ("completed", 300, 40)


async def test_every_kind_has_the_fields_that_were_promised_and_no_others(database: Database) -> None:
    await fill(database, tuple(table.name for table in metadata.sorted_tables), [good_rows(1)])
    found = {one["type"]: set(one) for one in await exported(database)}
    assert found == {kind: {"type", "at"} | PLACE | fields for kind, fields in FIELDS.items()}


async def test_an_approval_is_told_with_who_decided_about_what(database: Database) -> None:
    row = good_rows(1)
    row["approvals"] |= {"number": 7, "state": "denied", "decided_by": "U0ONCALL", "reason": "not now"}
    row["approvals"] |= {"created_at": 10.5, "ended_at": 20.25, "expires_at": 910.5, "preview": "replicas: 3 -> 5"}
    await fill(database, tuple(table.name for table in metadata.sorted_tables), [row])
    (found,) = [one for one in await exported(database) if one["type"] == "approval"]
    assert {name: found[name] for name in ("id", "call", "tool", "tier", "state", "decided_by", "reason", "at")} == {
        "id": "ap-7",
        "call": "c1",
        "tool": "t",
        "tier": "read",
        "state": "denied",
        "decided_by": "U0ONCALL",
        "reason": "not now",
        "at": "1970-01-01T00:00:20.250000Z",
    }
    assert found["preview"] == "replicas: 3 -> 5"
    assert [found[name] for name in ("asked_at", "decided_at", "expires_at")] == [
        "1970-01-01T00:00:10.500000Z",
        "1970-01-01T00:00:20.250000Z",
        "1970-01-01T00:15:10.500000Z",
    ]


async def test_what_is_not_for_the_bot_is_told_as_a_decision_without_its_words(house: House) -> None:
    await house.completed()
    await house.say("; lunch?", source=Source.REPLY, marker=Marker.NOT_FOR_BOT)
    said = [(one["disposition"], one["text"]) for one in await exported(house.db) if one["type"] == "message"]
    assert said == [("start", "why 5xx?"), ("ignore", None)]


async def test_a_stop_is_told_with_who_gave_it(house: House) -> None:
    asked = await house.say("why 5xx?")
    await house.claim(asked.session)
    await house.say("stop", source=Source.REPLY, marker=Marker.STOP_STEP, bare=True, level=Level.STEP)
    (stop,) = [one for one in await exported(house.db) if one["type"] == "stop"]
    assert (stop["level"], stop["author"], stop["source"]) == ("step", "U0ENGINEER", "reply")


async def test_secrets_are_taken_out_and_the_digest_is_still_that_of_the_real_arguments(house: House) -> None:
    asked = await house.say("my token is xoxb-1234567890-abcdef")
    claimed = await house.claim(asked.session)
    arguments = {"name": "db", "password": "hunter2-hunter2", "note": "ghp_0123456789abcdefghij"}
    call = Call(0, "toolu_1", "secret_write", arguments, "write", False, "name=db")
    await house.ledger.open(
        claimed, 1, [{"type": "text", "text": "x"}], [call], [Spent(FROZEN.model, 1, Usage(1, 1))]
    )
    found = await exported(house.db)
    text = json.dumps(found)
    assert not any(secret in text for secret in ("xoxb-1234567890", "hunter2", "ghp_0123456789"))
    (told,) = [one for one in found if one["type"] == "call"]
    assert told["arguments"]["name"] == "db" and told["digest"] == digest("secret_write", arguments)


async def test_arguments_that_can_not_be_read_are_told_as_they_are(database: Database) -> None:
    row = good_rows(1)
    row["calls"]["arguments"] = "{broken"
    await fill(database, ("sessions", "turns", "calls"), [row])
    (found,) = await exported(database)
    assert (found["arguments"], found["digest"]) == ("{broken", None)


async def test_a_call_that_was_open_comes_again_when_it_has_ended(database: Database) -> None:
    row = good_rows(1)
    row["calls"] |= {"started_at": 100.0}
    await fill(database, ("sessions", "turns", "calls"), [row])
    (open_,) = await exported(database, since=50.0)
    assert (open_["id"], open_["status"], open_["at"]) == ("c1", "open", "1970-01-01T00:01:40.000000Z")
    calls = metadata.tables["calls"]
    async with database.transaction() as tx:
        await tx.execute(update(calls).values(status="ok", ended_at=200.0))
    assert await exported(database, since=200.5) == []
    (ended,) = await exported(database, since=150.0)
    assert (ended["id"], ended["status"], ended["at"]) == ("c1", "ok", "1970-01-01T00:03:20.000000Z")


@pytest.mark.parametrize("at", [1_790_000_000.1234567, 1_790_000_000.9999998, 1_790_000_000.0000005, 1_790_000_001.0])
async def test_what_is_told_as_at_a_moment_is_found_again_from_that_moment_on(database: Database, at: float) -> None:
    row = good_rows(1)
    row["calls"] |= {"started_at": at}
    await fill(database, ("sessions", "turns", "calls"), [row])
    (found,) = await exported(database)
    assert await exported(database, since=datetime.fromisoformat(found["at"]).timestamp()) == [found]
    assert await exported(database, since=at + 0.000_002) == []


async def test_what_comes_after_the_export_began_is_left_to_the_next(database: Database) -> None:
    row = good_rows(1)
    row["calls"] |= {"started_at": 9_999_999_999.0}
    await fill(database, ("sessions", "turns", "calls"), [row])
    assert await exported(database) == []


async def test_one_turn_is_told_with_the_words_and_stops_that_came_meanwhile(house: House) -> None:
    first, second = await house.steered()
    elsewhere = await house.completed(channel=ChannelId("C0OTHER"))
    of_first = await exported(house.db, turn=first)
    assert [(one["type"], one["turn"]) for one in of_first] == [
        ("message", first),
        ("call", first),
        ("settle", first),
    ]
    assert {one["turn"] for one in await exported(house.db, turn=elsewhere)} == {elsewhere}
    every = await exported(house.db)
    assert {one["turn"] for one in every} == {first, second, elsewhere}


async def test_pages_and_batches_leave_nothing_out_and_keep_the_order(database: Database) -> None:
    rows = [good_rows(number, 1) for number in range(1, 51)]
    for number, row in enumerate(rows):
        row["calls"] |= {"started_at": float((number * 37) % 50), "turn_id": "t1"}
        row["messages"] |= {"arrived_at": float((number * 13) % 50)}
        row["stops"] |= {"arrived_at": 25.0}
    await fill(database, ("sessions", "turns"), rows[:1])
    await fill(database, ("messages", "stops", "calls"), rows)
    found = await exported(database, page=7, batch=5)
    assert len(found) == len({(one["type"], one["id"]) for one in found}) == 150
    assert [one["at"] for one in found] == sorted(one["at"] for one in found)
    assert [one["type"] for one in found if one["at"].endswith("25.000000Z")] == ["message", *["stop"] * 50, "call"]
    late = [one for one in found if one["at"] >= "1970-01-01T00:00:40"]
    assert late and await exported(database, since=40.0, page=3) == late


async def test_a_turn_that_is_not_there_has_no_records(house: House) -> None:
    await house.completed()
    with pytest.raises(NoResultFound):
        await exported(house.db, turn=TurnId("t-none"))
