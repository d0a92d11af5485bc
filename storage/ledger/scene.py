"""What an arrival is about: its session, the turn that runs, the message that it means, and who sent it."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from core.messages import Action, Arrival, Place, SessionId, Source, Who
from core.steering_table import STOP_WORDS
from storage.database import now
from storage.dialect import insert_ignore
from storage.ledger.common import Ids, Row, one, rows
from storage.tables import cards, messages, outbox, sessions, turns


@dataclass(slots=True)
class Scene:
    """The locked session and what the decision is about."""

    session: Row
    turn: Row | None
    target: Row | None
    who: Who

    @property
    def at(self) -> float:
        return float(self.session["now"])


async def find(tx: AsyncConnection, arrival: Arrival) -> SessionId | None:
    if arrival.place is Place.OUTSIDE:
        running = await running_turns(tx, arrival.channel, arrival.author)
        return SessionId(running[0]["session_id"]) if len(running) == 1 else None
    if arrival.turn_id is not None:
        turn = await one(tx, select(turns.c.session_id).where(turns.c.id == arrival.turn_id))
        if turn is not None:
            return SessionId(turn["session_id"])
    if arrival.place is Place.TARGET and arrival.target_ts is not None:
        by_target = await _by_target(tx, arrival.channel, arrival.target_ts)
        if by_target is not None or not early_stop(arrival):
            return by_target
    known = await one(
        tx,
        select(sessions.c.id, sessions.c.next_turn).where(
            sessions.c.team == arrival.team,
            sessions.c.channel == arrival.channel,
            sessions.c.thread_ts == arrival.thread_ts,
            sessions.c.parent_turn_id.is_(None),
        ),
    )
    if known is None or (arrival.only_in_session and known["next_turn"] == 1 and not early_stop(arrival)):
        return None
    return SessionId(known["id"])


def early_stop(arrival: Arrival) -> bool:
    """A stop in a thread that may know nothing of us yet: it is kept, so that it is there when its target comes late.

    A thread that holds nothing else is still none of ours: other replies in it are not stored.
    """
    by_person = arrival.source in (Source.REPLY, Source.REACTION)
    return by_person and arrival.marker in STOP_WORDS and arrival.rights.stop


async def _by_target(tx: AsyncConnection, channel: str, ts: str) -> SessionId | None:
    for statement in (
        select(cards.c.session_id).where(cards.c.channel == channel, cards.c.message_ts == ts),
        select(messages.c.session_id)
        .join(sessions, sessions.c.id == messages.c.session_id)
        .where(sessions.c.channel == channel, messages.c.slack_ts == ts),
        select(outbox.c.session_id).where(outbox.c.channel == channel, outbox.c.message_ts == ts),
    ):
        row_ = await one(tx, statement)
        if row_ is not None and row_["session_id"] is not None:
            return SessionId(row_["session_id"])
    return None


async def running_turns(tx: AsyncConnection, channel: str, asked_by: str | None = None) -> list[Row]:
    """Turns of a channel that are not settled, oldest first; only those that `asked_by` asked for, if given."""
    mine = turns.c.asked_by == asked_by if asked_by is not None else turns.c.id.is_not(None)
    return await rows(
        tx,
        select(turns, sessions.c.channel, sessions.c.thread_ts)
        .join(sessions, sessions.c.id == turns.c.session_id)
        .where(sessions.c.channel == channel, turns.c.state != "settled", mine)
        .order_by(turns.c.created_at),
    )


async def new_session(tx: AsyncConnection, ids: Ids, dialect: str, arrival: Arrival) -> SessionId:
    new = SessionId(ids("s"))
    await tx.execute(
        insert_ignore(sessions, dialect).values(
            id=new,
            team=arrival.team,
            channel=arrival.channel,
            thread_ts=arrival.thread_ts,
            state="idle",
            created_at=now(),
        )
    )
    found = await find(tx, arrival)
    assert found is not None
    return found


async def target(tx: AsyncConnection, session: Row, arrival: Arrival) -> Row | None:
    """The message that an edit, a deletion or the redirect button is about."""
    if arrival.action is Action.REDIRECT_NOW:
        return await one(
            tx,
            select(messages).where(messages.c.session_id == session["id"], messages.c.id == (arrival.subject or "")),
        )
    if arrival.target_ts is None:
        return None
    return await one(
        tx,
        select(messages)
        .where(
            messages.c.session_id == session["id"],
            messages.c.slack_ts == arrival.target_ts,
            messages.c.source.in_(["mention", "reply", "direct_message", "alert"]),
        )
        .order_by(messages.c.arrived_at)
        .limit(1),
    )


async def who(tx: AsyncConnection, session: Row, arrival: Arrival) -> Who:
    """A member who asked, steered, stopped or approved in this thread is a participant."""
    if arrival.who is not Who.MEMBER:
        return arrival.who
    taken_part = await one(
        tx,
        select(messages.c.id)
        .where(
            messages.c.session_id == session["id"],
            messages.c.author == arrival.author,
            messages.c.disposition.in_(["start", "steer", "queue", "control"]),
            messages.c.state != "refused",
        )
        .limit(1),
    )
    return Who.PARTICIPANT if taken_part else Who.MEMBER
