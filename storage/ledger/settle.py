"""*settle*: how the turn ended, everything that follows from it, and the next turn, in one transaction.

Mailbox and stops are read under the lock: a stop in scope wins over an answer that has just come, which is then
neither committed nor posted; a steer does not discard a finished answer, it starts the next turn here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import String, bindparam, func, insert, select, true, update
from sqlalchemy.ext.asyncio import AsyncConnection

from core.control import Closed, Mail, StopFact
from core.errors import IllegalMove
from core.ledger import Claimed, Settled, Spent
from core.messages import SessionId, TurnId, UserId
from core.settle import Detail, Outcome, Reason, Rows, TurnFacts, reason_of
from core.settle import rows as settle_rows
from core.turn import Stamp, TurnMove, TurnState, move_turn
from storage.ledger.common import Ids, Price, Row, begin_turn, book, dump, end, fence, mail_of, one, rows
from storage.ledger.open import add_entry
from storage.ledger.outgoing import WHY_CLOSED, answer_row, no_place_row
from storage.partial import waits
from storage.tables import (
    attempts,
    automation,
    cards,
    costs,
    diagnoses,
    messages,
    outbox,
    sessions,
    settles,
    turns,
)

MACHINES = ("alert", "schedule", "helper_report", "helper_question", "helper_answer")


_SESSION, _TURN = bindparam("session", type_=String), bindparam("turn", type_=String)

TURN = select(turns).where(turns.c.id == _TURN)
SETTLED = update(turns).where(turns.c.id == _TURN).values(state="settled")
FORGET = update(messages).where(messages.c.turn_id == _TURN, waits(messages)).values(state="stopped")
_ASKING = (
    messages.c.session_id == _SESSION,
    waits(messages),
    messages.c.disposition.in_(["start", "steer", "queue"]),
)
WAITING = select(messages).where(*_ASKING).order_by(messages.c.slack_ts)
LET_GO = update(messages).where(*_ASKING).values(state="stopped")
SPENT = select(
    func.coalesce(func.sum(costs.c.input_tokens), 0).label("input"),
    func.coalesce(func.sum(costs.c.output_tokens), 0).label("output"),
    func.coalesce(func.sum(costs.c.usd), 0.0).label("usd"),
).where(costs.c.turn_id == _TURN)
NEW_SETTLE, NEW_POST = insert(settles), insert(outbox)
KEEP = update(sessions).where(sessions.c.id == _SESSION).values(state=bindparam("then"), next_seq=bindparam("seq"))
GIVE_BACK = KEEP.values(lease_owner=None, lease_until=None)
RESTAMP = (
    update(attempts)
    .where(
        attempts.c.turn_id == bindparam("turn"),
        attempts.c.number == bindparam("attempt_number"),
        attempts.c.ended == "cut",
        attempts.c.stamp != "stop",
    )
    .values(stamp="stop")
)
"""A stop that came between the cut and the settle: both recorders say the same."""


async def settle(
    tx: AsyncConnection,
    ids: Ids,
    claimed: Claimed,
    outcome: Outcome,
    spent: Sequence[Spent],
    price: Price,
    *,
    quiet_s: float,
) -> Settled:
    """See `core.ledger.Ledger.settle`. `quiet_s`: how long a turn that steers start waits for a quiet thread."""
    fenced = await fence(tx, claimed.lease)
    at = float(fenced["now"])
    turn = await one(tx, TURN, turn=claimed.turn)
    if turn is None:
        raise IllegalMove(f"{claimed.turn} does not exist")
    move_turn(TurnState(turn["state"]), TurnMove.SETTLE)
    mail = await mail_of(tx, claimed.lease.session, claimed.turn)
    outcome = _under_the_lock(outcome, mail)
    written = settle_rows(TurnFacts(claimed.source, claimed.evidence), outcome)
    await book(tx, claimed.turn, spent, price)
    await _forget_unconsumed(tx, claimed)
    closed = mail.stop.closed if mail.stop is not None else None
    waiting = await (_let_words_go if closed else waiting_words)(tx, claimed.lease.session)
    ended_by = outcome.ended_by or _first_steerer(outcome, waiting)
    final = await _answer(tx, claimed, written, fenced["next_seq"])
    await _settle_row(tx, claimed, replace(outcome, ended_by=ended_by), written, final, at)
    await tx.execute(SETTLED, {"turn": claimed.turn})
    await end(tx, claimed, written.attempt_end, written.stamp, at)
    if written.stamp is Stamp.STOP:
        await tx.execute(RESTAMP, {"turn": claimed.turn, "attempt_number": claimed.attempt})
    await _ledgers(tx, claimed, written, at)
    await _post(tx, claimed, written, closed, at)
    following = await _next_turn(tx, ids, claimed, outcome, waiting, turn, at, quiet_s)
    settled = Settled(outcome.reason, following, starts_now=not any(_asked(word) for word in waiting))
    await tx.execute(
        KEEP if settled.goes_on else GIVE_BACK,
        {
            "session": claimed.lease.session,
            "then": "idle" if following is None else "running",
            "seq": fenced["next_seq"] + (final is not None),
        },
    )
    return settled


def _asked(word: Row) -> bool:
    return word["disposition"] in ("start", "steer")


def _under_the_lock(outcome: Outcome, mail: Mail) -> Outcome:
    """A stop in scope wins, except over a write whose outcome is unknown: that has to be said.

    A steer ends the ladder up to its last rung: whoever redirects is not told that there was no answer.
    """
    if mail.stop is not None and outcome.detail is not Detail.OUTCOME_UNKNOWN:
        return stopped_outcome(outcome, mail.stop)
    if mail.steers and outcome.reason is Reason.EMPTY:
        return Outcome(Reason.STEERED, stamp=Stamp.STEER, step=outcome.step)
    return outcome


def stopped_outcome(outcome: Outcome, stop: StopFact) -> Outcome:
    """The outcome of a turn that a stop reached, or whose place takes no more messages."""
    if stop.closed is not None:
        why = WHY_CLOSED[stop.closed]
        known = f"{why[0].upper()}{why[1:]}, so nothing more could be said here."
        return Outcome(Reason.FAILED, detail=Detail.CHANNEL_ARCHIVED, known=known, step=outcome.step)
    return Outcome(reason_of(Stamp.STOP, stop.level), stamp=Stamp.STOP, step=outcome.step, ended_by=stop.author)


async def _forget_unconsumed(tx: AsyncConnection, claimed: Claimed) -> None:
    """Words of this turn that it never took: a stop came first."""
    await tx.execute(FORGET, {"turn": claimed.turn})


async def waiting_words(tx: AsyncConnection, session: SessionId) -> Sequence[Row]:
    """The words of a session that ask for a turn and have none, oldest first."""
    return await rows(tx, WAITING, session=session)


async def _let_words_go(tx: AsyncConnection, session: SessionId) -> Sequence[Row]:
    """No words start a turn where nothing can be answered."""
    await tx.execute(LET_GO, {"session": session})
    return []


def _first_steerer(outcome: Outcome, waiting: Sequence[Mapping[str, Any]]) -> UserId | None:
    if outcome.reason is not Reason.STEERED:
        return None
    return next((UserId(word["author"]) for word in waiting if word["disposition"] == "steer"), None)


async def _answer(tx: AsyncConnection, claimed: Claimed, written: Rows, seq: int) -> str | None:
    if written.answer is None:
        return None
    return await add_entry(tx, claimed, seq, "assistant", claimed.steps, written.answer)


async def _settle_row(
    tx: AsyncConnection, claimed: Claimed, outcome: Outcome, written: Rows, final: str | None, at: float
) -> None:
    total = await one(tx, SPENT, turn=claimed.turn)
    assert total is not None
    await tx.execute(
        NEW_SETTLE,
        {
            "turn_id": claimed.turn,
            "session_id": claimed.lease.session,
            "reason": written.reason.value,
            "detail": written.detail.value if written.detail else None,
            "final_event_id": final,
            "ended_by": outcome.ended_by,
            "step": outcome.step,
            "known": outcome.known,
            "evidence": dump([[item.call_id, item.tool, item.summary] for item in claimed.evidence]),
            "input_tokens": total["input"],
            "output_tokens": total["output"],
            "cost_usd": total["usd"],
            "created_at": at,
        },
    )


async def _ledgers(tx: AsyncConnection, claimed: Claimed, written: Rows, at: float) -> None:
    """The diagnosis and the automation row, for the reasons that have them."""
    if written.diagnosis is not None:
        kind, text = written.diagnosis
        await tx.execute(insert(diagnoses).values(turn_id=claimed.turn, kind=kind, text=text, created_at=at))
    if written.automation is not None:
        seen = written.automation_evidence
        await tx.execute(
            insert(automation).values(
                turn_id=claimed.turn,
                source=claimed.source.value,
                outcome=written.automation.value,
                evidence=None if seen is None else dump([[item.call_id, item.tool] for item in seen]),
                created_at=at,
            )
        )


async def _post(tx: AsyncConnection, claimed: Claimed, written: Rows, closed: Closed | None, at: float) -> None:
    if written.post is not None:
        await tx.execute(NEW_POST, answer_row(claimed, written.post, at))
    if written.detail is Detail.CHANNEL_ARCHIVED and closed is not None:
        await tx.execute(NEW_POST, no_place_row(claimed, closed, at))
        await tx.execute(
            update(cards)
            .where(
                cards.c.turn_id == claimed.turn,
                true() if closed is Closed.ARCHIVED else cards.c.message_ts.is_(None),
            )
            .values(state="released", released_at=at, error=closed.value)
        )
        await tx.execute(update(cards).where(cards.c.turn_id == claimed.turn).values(not_before=0.0))


async def _next_turn(
    tx: AsyncConnection,
    ids: Ids,
    claimed: Claimed,
    outcome: Outcome,
    waiting: Sequence[Row],
    turn: Row,
    at: float,
    quiet_s: float,
) -> TurnId | None:
    words = next_words(waiting, queued=outcome.detail is not Detail.OUTCOME_UNKNOWN)
    if not words:
        return None
    steered = _asked(words[0])
    session = {"id": claimed.lease.session, "channel": claimed.channel, "thread_ts": claimed.thread_ts}
    newest = max(float(word["arrived_at"]) for word in words)
    return await begin_turn(
        tx,
        ids,
        session,
        words,
        at=at,
        start_after=max(at, newest + quiet_s) if steered else at,
        predecessor=turn["id"] if outcome.reason is Reason.STEERED else None,
    )


def next_words(waiting: Sequence[Row], *, queued: bool) -> Sequence[Row]:
    """People's steers first, all of them; then, if `queued`, their queued words, as one turn; then one alert or
    report."""
    asked = [word for word in waiting if _asked(word)]
    if asked or not queued:
        return asked
    behind = [word for word in waiting if word["disposition"] == "queue"]
    people = [word for word in behind if word["source"] not in MACHINES]
    return people or behind[:1]
