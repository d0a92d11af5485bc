"""What the five transactions share: lock, fence, tombstones, how a turn begins and how an attempt ends."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import and_, insert, literal, or_, select, union_all, update
from sqlalchemy.ext.asyncio import AsyncConnection

from core.control import Mail, StopFact
from core.errors import LostLease
from core.ledger import Claimed, Lease, Spent
from core.messages import Level, SessionId, TurnId, UserId
from core.ports import Usage
from core.turn import AttemptEnd, Stamp, end_attempt
from storage.database import now
from storage.tables import attempts, cards, costs, messages, sessions, stops, turns

Ids = Callable[[str], str]
"""Makes an id that begins with the given letters."""

Price = Callable[[str, Usage], float]
"""What one model request cost, in US dollars."""


def dump(value: object) -> str:
    """JSON as it is stored: compact, and readable for people."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


ARCHIVED = "archived"
"""The source of a stop that no person sent: the channel was archived."""

Row = dict[str, Any]
"""One row of a query, by column name."""


async def one(tx: AsyncConnection, statement: Any) -> Row | None:
    """The first row of a query."""
    row = (await tx.execute(statement)).mappings().first()
    return None if row is None else {str(key): value for key, value in row.items()}


async def rows(tx: AsyncConnection, statement: Any) -> list[Row]:
    """All rows of a query."""
    found = (await tx.execute(statement)).mappings().all()
    return [{str(key): value for key, value in row.items()} for row in found]


async def lock(tx: AsyncConnection, session: SessionId) -> Row | None:
    """The session's row, locked until the transaction ends, with the database's clock as `now`."""
    statement = select(sessions, now().label("now")).where(sessions.c.id == session).with_for_update()
    return await one(tx, statement)


async def fence(tx: AsyncConnection, lease: Lease, entries: int = 0) -> Row:
    """Lock the session and check the epoch in one statement; reserve `entries` places in the history.

    Returns `next_seq` (after the reservation) and `now`. Raises `LostLease` when the epoch is an old one.
    """
    statement = (
        update(sessions)
        .where(
            sessions.c.id == lease.session,
            sessions.c.epoch == lease.epoch,
            sessions.c.lease_owner == lease.worker,
        )
        .values(version=sessions.c.version + 1, next_seq=sessions.c.next_seq + entries)
        .returning(sessions.c.next_seq, now().label("now"))
    )
    row = await one(tx, statement)
    if row is None:
        raise LostLease(f"epoch {lease.epoch} of {lease.session} is not the current one")
    return row


def in_scope(session: Any, turn: Any) -> Any:
    """The condition that a stop of `session` reaches `turn`: everything the turn consumed is older."""
    newest = select(turns.c.newest_ts).where(turns.c.id == turn).scalar_subquery()
    return and_(stops.c.session_id == session, or_(stops.c.slack_ts > newest, stops.c.turn_id == turn))


async def stop_of(tx: AsyncConnection, session: SessionId, turn: TurnId) -> StopFact | None:
    """The stop that reaches a turn: the first one, or the first that cancels the task if there is one."""
    found = await rows(
        tx,
        select(stops.c.level, stops.c.author, stops.c.slack_ts, stops.c.source)
        .where(in_scope(session, turn))
        .order_by(stops.c.slack_ts),
    )
    return strongest(found)


def strongest(found: Sequence[Mapping[str, Any]]) -> StopFact | None:
    """Of several stops in scope the one that counts."""
    if not found:
        return None
    first = next((row for row in found if row["level"] == Level.TASK.value), found[0])
    archived = first["source"] == ARCHIVED
    return StopFact(Level(first["level"]), UserId(first["author"]), first["slack_ts"], archived)


async def mail_of(tx: AsyncConnection, session: SessionId, turn: TurnId) -> Mail:
    """What waits for a running turn, in one query: stops in scope and steers."""
    statement = union_all(
        select(
            literal("stop").label("kind"),
            stops.c.level.label("level"),
            stops.c.author.label("author"),
            stops.c.slack_ts.label("slack_ts"),
            stops.c.source.label("source"),
        ).where(in_scope(session, turn)),
        select(literal("steer"), literal(""), messages.c.author, messages.c.slack_ts, messages.c.source).where(
            messages.c.session_id == session,
            messages.c.state == "waiting",
            messages.c.disposition == "steer",
            messages.c.turn_id.is_(None),
        ),
    )
    found = await rows(tx, statement)
    heard = sorted((row for row in found if row["kind"] == "stop"), key=lambda row: str(row["slack_ts"]))
    return Mail(strongest(heard), sum(1 for row in found if row["kind"] == "steer"))


async def end(tx: AsyncConnection, claimed: Claimed, ended: AttemptEnd, stamp: Stamp | None, at: float) -> None:
    """End the running attempt, if it has not ended, and add its time to the turn."""
    ended, stamp = end_attempt(ended, stamp)
    changed = await one(
        tx,
        update(attempts)
        .where(
            attempts.c.turn_id == claimed.turn,
            attempts.c.number == claimed.attempt,
            attempts.c.ended.is_(None),
        )
        .values(ended=ended.value, ended_at=at, stamp=stamp.value if stamp else None)
        .returning(attempts.c.started_at),
    )
    if changed is not None:
        ran = max(0.0, at - changed["started_at"])
        await tx.execute(update(turns).where(turns.c.id == claimed.turn).values(running_s=turns.c.running_s + ran))


async def book(tx: AsyncConnection, turn: TurnId, spent: Sequence[Spent], price: Price) -> None:
    """Write what model requests cost; every reason pays."""
    if not spent:
        return
    await tx.execute(
        insert(costs),
        [
            {
                "turn_id": turn,
                "step": one_.step,
                "model": one_.model,
                "input_tokens": one_.usage.input_tokens,
                "output_tokens": one_.usage.output_tokens,
                "cache_read_tokens": one_.usage.cache_read_tokens,
                "cache_write_tokens": one_.usage.cache_write_tokens,
                "estimated": one_.usage.estimated,
                "usd": price(one_.model, one_.usage),
            }
            for one_ in spent
        ],
    )


async def begin_turn(
    tx: AsyncConnection,
    ids: Ids,
    session: Mapping[str, Any],
    words: Sequence[Mapping[str, Any]],
    *,
    at: float,
    start_after: float,
    predecessor: str | None,
) -> TurnId:
    """Insert a waiting turn with its card for `words` (message rows, oldest first), before any visible sign.

    `session` needs id, channel, thread_ts. The words belong to the turn from now on; they are consumed when it
    is claimed.
    """
    turn = TurnId(ids("t"))
    first = words[0]
    number = (
        update(sessions)
        .where(sessions.c.id == session["id"])
        .values(next_turn=sessions.c.next_turn + 1, state="running")
        .returning(sessions.c.next_turn)
    )
    row = await one(tx, number)
    assert row is not None
    await tx.execute(
        insert(turns).values(
            id=turn,
            session_id=session["id"],
            number=row["next_turn"] - 1,
            state="waiting",
            source=first["source"],
            asked_by=first["author"],
            asked_text=asked_text(words),
            newest_ts=max(str(word["slack_ts"]) for word in words),
            first_at=at,
            start_after=start_after,
            predecessor_id=predecessor,
            created_at=at,
        )
    )
    await tx.execute(
        insert(cards).values(
            turn_id=turn,
            session_id=session["id"],
            channel=session["channel"],
            thread_ts=session["thread_ts"],
            state="open",
            opened_at=at,
        )
    )
    await tx.execute(update(messages).where(messages.c.id.in_([word["id"] for word in words])).values(turn_id=turn))
    return turn


def asked_text(words: Sequence[Mapping[str, Any]]) -> str:
    """What a turn is about, for cards, lists and Retry: the words of everybody who asked for it."""
    return "\n".join(str(word["text"]) for word in words)[:2000]


def fingerprint(system: str, tools: str) -> str:
    """What identifies the frozen prompt and tools of a session."""
    return hashlib.sha256(f"{system}\0{tools}".encode()).hexdigest()


async def unsettled(tx: AsyncConnection, session: SessionId) -> Row | None:
    """The one turn of a session that has no settle yet."""
    return await one(tx, select(turns).where(turns.c.session_id == session, turns.c.state != "settled"))
