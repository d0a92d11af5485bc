"""The sweeps of the reconciler: one for each `core.reconcile.Find`, each a look and, where it can, a repair.

A look is one query. A repair is a short transaction of its own that locks the session and asks again, because between
the look and the lock the world went on; so two sweeps at the same moment do no harm. A repair is shielded: whoever is
cancelled in the middle of one leaves a whole transaction behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy import and_, case, exists, func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from core.messages import SessionId
from core.reconcile import CARD_LAST_S, RULES, Find, right_state
from core.stop import Fate, Waiting, fate_of
from core.turn import TurnState
from storage.database import Database, now, run
from storage.ledger import requests
from storage.ledger.common import Ids, Row, begin_turn, lock, one, rows, strongest, unsettled
from storage.ledger.expire import expire, never_begun
from storage.ledger.settle import next_words, waiting_words
from storage.partial import is_open, not_settled, waits
from storage.tables import attempts, cards, messages, outbox, sessions, settles, stops, suspensions, switches, turns

MOST = 500
"""How much one sweep takes on; the rest is there at the next one."""
CALL_S = 60.0
"""A call of the writer has certainly ended after this long."""
FAR_S = 300.0
"""Slack never asks us to wait this long."""


@dataclass(frozen=True, slots=True)
class Found:
    """One find: what it is about (a turn, a session, a row) and the session to ring for.

    What was put right is gone: if the next sweep finds the same again, it is another one.
    """

    key: str
    session: SessionId | None
    put_right: bool = False


Sweep = Callable[[Database, Ids], Awaitable[list[Found]]]
Repair = Callable[[AsyncConnection, Ids, Row], Awaitable[bool]]


# -- sessions and their words


async def state_disagrees(db: Database, ids: Ids) -> list[Found]:
    """Sessions whose state is not that of their turns: the turns are right."""
    wrong = [row for row in await _look(db, _states()) if row["state"] != _right(row)]
    return await _repair(db, ids, wrong, _correct)


def _states() -> Any:
    helper, parent = sessions.alias("helper"), turns.alias("parent")
    at_work = exists().where(
        helper.c.parent_turn_id == parent.c.id, parent.c.session_id == sessions.c.id, helper.c.state != "idle"
    )
    return (
        select(
            sessions.c.id.label("session_id"), sessions.c.state, turns.c.state.label("turn"), at_work.label("at_work")
        )
        .select_from(sessions)
        .outerjoin(turns, and_(turns.c.session_id == sessions.c.id, not_settled(turns)))
        .where(or_(sessions.c.state != "idle", turns.c.id.is_not(None)))
    )


def _right(row: Row) -> str:
    turn = TurnState(row["turn"]) if row["turn"] is not None else None
    return right_state(turn, helpers_at_work=bool(row["at_work"])).value


async def _correct(tx: AsyncConnection, ids: Ids, session: Row) -> bool:
    found = await one(tx, _states().where(sessions.c.id == session["id"]))
    right = _right(found) if found is not None else "idle"
    if session["state"] == right:
        return False
    await tx.execute(update(sessions).where(sessions.c.id == session["id"]).values(state=right))
    return True


async def words_left_behind(db: Database, ids: Ids) -> list[Found]:
    """Words that still wait for a turn that has settled."""
    statement = (
        select(messages.c.session_id)
        .join(turns, turns.c.id == messages.c.turn_id)
        .where(waits(messages), turns.c.state == "settled")
        .distinct()
        .limit(MOST)
    )
    return await _repair(db, ids, await _look(db, statement), _free_words)


async def _free_words(tx: AsyncConnection, ids: Ids, session: Row) -> bool:
    left = await rows(
        tx,
        select(messages)
        .join(turns, turns.c.id == messages.c.turn_id)
        .where(messages.c.session_id == session["id"], waits(messages), turns.c.state == "settled"),
    )
    for word in left:
        if not await _stopped(tx, word):
            await tx.execute(update(messages).where(messages.c.id == word["id"]).values(turn_id=None))
    return bool(left)


async def words_unheard(db: Database, ids: Ids) -> list[Found]:
    """Words that ask for a turn where nothing runs and nothing will: their turn starts."""
    statement = (
        select(messages.c.session_id)
        .join(sessions, sessions.c.id == messages.c.session_id)
        .where(
            waits(messages),
            messages.c.disposition.in_(["start", "steer", "queue"]),
            sessions.c.state == "idle",
            ~exists().where(turns.c.session_id == messages.c.session_id, not_settled(turns)),
        )
        .distinct()
        .limit(MOST)
    )
    return await _repair(db, ids, await _look(db, statement), _hear)


async def _hear(tx: AsyncConnection, ids: Ids, session: Row) -> bool:
    """Start the turn as `settle` would have: people first, and nothing that a stop reaches."""
    if session["state"] != "idle" or await unsettled(tx, SessionId(session["id"])) is not None:
        return False
    waiting = await waiting_words(tx, SessionId(session["id"]))
    alive = [word for word in waiting if not await _stopped(tx, word)]
    words = next_words(alive, queued=not await _outcome_unknown(tx, session))
    if not words:
        return len(alive) < len(waiting)
    at = float(session["now"])
    await begin_turn(tx, ids, session, words, at=at, start_after=at, predecessor=None)
    turn = await unsettled(tx, SessionId(session["id"]))
    assert turn is not None
    await expire(tx, ids, session, turn)
    return True


async def _stopped(tx: AsyncConnection, word: Row) -> bool:
    """Apply the newest-reaching stop to a waiting word; whether it is no request any more."""
    stop = strongest(
        await rows(
            tx,
            select(stops.c.level, stops.c.author, stops.c.slack_ts, stops.c.source)
            .where(stops.c.session_id == word["session_id"], stops.c.slack_ts > word["slack_ts"])
            .order_by(stops.c.slack_ts),
        )
    )
    if stop is None:
        return False
    helper = word["source"].startswith("helper_")
    fate = fate_of(Waiting.HELPER_REPORT if helper else Waiting(word["disposition"]), word["slack_ts"], stop)
    if fate is Fate.STAYS:
        return False
    change = {"state": "stopped"} if fate is Fate.STOPPED else {"disposition": "note", "turn_id": None}
    await tx.execute(update(messages).where(messages.c.id == word["id"]).values(**change))
    return True


async def _outcome_unknown(tx: AsyncConnection, session: Row) -> bool:
    """Whether the last turn ended in an unknown outcome: then nothing queued starts until a person writes."""
    last = await one(
        tx,
        select(settles.c.detail)
        .join(turns, turns.c.id == settles.c.turn_id)
        .where(settles.c.session_id == session["id"])
        .order_by(turns.c.number.desc())
        .limit(1),
    )
    return last is not None and last["detail"] == "outcome_unknown"


# -- turns that nobody works on


async def turn_out_of_date(db: Database, ids: Ids) -> list[Found]:
    """Turns that nobody began for so long that they are not run: their cards ask whether they are still wanted.

    What waits because operators paused is kept, and starts after they resume.
    """
    after_s = RULES[Find.TURN_OUT_OF_DATE].after_s
    held_back = exists().where(
        switches.c.name == "paused",
        or_(switches.c.value == "yes", switches.c.changed_at > now() - after_s),
    )
    statement = (
        select(turns.c.session_id)
        .where(
            turns.c.state == "waiting",
            turns.c.start_after <= now() - after_s,
            never_begun(),
            ~held_back,
        )
        .limit(MOST)
    )
    return await _repair(db, ids, await _look(db, statement), _let_go)


async def _let_go(tx: AsyncConnection, ids: Ids, session: Row) -> bool:
    turn = await unsettled(tx, SessionId(session["id"]))
    old = float(session["now"]) - RULES[Find.TURN_OUT_OF_DATE].after_s
    return turn is not None and turn["start_after"] <= old and await expire(tx, ids, session, turn)


async def turn_unclaimed(db: Database, ids: Ids) -> list[Found]:
    """Turns that could run and that no worker holds."""
    since = now() - RULES[Find.TURN_UNCLAIMED].after_s
    touched = func.coalesce(attempts.c.ended_at, attempts.c.started_at)
    statement = _workless(sessions.c.lease_owner.is_(None)).where(
        turns.c.start_after <= since,
        ~exists().where(attempts.c.turn_id == turns.c.id, touched > since),
    )
    return [Found(row["key"], SessionId(row["session_id"])) for row in await _look(db, statement)]


async def lease_ran_out(db: Database, ids: Ids) -> list[Found]:
    """Turns of workers that went silent."""
    statement = _workless(sessions.c.lease_until <= now() - RULES[Find.LEASE_RAN_OUT].after_s)
    return [Found(row["key"], SessionId(row["session_id"])) for row in await _look(db, statement)]


async def wait_overdue(db: Database, ids: Ids) -> list[Found]:
    """Turns that wait for people who had their time: their requests end, so that no button outlives them."""
    statement = (
        select(suspensions.c.session_id)
        .where(suspensions.c.ended_at.is_(None), suspensions.c.until <= now() - RULES[Find.WAIT_OVERDUE].after_s)
        .limit(MOST)
    )
    return await _repair(db, ids, await _look(db, statement), _end_wait)


async def _end_wait(tx: AsyncConnection, ids: Ids, session: Row) -> bool:
    turn = await unsettled(tx, SessionId(session["id"]))
    if turn is None or turn["state"] != TurnState.SUSPENDED.value or await requests.still_waits(tx, turn["id"]):
        return False
    await requests.wake(tx, turn["id"], session["now"], stopped=False, steered=False)
    return True


def _workless(free: Any) -> Any:
    """Turns that could run in sessions that are `free`; while operators pause, nobody is expected to claim any."""
    paused = exists().where(switches.c.name == "paused", switches.c.value == "yes")
    return (
        select(turns.c.id.label("key"), turns.c.session_id)
        .join(sessions, sessions.c.id == turns.c.session_id)
        .where(not_settled(turns), turns.c.state.in_(["waiting", "running"]), free, ~paused)
        .limit(MOST)
    )


# -- what people see


async def card_unfinished(db: Database, ids: Ids) -> list[Found]:
    """Open cards of settled turns that the writer leaves alone: due again.

    A post without outcome stays one: it is looked up before it is posted again.
    """
    after_s = RULES[Find.CARD_UNFINISHED].after_s
    left_alone = and_(
        or_(cards.c.sending.is_(None), cards.c.sending_at <= now() - CALL_S),
        or_(cards.c.not_before <= now() - after_s, cards.c.not_before > now() + FAR_S),
    )
    again = {"sending": case((cards.c.sending == "post", "post"), else_=None), "not_before": 0.0, "tries": 0}
    return await _change_cards(db, and_(_over_for(after_s), left_alone), again)


async def card_given_up(db: Database, ids: Ids) -> list[Found]:
    """Final cards that Slack refuses while it takes other messages: released, with the error kept.

    While Slack takes nothing at all they go on waiting, so that people see the end when it answers again.
    """
    after_s = RULES[Find.CARD_GIVEN_UP].after_s
    other = cards.alias("other")
    slack_answers = or_(
        exists().where(other.c.sent_at > now() - after_s, other.c.turn_id != cards.c.turn_id),
        exists().where(outbox.c.state == "sent", outbox.c.ended_at > now() - after_s),
    )
    refused = and_(cards.c.error.is_not(None), or_(slack_answers, _over_for(CARD_LAST_S)))
    return await _change_cards(
        db, and_(_over_for(after_s), refused), {"state": "released", "released_at": now(), "sending": None}
    )


def _over_for(seconds: float) -> Any:
    """The condition that a card is open though its turn settled that long ago and waits for no helper."""
    helper = sessions.alias("helper")
    return and_(
        is_open(cards),
        exists().where(settles.c.turn_id == cards.c.turn_id, settles.c.created_at <= now() - seconds),
        ~exists().where(helper.c.parent_turn_id == cards.c.turn_id, helper.c.state != "idle"),
    )


async def _change_cards(db: Database, where: Any, values: Mapping[str, Any]) -> list[Found]:
    statement = update(cards).where(where).values(**values).returning(cards.c.turn_id)

    async def work(tx: AsyncConnection) -> list[Found]:
        return [Found(str(turn), None) for turn in (await tx.execute(statement)).scalars()]

    return await asyncio.shield(asyncio.ensure_future(run(db, work)))


async def post_unclear(db: Database, ids: Ids) -> list[Found]:
    """Posts whose outcome nobody found out in time."""
    statement = (
        select(outbox.c.id)
        .where(outbox.c.state == "sending", outbox.c.sending_at <= now() - RULES[Find.POST_UNCLEAR].after_s)
        .limit(MOST)
    )
    return [Found(str(row["id"]), None) for row in await _look(db, statement)]


# -- how they look and repair


async def _look(db: Database, statement: Any) -> Sequence[Row]:
    async with db.reading() as tx:
        return await rows(tx, statement)


async def _repair(db: Database, ids: Ids, suspects: Sequence[Row], repair: Repair) -> list[Found]:
    """Repair the sessions of `suspects`, each under its lock; those in which there was something to repair."""

    async def work(session: SessionId, tx: AsyncConnection) -> bool:
        locked = await lock(tx, session)
        return locked is not None and await repair(tx, ids, locked)

    found: list[Found] = []
    for suspect in suspects:
        session = SessionId(suspect["session_id"])
        if await asyncio.shield(asyncio.ensure_future(run(db, partial(work, session)))):
            found.append(Found(session, session, put_right=True))
    return found


SWEEPS: Mapping[Find, Sweep] = {
    Find.STATE_DISAGREES: state_disagrees,
    Find.WORDS_LEFT_BEHIND: words_left_behind,
    Find.WORDS_UNHEARD: words_unheard,
    Find.TURN_OUT_OF_DATE: turn_out_of_date,
    Find.TURN_UNCLAIMED: turn_unclaimed,
    Find.LEASE_RAN_OUT: lease_ran_out,
    Find.WAIT_OVERDUE: wait_overdue,
    Find.CARD_UNFINISHED: card_unfinished,
    Find.CARD_GIVEN_UP: card_given_up,
    Find.POST_UNCLEAR: post_unclear,
}
