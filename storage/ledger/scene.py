"""What an arrival is about: its session, the turn that runs, the message that it means, and who sent it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from sqlalchemy import and_, bindparam, case, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from core.messages import Action, Arrival, Place, SessionId, Source, Who
from core.steering_table import STOP_WORDS
from storage.database import now
from storage.dialect import Insert, insert_ignore
from storage.ledger.common import Ids, Row, one, rows
from storage.partial import not_settled
from storage.tables import cards, messages, outbox, sessions, turns


@dataclass(slots=True)
class Scene:
    """The locked session and what the decision is about."""

    session: Row
    turn: Row | None
    target: Row | None
    who: Who
    fresh: bool = False
    """Founded by this arrival: nothing else is there yet."""

    alone: bool = False
    """Whether the target is all that its turn was asked."""

    requests: Sequence[int] = ()
    """The numbers of the open requests for approval, where it matters."""

    @property
    def at(self) -> float:
        return float(self.session["now"])


STANDS_AT = or_(messages.c.slack_ts == bindparam("ts"), messages.c.target_ts == bindparam("ts"))
"""A message is at this place in Slack: a redirected note was asked later than it was written."""

BY_TURN = select(turns.c.session_id).where(turns.c.id == bindparam("turn"))
BY_THREAD = select(sessions.c.id, sessions.c.next_turn).where(
    sessions.c.team == bindparam("in_team"),
    sessions.c.channel == bindparam("in_channel"),
    sessions.c.thread_ts == bindparam("root"),
    sessions.c.parent_turn_id.is_(None),
)
BY_TARGET = (
    select(cards.c.session_id).where(cards.c.channel == bindparam("there"), cards.c.message_ts == bindparam("ts")),
    select(messages.c.session_id)
    .join(sessions, sessions.c.id == messages.c.session_id)
    .where(sessions.c.channel == bindparam("there"), STANDS_AT)
    .order_by(case((messages.c.slack_ts == bindparam("ts"), 0), else_=1)),
    select(outbox.c.session_id).where(outbox.c.channel == bindparam("there"), outbox.c.message_ts == bindparam("ts")),
)
MEANT = (
    select(messages)
    .where(
        messages.c.session_id == bindparam("session"),
        STANDS_AT,
        messages.c.source.in_(["mention", "reply", "direct_message", "alert"]),
    )
    .order_by(messages.c.arrived_at)
    .limit(1)
)
TAKEN_PART = (
    select(messages.c.id)
    .where(
        messages.c.session_id == bindparam("session"),
        messages.c.author == bindparam("person"),
        messages.c.state != "refused",
        or_(
            messages.c.disposition.in_(["start", "steer", "queue"]),
            and_(
                messages.c.disposition == "control",
                or_(
                    messages.c.marker.in_(["stop_step", "cancel", "approve", "deny"]),
                    messages.c.policy_row.in_(["redirect_button", "retry_button"]),
                ),
            ),
        ),
    )
    .limit(1)
)


async def find(tx: AsyncConnection, arrival: Arrival) -> SessionId | None:
    if arrival.place is Place.OUTSIDE:
        running = await running_turns(tx, arrival.channel, arrival.author)
        return SessionId(running[0]["session_id"]) if len(running) == 1 else None
    if arrival.turn_id is not None:
        turn = await one(tx, BY_TURN, turn=arrival.turn_id)
        if turn is not None:
            return SessionId(turn["session_id"])
    if arrival.place is Place.TARGET and arrival.target_ts is not None:
        by_target = await _by_target(tx, arrival.channel, arrival.target_ts)
        if by_target is not None or not early_stop(arrival):
            return by_target
    known = await one(tx, BY_THREAD, in_team=arrival.team, in_channel=arrival.channel, root=arrival.thread_ts)
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
    for statement in BY_TARGET:
        row_ = await one(tx, statement, there=channel, ts=ts)
        if row_ is not None and row_["session_id"] is not None:
            return SessionId(row_["session_id"])
    return None


async def running_turns(tx: AsyncConnection, channel: str | None, asked_by: str | None = None) -> list[Row]:
    """Turns that are not settled, oldest first; of `channel`, and that `asked_by` asked for, if given."""
    here = sessions.c.channel == channel if channel is not None else sessions.c.channel.is_not(None)
    mine = turns.c.asked_by == asked_by if asked_by is not None else turns.c.id.is_not(None)
    return await rows(
        tx,
        select(turns, sessions.c.channel, sessions.c.thread_ts)
        .join(sessions, sessions.c.id == turns.c.session_id)
        .where(here, not_settled(turns), mine)
        .order_by(turns.c.created_at),
    )


@cache
def _new_session(dialect: str) -> Insert:
    return insert_ignore(sessions, dialect).values(state="idle", created_at=now())


async def new_session(tx: AsyncConnection, ids: Ids, dialect: str, arrival: Arrival) -> tuple[SessionId, bool]:
    """The session of a thread that had none, and whether it is new: two arrivals may found it at once."""
    new = SessionId(ids("s"))
    place = {"id": new, "team": arrival.team, "channel": arrival.channel, "thread_ts": arrival.thread_ts}
    if (await tx.execute(_new_session(dialect), place)).rowcount == 1:
        return new, True
    found = await find(tx, arrival)
    assert found is not None
    return found, False


async def target(tx: AsyncConnection, session: Row, arrival: Arrival) -> Row | None:
    """The message that an edit, a deletion or the redirect button is about."""
    if arrival.action is Action.REDIRECT_NOW:
        return await one(
            tx,
            select(messages).where(messages.c.session_id == session["id"], messages.c.id == (arrival.subject or "")),
        )
    if arrival.target_ts is None:
        return None
    return await one(tx, MEANT, session=session["id"], ts=arrival.target_ts)


async def who(tx: AsyncConnection, session: Row, arrival: Arrival) -> Who:
    """A member who asked, steered, stopped or approved in this thread is a participant."""
    if arrival.who is not Who.MEMBER:
        return arrival.who
    taken_part = await one(tx, TAKEN_PART, session=session["id"], person=arrival.author)
    return Who.PARTICIPANT if taken_part else Who.MEMBER


async def is_alone(tx: AsyncConnection, target: Row | None) -> bool:
    """Whether a message is all that its turn was asked: then the turn ends with it."""
    if target is None or target["turn_id"] is None or target["disposition"] != "steer":
        return False
    others = select(messages.c.id).where(
        messages.c.turn_id == target["turn_id"],
        messages.c.id != target["id"],
        messages.c.disposition != "note",
        messages.c.state != "withdrawn",
    )
    return await one(tx, others.limit(1)) is None
