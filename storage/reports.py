"""What the ledger says, for people: lists of turns, one turn with everything that belongs to it, one thread.

Read-only, and plain values throughout: what comes back can be printed as JSON as it is. Times are seconds since the
epoch by the database's clock. Every function reads one moment.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Select, and_, func, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from core.errors import BadInput
from core.messages import TurnId
from core.redaction import redact_values
from core.trace import trace_id
from storage.database import Database, now
from storage.tables import (
    approvals,
    attempts,
    automation,
    calls,
    cards,
    costs,
    diagnoses,
    entries,
    messages,
    outbox,
    repairs,
    sessions,
    settles,
    stops,
    switches,
    turns,
)

Row = dict[str, Any]

TRACE_ID = re.compile(r"[0-9a-f]{32}")
MOST_NAMED = 5
"""How many ids are named when the beginning of an id fits more than one turn."""

_LAST_STAMP = (
    select(attempts.c.stamp)
    .where(attempts.c.turn_id == turns.c.id)
    .order_by(attempts.c.number.desc())
    .limit(1)
    .scalar_subquery()
)
_STEPS = (
    select(func.coalesce(func.max(entries.c.step), 0))
    .where(entries.c.turn_id == turns.c.id, entries.c.kind == "assistant")
    .scalar_subquery()
)
_COST = select(func.coalesce(func.sum(costs.c.usd), 0.0)).where(costs.c.turn_id == turns.c.id).scalar_subquery()

_TURN = (
    select(
        turns.c.id,
        sessions.c.channel,
        sessions.c.thread_ts,
        turns.c.state,
        _LAST_STAMP.label("stamp"),
        settles.c.reason,
        settles.c.detail,
        settles.c.final_event_id,
        cards.c.state.label("card_state"),
        turns.c.session_id,
        turns.c.number,
        turns.c.source,
        turns.c.asked_by,
        turns.c.asked_text,
        _STEPS.label("steps"),
        func.coalesce(settles.c.cost_usd, _COST).label("cost_usd"),
        settles.c.ended_by,
        turns.c.predecessor_id,
        turns.c.created_at,
        settles.c.created_at.label("settled_at"),
    )
    .join(sessions, sessions.c.id == turns.c.session_id)
    .outerjoin(settles, settles.c.turn_id == turns.c.id)
    .outerjoin(cards, cards.c.turn_id == turns.c.id)
)
"""One line of `turns list`. `stamp` is the last attempt's: null if that ended without a cut, or runs."""


async def list_turns(
    tx: AsyncConnection,
    *,
    turn: str | None = None,
    channel: str | None = None,
    thread_ts: str | None = None,
    state: str | None = None,
    newest: int | None = None,
) -> list[Row]:
    """The `newest` turns (None: all) that fit, oldest first."""
    statement = _TURN.order_by(turns.c.created_at.desc(), turns.c.id.desc()).limit(newest)
    if turn is not None:
        statement = statement.where(turns.c.id == turn)
    if channel is not None:
        statement = statement.where(sessions.c.channel == channel)
    if thread_ts is not None:
        statement = statement.where(sessions.c.thread_ts == thread_ts)
    if state is not None:
        statement = statement.where(turns.c.state == state)
    return (await _rows(tx, statement))[::-1]


async def find_turn(tx: AsyncConnection, given: str) -> TurnId:
    """The turn with this id or trace id, or whose id begins so. Raises BadInput if there is none or more than one."""
    if TRACE_ID.fullmatch(given):
        every = (TurnId(row["id"]) for row in await _rows(tx, select(turns.c.id)))
        if (traced := next((turn for turn in every if trace_id(turn) == given), None)) is not None:
            return traced
    fits = turns.c.id.startswith(given, autoescape=True)
    statement = select(turns.c.id).where(fits).order_by(func.length(turns.c.id), turns.c.id).limit(MOST_NAMED + 1)
    found = [str(row["id"]) for row in await _rows(tx, statement)] if given else []
    if given in found or len(found) == 1:
        return TurnId(found[0])
    if not found:
        raise BadInput(f"There is no turn {given or 'without an id'}: see `pilothouse turns list` for their ids.")
    named = ", ".join(found[:MOST_NAMED]) + (" and more" if len(found) > MOST_NAMED else "")
    raise BadInput(f"More than one turn begins with {given} ({named}): give more of the id.")


async def paused(tx: AsyncConnection) -> Row | None:
    """Who paused the starting of turns, and when; None while turns may start."""
    switch = (switches.c.name == "paused", switches.c.value == "yes")
    return _first(await _rows(tx, select(switches.c.changed_by, switches.c.changed_at).where(*switch)))


async def targets(
    tx: AsyncConnection, *, turn: str | None = None, channel: str | None = None, thread_ts: str | None = None
) -> list[Row]:
    """The unsettled turns that an operator's stop is about, with their place and the newest word of their session."""
    newest = select(func.max(messages.c.slack_ts)).where(messages.c.session_id == sessions.c.id).scalar_subquery()
    statement = (
        select(
            turns.c.id,
            turns.c.session_id,
            turns.c.state,
            turns.c.asked_by,
            turns.c.asked_text,
            turns.c.newest_ts,
            newest.label("newest_word"),
            sessions.c.team,
            sessions.c.channel,
            sessions.c.thread_ts,
        )
        .join(sessions, sessions.c.id == turns.c.session_id)
        .where(turns.c.state != "settled")
        .order_by(turns.c.created_at)
    )
    if turn is not None:
        statement = statement.where(turns.c.id == turn)
    if channel is not None:
        statement = statement.where(sessions.c.channel == channel)
    if thread_ts is not None:
        statement = statement.where(sessions.c.thread_ts == thread_ts)
    return await _rows(tx, statement)


async def reached(tx: AsyncConnection, turn: str) -> bool:
    """Whether a committed stop reaches this turn, or the turn has settled."""
    in_scope = and_(
        stops.c.session_id == turns.c.session_id,
        or_(stops.c.slack_ts > turns.c.newest_ts, stops.c.turn_id == turns.c.id),
    )
    statement = (
        select(turns.c.id)
        .outerjoin(stops, in_scope)
        .where(turns.c.id == turn, or_(stops.c.id.is_not(None), turns.c.state == "settled"))
        .limit(1)
    )
    return bool(await _rows(tx, statement))


# -- one turn


async def turn_story(tx: AsyncConnection, turn_id: TurnId) -> Row:
    """Everything that the ledger holds about one turn, each kind of row in its own list.

    `messages`, `stops` and `posts` are also those of the session that belong to no turn and came while this one was
    unsettled; a message that another turn consumed names that turn in `turn_id`.
    """
    turn = _first(await _rows(tx, _TURN.where(turns.c.id == turn_id)))
    if turn is None:
        raise BadInput(f"There is no turn {turn_id}: see `pilothouse turns list` for their ids.")
    more = select(
        *(turns.c[name] for name in ("newest_ts", "start_after", "running_s", "rung", "rung_cause", "crashes")),
        *(sessions.c[name] for name in ("team", "lease_owner", "lease_until", "epoch", "model")),
        sessions.c.state.label("session_state"),
        now().label("now"),
    ).join(sessions, sessions.c.id == turns.c.session_id)
    turn |= (await _rows(tx, more.where(turns.c.id == turn_id)))[0]
    following = select(turns.c.id).where(turns.c.predecessor_id == turn_id)
    turn["successor_id"] = next((row["id"] for row in await _rows(tx, following)), None)
    story: Row = {"turn": turn}
    for name, statement in _parts(turn).items():
        story[name] = [_parsed(row) for row in await _rows(tx, statement)]
    for name, table in {"settle": settles, "card": cards, "diagnosis": diagnoses, "automation": automation}.items():
        found = _first(await _rows(tx, select(table).where(table.c.turn_id == turn_id)))
        story[name] = None if found is None else _parsed(found)
    return story


def _parts(turn: Row) -> Mapping[str, Select[Any]]:
    own, session = turn["id"], turn["session_id"]
    until = turn["settled_at"] if turn["settled_at"] is not None else turn["now"]
    reaches = and_(stops.c.slack_ts > turn["newest_ts"], stops.c.arrived_at <= until)

    def meanwhile(table: Any, at: str) -> Any:
        return and_(table.c.session_id == session, table.c[at].between(turn["created_at"], until))

    return {
        "messages": select(messages)
        .where(or_(messages.c.turn_id == own, meanwhile(messages, "arrived_at")))
        .order_by(messages.c.arrived_at, messages.c.slack_ts),
        "stops": select(stops)
        .where(stops.c.session_id == session, or_(stops.c.turn_id == own, reaches))
        .order_by(stops.c.arrived_at),
        "attempts": select(attempts).where(attempts.c.turn_id == own).order_by(attempts.c.number),
        "entries": select(entries).where(entries.c.turn_id == own).order_by(entries.c.seq),
        "calls": select(calls).where(calls.c.turn_id == own).order_by(calls.c.step, calls.c.position),
        "approvals": select(approvals, calls.c.tool, calls.c.step)
        .join(calls, calls.c.id == approvals.c.call_row)
        .where(approvals.c.turn_id == own)
        .order_by(approvals.c.number),
        "posts": select(outbox)
        .where(or_(outbox.c.turn_id == own, and_(outbox.c.turn_id.is_(None), meanwhile(outbox, "created_at"))))
        .order_by(outbox.c.id),
        "costs": select(costs).where(costs.c.turn_id == own).order_by(costs.c.id),
        "repairs": select(repairs).where(repairs.c.turn_id == own).order_by(repairs.c.id),
        "helpers": select(sessions.c.id, sessions.c.state, sessions.c.created_at)
        .where(sessions.c.parent_turn_id == own)
        .order_by(sessions.c.created_at),
    }


_JSON_COLUMNS = ("body", "arguments", "links", "files", "evidence")


def _parsed(row: Row) -> Row:
    found = {name: _json(value) if name in _JSON_COLUMNS else value for name, value in row.items()}
    return found | {"arguments": redact_values(found["arguments"])} if "arguments" in found else found


def _json(text: str | None) -> Any:
    """The value behind a column; what can't be read is shown as it is."""
    try:
        return None if text is None else json.loads(text)
    except (ValueError, RecursionError):
        return text


# -- one thread, for the page


async def ledger_panel(db: Database, channel: str, thread_ts: str) -> Row:
    """What the ledger says about one thread: its turns, oldest first, and its stops.

    A message that belongs to no turn is shown under the turn that was unsettled when it came, else in `loose`.
    """
    async with db.reading() as tx:
        found = await list_turns(tx, channel=channel, thread_ts=thread_ts)
        here = select(sessions.c.id).where(sessions.c.channel == channel, sessions.c.thread_ts == thread_ts)
        said = await _rows(tx, _said(here))
        tried = await _rows(tx, _of_thread(attempts, turns.c.id == attempts.c.turn_id, here, attempts.c.number))
        called = await _rows(
            tx,
            select(calls).where(calls.c.session_id.in_(here)).order_by(calls.c.step, calls.c.position),
        )
        stopped = await _rows(tx, select(stops).where(stops.c.session_id.in_(here)).order_by(stops.c.arrived_at))
    owners = [_owner(word, found) for word in said]
    return {
        "turns": [
            {
                **turn,
                "attempts": [_attempt(row) for row in tried if row["turn_id"] == turn["id"]],
                "messages": [_word(row) for row, owner in zip(said, owners, strict=True) if owner == turn["id"]],
                "calls": [_call(row) for row in called if row["turn_id"] == turn["id"]],
            }
            for turn in found
        ],
        "loose": [_word(row) for row, owner in zip(said, owners, strict=True) if owner is None],
        "stops": [
            {"author": row["author"], "level": row["level"], "at": row["arrived_at"], "ts": row["slack_ts"]}
            for row in stopped
        ],
    }


def _said(here: Select[Any]) -> Select[Any]:
    return (
        select(messages)
        .where(messages.c.session_id.in_(here))
        .order_by(messages.c.arrived_at, messages.c.slack_ts, messages.c.id)
    )


def _of_thread(table: Any, join: Any, here: Select[Any], *order: Any) -> Select[Any]:
    return select(table).join(turns, join).where(turns.c.session_id.in_(here)).order_by(turns.c.created_at, *order)


def _owner(word: Row, found: Sequence[Row]) -> str | None:
    if word["turn_id"] is not None:
        return str(word["turn_id"])
    for turn in reversed(found):
        ended = turn["settled_at"]
        same = turn["session_id"] == word["session_id"]
        if same and turn["created_at"] <= word["arrived_at"] and (ended is None or word["arrived_at"] <= ended):
            return str(turn["id"])
    return None


def _attempt(row: Row) -> Row:
    return {"number": row["number"], "worker": row["worker"], "end": row["ended"], "stamp": row["stamp"]}


def _word(row: Row) -> Row:
    return {name: row[name] for name in ("author", "text", "source", "marker", "disposition", "policy_row", "state")}


def _call(row: Row) -> Row:
    return {name: row[name] for name in ("step", "tool", "status", "duration_ms", "input_summary")}


async def _rows(tx: AsyncConnection, statement: Any) -> list[Row]:
    return [{str(key): value for key, value in row.items()} for row in (await tx.execute(statement)).mappings().all()]


def _first(found: Sequence[Row]) -> Row | None:
    return found[0] if found else None
