"""What an auditor is handed: every call, approval, stop, decision and settle, in order, from a database of any size.

Two steps, so that memory stays the same and no transaction is open while somebody reads:

* each table is walked along its primary key, a page a transaction, and (at, kind, key) goes into a temporary SQLite
  file, which sorts it;
* that is read back in order, and the rows are fetched by their keys, a batch a transaction.

`at` is when a record changed last: a call that was open at one export comes again, under the same `id`, in the next.
What changes after the export began is left to the next one. Times are seconds since the epoch by the database's clock
in here, and RFC 3339 in UTC in what is handed out. Secrets are taken out.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import ColumnElement, FromClause, Select, and_, func, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from core.approvals import approval_id
from core.approvals import digest as call_digest
from core.messages import TurnId
from core.redaction import redact_values
from storage.database import Database, now
from storage.tables import approvals, calls, evidence, messages, sessions, settles, stops, turns

Row = dict[str, Any]

PAGE = 5_000
BATCH = 200
NOT_KEPT = "ignore"
"""Of what was not for the bot only the decision is handed out, not the words."""
EVIDENCE = ("id", "kind", "digest", "chars", "url", "taken_at")
_TIMES = ("started_at", "ended_at", "asked_at", "expires_at", "decided_at")
_SAID = frozenset(
    [
        *("text", "reason", "detail", "known", "tool", "call_id", "arguments", "preview"),
        *("input_summary", "output_summary", "links", "evidence"),
    ]
)
"""What people, the model and tools wrote; everything else is of our own making, and no secret can be in it."""
_PLACE = {
    "turn": turns.c.id,
    "session": sessions.c.id,
    "team": sessions.c.team,
    "channel": sessions.c.channel,
    "thread_ts": sessions.c.thread_ts,
    "asked_by": turns.c.asked_by,
}


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of record. `columns` become its fields, `finish` turns what the database holds into what is told."""

    name: str
    key: ColumnElement[Any]
    at: ColumnElement[float]
    source: FromClause
    columns: Mapping[str, ColumnElement[Any]]
    finish: Callable[[Row], Row]


@dataclass(frozen=True, slots=True)
class Scope:
    """What is handed out: from `since`, up to `until`, of one turn if there is a `turn` (a row with its times)."""

    since: float
    until: float
    turn: Mapping[str, Any] | None = None


async def records(
    db: Database, since: float = 0.0, turn: TurnId | None = None, *, page: int = PAGE, batch: int = BATCH
) -> AsyncIterator[list[Row]]:
    """Every record that changed since then, oldest first, in batches of at most `batch`."""
    with closing(sqlite3.connect("", isolation_level=None)) as spool:
        spool.execute("CREATE TABLE spool (at REAL, kind INTEGER, key, PRIMARY KEY (at, kind, key)) WITHOUT ROWID")
        spool.execute("BEGIN")
        scope = await _scope(db, since, turn)
        for number, kind in enumerate(KINDS):
            async for found in _keys(db, kind, scope, page):
                spool.executemany("INSERT INTO spool VALUES (?, ?, ?)", [(at, number, key) for key, at in found])
        for keys in _batches(spool.execute("SELECT kind, key FROM spool ORDER BY at, kind, key"), batch):
            yield await _fetched(db, keys)


async def _scope(db: Database, since: float, turn: TurnId | None) -> Scope:
    async with db.reading() as tx:
        until: float = (await tx.execute(select(now()))).scalar_one()
        if turn is None:
            return Scope(since, until)
        wanted = (
            select(
                turns.c.id,
                turns.c.session_id,
                turns.c.newest_ts,
                turns.c.created_at,
                settles.c.created_at.label("end"),
            )
            .outerjoin(settles, settles.c.turn_id == turns.c.id)
            .where(turns.c.id == turn)
        )
        found = (await tx.execute(wanted)).mappings().one()
        return Scope(since, until, {"until": until if found["end"] is None else found["end"], **found})


async def _keys(db: Database, kind: Kind, scope: Scope, page: int) -> AsyncIterator[Sequence[Any]]:
    """The keys and times of all records in scope, by key, a page at a time."""
    wanted = (
        select(kind.key, kind.at)
        .select_from(kind.source)
        .where(kind.at >= scope.since, kind.at <= scope.until, *_of_turn(kind, scope.turn))
        .order_by(kind.key)
        .limit(page)
    )
    last: Any = None
    while True:
        async with db.reading() as tx:
            found = (await tx.execute(wanted if last is None else wanted.where(kind.key > last))).all()
        yield found
        if len(found) < page:
            return
        last = found[-1][0]


def _of_turn(kind: Kind, turn: Mapping[str, Any] | None) -> Sequence[ColumnElement[bool]]:
    """What belongs to one turn: words and stops without a turn are those of the one that was unsettled then."""
    if turn is None:
        return ()
    match kind.name:
        case "message":
            meanwhile = and_(
                messages.c.turn_id.is_(None),
                messages.c.session_id == turn["session_id"],
                messages.c.arrived_at.between(turn["created_at"], turn["until"]),
            )
            return (or_(messages.c.turn_id == turn["id"], meanwhile),)
        case "stop":
            reaches = and_(stops.c.slack_ts > turn["newest_ts"], stops.c.arrived_at <= turn["until"])
            return (stops.c.session_id == turn["session_id"], or_(stops.c.turn_id == turn["id"], reaches))
    return (turns.c.id == turn["id"],)


def _batches(cursor: sqlite3.Cursor, batch: int) -> Iterator[list[tuple[int, Any]]]:
    while keys := cursor.fetchmany(batch):
        yield keys


async def _fetched(db: Database, wanted: Sequence[tuple[int, Any]]) -> list[Row]:
    """The records of these keys, in their order."""
    found: dict[tuple[int, Any], Row] = {}
    async with db.reading() as tx:
        for number, kind in enumerate(KINDS):
            keys = [key for of, key in wanted if of == number]
            for row in await _rows(tx, _whole(kind).where(kind.key.in_(keys))) if keys else ():
                key = row.pop("key")
                found[number, key] = _told(kind, row)
    return [found[one] for one in wanted if one in found]


def _whole(kind: Kind) -> Select[Any]:
    columns = {"key": kind.key, "at": kind.at, **_PLACE, **kind.columns}
    return select(*(column.label(name) for name, column in columns.items())).select_from(kind.source)


def _told(kind: Kind, row: Row) -> Row:
    at = row.pop("at")
    told = {name: _moment(value) if name in _TIMES else value for name, value in kind.finish(row).items()}
    said = {name: redact_values(value) for name, value in told.items() if name in _SAID}
    return {"type": kind.name, "at": _moment(at), **told, **said}


async def _rows(tx: AsyncConnection, statement: Select[Any]) -> list[Row]:
    return [dict(row) for row in (await tx.execute(statement)).mappings()]


def _moment(at: float | None) -> str | None:
    """RFC 3339 in UTC, cut to the microsecond and always as wide.

    So these texts sort as the moments do, and what is told as at a moment is found again from that moment on.
    """
    if at is None:
        return None
    whole, part = divmod(at, 1.0)
    cut = datetime.fromtimestamp(whole, UTC).replace(microsecond=int(part * 1_000_000))
    return cut.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _json(text: str | None) -> Any:
    """The value behind a column; what can't be read is told as it is."""
    try:
        return None if text is None else json.loads(text)
    except (ValueError, RecursionError):
        return text


# -- the kinds: among records of one moment the first of them comes first


def _placed(table: FromClause) -> FromClause:
    return table.join(sessions, sessions.c.id == table.c.session_id).outerjoin(turns, turns.c.id == table.c.turn_id)


def _columns(table: FromClause, *names: str, **others: ColumnElement[Any]) -> dict[str, ColumnElement[Any]]:
    return {**{name: table.c[name] for name in names}, **others}


def _message(row: Row) -> Row:
    return row | {"text": None if row["disposition"] == NOT_KEPT else row["text"]}


def _as_it_is(row: Row) -> Row:
    return row


def _approval(row: Row) -> Row:
    return row | {"id": approval_id(row["id"])}


def _call(row: Row) -> Row:
    """`digest` is what an approval of this call is bound to, `output_digest` that of the text which the model got."""
    arguments, output = _json(row["arguments"]), row.pop("output")
    held = {name: row.pop(f"evidence_{name}") for name in EVIDENCE}
    return row | {
        "arguments": arguments,
        "digest": call_digest(row["tool"], arguments) if isinstance(arguments, dict) else None,
        "output_digest": None if output is None else _sha256(output),
        "links": _json(row["links"]),
        "evidence": None if held["id"] is None else held | {"taken_at": _moment(held["taken_at"])},
    }


def _settle(row: Row) -> Row:
    return row | {"evidence": _json(row["evidence"])}


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


KINDS = (
    Kind(
        "message",
        messages.c.id,
        messages.c.arrived_at,
        _placed(messages),
        _columns(
            messages,
            *("id", "source", "marker", "who", "author", "slack_ts", "target_ts", "text"),
            *("disposition", "policy_row", "state"),
        ),
        _message,
    ),
    Kind(
        "stop",
        stops.c.id,
        stops.c.arrived_at,
        _placed(stops),
        _columns(stops, "id", "level", "author", "source", "slack_ts"),
        _as_it_is,
    ),
    Kind(
        "approval",
        approvals.c.number,
        func.coalesce(approvals.c.ended_at, approvals.c.created_at),
        _placed(approvals).join(calls, calls.c.id == approvals.c.call_row),
        _columns(
            approvals,
            *("state", "decided_by", "reason", "digest", "preview", "message_ts", "expires_at"),
            id=approvals.c.number,
            call=approvals.c.call_row,
            tool=calls.c.tool,
            tier=calls.c.tier,
            asked_at=approvals.c.created_at,
            decided_at=approvals.c.ended_at,
        ),
        _approval,
    ),
    Kind(
        "call",
        calls.c.id,
        func.coalesce(calls.c.ended_at, calls.c.started_at, turns.c.created_at),
        _placed(calls).outerjoin(evidence, evidence.c.id == calls.c.evidence_id),
        _columns(
            calls,
            *("id", "step", "position", "call_id", "tool", "tier", "status", "arguments", "input_summary"),
            *("output_summary", "output", "links", "started_at", "ended_at", "duration_ms"),
            **{f"evidence_{name}": evidence.c[name] for name in EVIDENCE},
        ),
        _call,
    ),
    Kind(
        "settle",
        settles.c.turn_id,
        settles.c.created_at,
        _placed(settles),
        _columns(
            settles,
            *("reason", "detail", "ended_by", "step", "final_event_id", "known", "evidence"),
            *("input_tokens", "output_tokens", "cost_usd"),
            id=settles.c.turn_id,
        ),
        _settle,
    ),
)
