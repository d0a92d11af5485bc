"""What the five transactions share: lock, fence, tombstones, how a turn begins and how an attempt ends.

Statements are made once, where they stand, and get their values when they run: to build one anew costs several times
what SQLite needs to run it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import String, and_, bindparam, insert, literal, or_, select, union_all, update
from sqlalchemy.ext.asyncio import AsyncConnection

from core.control import Closed, Mail, StopFact
from core.errors import LostLease
from core.evidence import whole
from core.ledger import Claimed, Lease, Spent
from core.messages import Level, SessionId, TurnId, UserId
from core.ports import Usage
from core.turn import AttemptEnd, Stamp, end_attempt
from storage.database import now
from storage.partial import not_settled, waits
from storage.tables import attempts, cards, costs, messages, sessions, stops, turns

Ids = Callable[[str], str]
"""Makes an id that begins with the given letters."""

Price = Callable[[str, Usage], float]
"""What one model request cost, in US dollars."""


def dump(value: object) -> str:
    """JSON as it is stored: compact, and readable for people. No database takes half a character."""
    return whole(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


Row = dict[str, Any]
"""One row of a query, by column name."""


async def one(tx: AsyncConnection, statement: Any, **values: Any) -> Row | None:
    """The first row of a query; `values` are those of its parameters."""
    found = await rows(tx, statement, **values)
    return found[0] if found else None


async def rows(tx: AsyncConnection, statement: Any, **values: Any) -> list[Row]:
    """All rows of a query; `values` are those of its parameters."""
    result = await tx.execute(statement, values)
    names = list(result.keys())
    return [dict(zip(names, row, strict=True)) for row in result]


LOCK = select(sessions, now().label("now")).where(sessions.c.id == bindparam("session")).with_for_update()


async def lock(tx: AsyncConnection, session: SessionId) -> Row | None:
    """The session's row, locked until the transaction ends, with the database's clock as `now`."""
    return await one(tx, LOCK, session=session)


FENCE = (
    update(sessions)
    .where(
        sessions.c.id == bindparam("session"),
        sessions.c.epoch == bindparam("mine"),
        sessions.c.lease_owner == bindparam("worker"),
    )
    .values(version=sessions.c.version + 1, next_seq=sessions.c.next_seq + bindparam("entries"))
    .returning(sessions.c.next_seq, now().label("now"))
)


async def fence(tx: AsyncConnection, lease: Lease, entries: int = 0) -> Row:
    """Lock the session and check the epoch in one statement; reserve `entries` places in the history.

    Returns `next_seq` (after the reservation) and `now`. Raises `LostLease` when the epoch is an old one.
    """
    row = await one(tx, FENCE, session=lease.session, mine=lease.epoch, worker=lease.worker, entries=entries)
    if row is None:
        raise LostLease(f"epoch {lease.epoch} of {lease.session} is not the current one")
    return row


_TURN = bindparam("turn", type_=String)
_SESSION = bindparam("session", type_=String)
_NEWEST = select(turns.c.newest_ts).where(turns.c.id == _TURN).scalar_subquery()
IN_SCOPE = and_(stops.c.session_id == _SESSION, or_(stops.c.slack_ts > _NEWEST, stops.c.turn_id == _TURN))
"""A stop of the session reaches the turn: everything the turn consumed is older."""

STOPS = select(stops.c.level, stops.c.author, stops.c.slack_ts, stops.c.source)
STOPS_OF_TURN = STOPS.where(IN_SCOPE).order_by(stops.c.slack_ts)


async def stop_of(tx: AsyncConnection, session: SessionId, turn: TurnId) -> StopFact | None:
    """The stop that reaches a turn: the first one, or the first that cancels the task if there is one."""
    return strongest(await rows(tx, STOPS_OF_TURN, session=session, turn=turn))


def strongest(found: Sequence[Mapping[str, Any]]) -> StopFact | None:
    """Of several stops in scope the one that counts."""
    if not found:
        return None
    first = next((row for row in found if row["level"] == Level.TASK.value), found[0])
    closed = Closed(first["source"]) if first["source"] in set(Closed) else None
    return StopFact(Level(first["level"]), UserId(first["author"]), first["slack_ts"], closed)


STEER_WAITS = and_(waits(messages), messages.c.disposition == "steer", messages.c.turn_id.is_(None))
"""A message redirects whatever turn of its session runs, and no turn has taken it."""

MAIL = union_all(
    select(
        literal("stop").label("kind"),
        stops.c.level.label("level"),
        stops.c.author.label("author"),
        stops.c.slack_ts.label("slack_ts"),
        stops.c.source.label("source"),
    ).where(IN_SCOPE),
    select(literal("steer"), literal(""), messages.c.author, messages.c.slack_ts, messages.c.source).where(
        messages.c.session_id == _SESSION,
        STEER_WAITS,
    ),
)


async def mail_of(tx: AsyncConnection, session: SessionId, turn: TurnId) -> Mail:
    """What waits for a running turn, in one query: stops in scope and steers."""
    found = await rows(tx, MAIL, session=session, turn=turn)
    heard = sorted((row for row in found if row["kind"] == "stop"), key=lambda row: str(row["slack_ts"]))
    return Mail(strongest(heard), sum(1 for row in found if row["kind"] == "steer"))


END_ATTEMPT = (
    update(attempts)
    .where(
        attempts.c.turn_id == _TURN,
        attempts.c.number == bindparam("attempt"),
        attempts.c.ended.is_(None),
    )
    .values(ended=bindparam("ended"), ended_at=bindparam("at"), stamp=bindparam("stamp"))
    .returning(attempts.c.started_at)
)
RAN = update(turns).where(turns.c.id == _TURN).values(running_s=turns.c.running_s + bindparam("ran"))


async def end(tx: AsyncConnection, claimed: Claimed, ended: AttemptEnd, stamp: Stamp | None, at: float) -> None:
    """End the running attempt, if it has not ended, and add its time to the turn."""
    ended, stamp = end_attempt(ended, stamp)
    changed = await one(
        tx,
        END_ATTEMPT,
        turn=claimed.turn,
        attempt=claimed.attempt,
        ended=ended.value,
        at=at,
        stamp=stamp.value if stamp else None,
    )
    if changed is not None:
        ran = max(0.0, at - changed["started_at"])
        await tx.execute(RAN, {"turn": claimed.turn, "ran": ran})


BOOK = insert(costs)


async def book(tx: AsyncConnection, turn: TurnId, spent: Sequence[Spent], price: Price) -> None:
    """Write what model requests cost; every reason pays."""
    if not spent:
        return
    await tx.execute(
        BOOK,
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


TAKE_NUMBER = (
    update(sessions)
    .where(sessions.c.id == _SESSION)
    .values(next_turn=sessions.c.next_turn + 1, state="running")
    .returning(sessions.c.next_turn)
)
NEW_TURN, NEW_CARD = insert(turns), insert(cards)
TAKE_WORDS = (
    update(messages).where(messages.c.id.in_(bindparam("words", expanding=True))).values(turn_id=bindparam("turn"))
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
    row = await one(tx, TAKE_NUMBER, session=session["id"])
    assert row is not None
    await tx.execute(
        NEW_TURN,
        {
            "id": turn,
            "session_id": session["id"],
            "number": row["next_turn"] - 1,
            "state": "waiting",
            "source": first["source"],
            "asked_by": first["author"],
            "asked_text": asked_text(words),
            "newest_ts": max(str(word["slack_ts"]) for word in words),
            "first_at": at,
            "start_after": start_after,
            "predecessor_id": predecessor,
            "created_at": at,
        },
    )
    await tx.execute(
        NEW_CARD,
        {
            "turn_id": turn,
            "session_id": session["id"],
            "channel": session["channel"],
            "thread_ts": session["thread_ts"],
            "state": "open",
            "opened_at": at,
        },
    )
    await tx.execute(TAKE_WORDS, {"words": [word["id"] for word in words], "turn": turn})
    return turn


def asked_text(words: Sequence[Mapping[str, Any]]) -> str:
    """What a turn is about, for cards, lists and Retry: the words of everybody who asked for it."""
    return "\n".join(str(word["text"]) for word in words)[:2000]


def fingerprint(system: str, tools: str) -> str:
    """What identifies the frozen prompt and tools of a session."""
    return hashlib.sha256(f"{system}\0{tools}".encode()).hexdigest()


UNSETTLED = select(turns).where(turns.c.session_id == _SESSION, not_settled(turns))


async def unsettled(tx: AsyncConnection, session: SessionId) -> Row | None:
    """The one turn of a session that has no settle yet."""
    return await one(tx, UNSETTLED, session=session)
