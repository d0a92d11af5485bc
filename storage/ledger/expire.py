"""A turn that nobody began in time is settled without having run, and its card asks whether it is still wanted.

Somebody who comes back after an hour of silence must not be surprised by an investigation of what may be over. The
words are not consumed but withdrawn: the thread is read anew with the next turn, and Retry asks the same again.
"""

from __future__ import annotations

from sqlalchemy import ColumnElement, exists, func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from core.ledger import Claimed, Frozen, Lease
from core.messages import ChannelId, Epoch, SessionId, SlackTs, Source, TurnId, UserId
from core.reconcile import RULES, Find, out_of_date
from storage.database import now
from storage.ledger.common import Ids, Row, one, rows, stop_of
from storage.ledger.settle import settle
from storage.partial import waits
from storage.tables import attempts, messages, sessions, turns

OLD_S = RULES[Find.TURN_OUT_OF_DATE].after_s
SWEEPER = "reconciler"
_ASKING = ("start", "steer", "queue")


async def expire(tx: AsyncConnection, ids: Ids, session: Row, turn: Row) -> bool:
    """Settle `turn` if nobody ever began it and all that was said about it is old. `session` is locked, with `now`.

    A turn that a stop reaches is left to a worker, which settles it as stopped.
    """
    at = float(session["now"])
    heard_at = await _heard_at(tx, turn)
    held = session["lease_owner"] is not None and session["lease_until"] > at
    if turn["state"] != "waiting" or held or heard_at > at - OLD_S or await _was_begun(tx, turn):
        return False
    if await stop_of(tx, SessionId(session["id"]), TurnId(turn["id"])) is not None:
        return False
    behind = await _withdraw(tx, turn, at - OLD_S)
    claimed = await _take(tx, session, turn)
    outcome = out_of_date(at - heard_at, behind)
    await settle(tx, ids, claimed, outcome, [], lambda _model, _usage: 0.0, quiet_s=0.0)
    await tx.execute(
        update(sessions).where(sessions.c.id == session["id"]).values(lease_owner=None, lease_until=None)
    )
    return True


async def _heard_at(tx: AsyncConnection, turn: Row) -> float:
    """When the newest word came that this turn would answer: its own, or a steer that waits to join it."""
    newest = await one(
        tx,
        select(func.max(messages.c.arrived_at).label("at")).where(
            messages.c.session_id == turn["session_id"],
            waits(messages),
            or_(messages.c.turn_id == turn["id"], messages.c.disposition == "steer"),
        ),
    )
    return float(newest["at"] if newest and newest["at"] is not None else turn["first_at"])


async def _was_begun(tx: AsyncConnection, turn: Row) -> bool:
    return await one(tx, select(attempts.c.number).where(attempts.c.turn_id == turn["id"]).limit(1)) is not None


async def _withdraw(tx: AsyncConnection, turn: Row, before: float) -> int:
    """Withdraw the turn's words and what waits behind it and is old too; how many others' requests those were.

    What helpers found is kept as a note, as after a stop.
    """
    old = await rows(
        tx,
        select(messages.c.id, messages.c.source, messages.c.turn_id).where(
            messages.c.session_id == turn["session_id"],
            waits(messages),
            messages.c.disposition.in_(_ASKING),
            or_(messages.c.turn_id == turn["id"], messages.c.arrived_at <= before),
        ),
    )
    found = [word["id"] for word in old if word["source"].startswith("helper_")]
    asked = [word for word in old if word["id"] not in found]
    await tx.execute(
        update(messages).where(messages.c.id.in_(found)).values(disposition="note", turn_id=None),
    )
    await tx.execute(
        update(messages).where(messages.c.id.in_([word["id"] for word in asked])).values(state="withdrawn"),
    )
    return sum(1 for word in asked if word["turn_id"] != turn["id"])


async def _take(tx: AsyncConnection, session: Row, turn: Row) -> Claimed:
    """The right to settle, under an epoch of its own, like any other who settles."""
    epoch = Epoch(session["epoch"] + 1)
    await tx.execute(
        update(sessions)
        .where(sessions.c.id == session["id"])
        .values(lease_owner=SWEEPER, lease_until=now(), epoch=epoch)
    )
    return Claimed(
        lease=Lease(SessionId(session["id"]), SWEEPER, epoch),
        turn=TurnId(turn["id"]),
        attempt=0,
        source=Source(turn["source"]),
        asked_by=UserId(turn["asked_by"]),
        channel=ChannelId(session["channel"]),
        thread_ts=SlackTs(session["thread_ts"]),
        frozen=Frozen("", "", []),
    )


def never_begun() -> ColumnElement[bool]:
    """The condition, over `turns`, that no worker ever took a turn."""
    return ~exists().where(attempts.c.turn_id == turns.c.id)
