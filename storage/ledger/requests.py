"""Requests for approval: which one a decision means, the decision, and every other way in which they end.

However a request ends, its post is drawn anew without buttons, and the last one that ends wakes the turn.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from sqlalchemy import String, bindparam, exists, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from core.approvals import (
    AFTER_A_DENIAL,
    Approval,
    ApprovalState,
    Refusal,
    approval_id,
    digest,
    end,
    may_decide,
    number_of,
)
from core.ledger import Claimed
from core.marker import is_doubtful
from core.messages import Arrival, Marker, SessionId, Source, UserId, older
from core.notices import Notice
from core.ports import Tier
from storage.database import now
from storage.dialect import insert_ignore
from storage.ledger.common import Row, lock, one, rows
from storage.ledger.outgoing import request_again_row, rewrite_row
from storage.ledger.retry import RETRY_ROW, retried
from storage.ledger.scene import Scene
from storage.tables import approvals, calls, messages, outbox, sessions, suspensions, turns

_TURN = bindparam("turn", type_=String)

ASKED = (
    select(approvals, calls.c.tool, calls.c.tier, calls.c.arguments, calls.c.step, calls.c.position)
    .join(calls, calls.c.id == approvals.c.call_row)
    .order_by(approvals.c.number)
)
OPEN_OF_TURN = ASKED.where(approvals.c.turn_id == _TURN, approvals.c.state == "open")
OPEN_OF_SESSION = ASKED.where(approvals.c.session_id == bindparam("session"), approvals.c.state == "open")
BY_NUMBER = ASKED.where(approvals.c.session_id == bindparam("session"), approvals.c.number == bindparam("asked"))
OF_TURN = ASKED.where(approvals.c.turn_id == _TURN)
OF_CALL = select(approvals).where(approvals.c.call_row == bindparam("call"))
AT = (
    select(approvals.c.number, approvals.c.turn_id, approvals.c.session_id)
    .join(sessions, sessions.c.id == approvals.c.session_id)
    .where(
        sessions.c.channel == bindparam("channel"),
        approvals.c.message_ts == bindparam("ts"),
        approvals.c.state == "open",
    )
)
END = (
    update(approvals)
    .where(approvals.c.number == bindparam("asked"), approvals.c.state == "open")
    .values(
        state=bindparam("becomes"),
        decided_by=bindparam("by"),
        reason=bindparam("why"),
        ended_at=bindparam("at"),
    )
)
WAIT_OVER = update(suspensions).where(suspensions.c.turn_id == _TURN, suspensions.c.ended_at.is_(None))
NEW_POST = insert(outbox)
PLACE = select(sessions.c.id, sessions.c.channel, sessions.c.thread_ts).where(sessions.c.id == bindparam("session"))
SHOW = update(sessions).where(sessions.c.id == bindparam("session")).values(version=sessions.c.version + 1)
AUTHORS = select(messages.c.author, messages.c.policy_row, messages.c.dedupe_key).where(
    messages.c.turn_id == _TURN, or_(messages.c.state == "consumed", messages.c.disposition != "note")
)

WAITS_STILL = exists().where(
    suspensions.c.turn_id == turns.c.id, suspensions.c.ended_at.is_(None), suspensions.c.until > now()
)
"""The condition, over `turns`, that a suspended turn has something to wait for."""

REFUSED: Mapping[Refusal, Notice] = {
    Refusal.DECIDED: Notice.ALREADY_DECIDED,
    Refusal.EXPIRED: Notice.REQUEST_EXPIRED,
    Refusal.ASKED_FOR_IT: Notice.NEEDS_ANOTHER,
}


async def open_requests(tx: AsyncConnection, session: str) -> list[Row]:
    """The open requests of a session, oldest first, with their calls."""
    return await rows(tx, OPEN_OF_SESSION, session=session)


async def decide(tx: AsyncConnection, scene: Scene, arrival: Arrival) -> Notice | None:
    """Write one decision of somebody who may approve here; a notice says why it was not taken."""
    found = await _meant(tx, scene, arrival)
    if isinstance(found, Notice):
        return found
    authors = await _authors(tx, found["turn_id"])
    refusal = may_decide(
        ApprovalState(found["state"]),
        tier=Tier(found["tier"]),
        by=UserId(arrival.author),
        authors=authors,
        expires_at=found["expires_at"],
        now=scene.at,
    )
    if refusal is not None:
        return REFUSED[refusal]
    if found["digest"] != _digest(found):
        await end_requests(tx, [found], ApprovalState.WITHDRAWN, scene.at, why="its arguments changed")
        return Notice.REQUEST_EXPIRED
    approved = arrival.marker is Marker.APPROVE
    if approved and is_doubtful(arrival.reason):
        return Notice.WITH_A_CONDITION
    state = ApprovalState.APPROVED if approved else ApprovalState.DENIED
    await end_requests(tx, [found], state, scene.at, by=arrival.author, why=arrival.reason)
    if not approved:
        behind = [
            row
            for row in await rows(tx, OPEN_OF_TURN, turn=found["turn_id"])
            if row["step"] == found["step"] and row["position"] > found["position"]
        ]
        await end_requests(tx, behind, ApprovalState.WITHDRAWN, scene.at, why=AFTER_A_DENIAL)
    return None


async def _authors(tx: AsyncConnection, turn: str) -> set[str]:
    """Whose words a turn is about. Behind Retry stand the words of the turn that is tried again."""
    authors: set[str] = set()
    about = [turn]
    for one_ in about:
        for row in await rows(tx, AUTHORS, turn=one_):
            authors.add(row["author"])
            again = retried(row["dedupe_key"]) if row["policy_row"] == RETRY_ROW else None
            if again is not None and again not in about:
                about.append(again)
    return authors


async def _meant(tx: AsyncConnection, scene: Scene, arrival: Arrival) -> Row | Notice:
    """The request that a decision is about: the named one of this session, or its only open one.

    Words without an id are about what their author had seen: one that was posted after them they can't mean.
    """
    session = scene.session["id"]
    if arrival.approval_id is not None:
        number = number_of(arrival.approval_id)
        found = await one(tx, BY_NUMBER, session=session, asked=number) if number is not None else None
        if found is None:
            return Notice.EXPIRED_CONTROL if arrival.source is Source.BUTTON else Notice.NOTHING_TO_DECIDE
        return found
    waiting = await open_requests(tx, session)
    if not waiting:
        return Notice.NOTHING_TO_DECIDE
    if any(row["message_ts"] is not None and older(arrival.ts, row["message_ts"]) for row in waiting):
        return Notice.NOT_SEEN_YET
    return waiting[0] if len(waiting) == 1 else Notice.WHICH_REQUEST


def _digest(found: Row) -> str:
    return digest(found["tool"], json.loads(found["arguments"]))


async def end_open(tx: AsyncConnection, turn: str, state: ApprovalState, at: float, *, by: str | None = None) -> None:
    """End every open request of a turn, and its wait."""
    await end_requests(tx, await rows(tx, OPEN_OF_TURN, turn=turn), state, at, by=by)


async def end_requests(
    tx: AsyncConnection,
    found: Sequence[Row],
    state: ApprovalState,
    at: float,
    *,
    by: str | None = None,
    why: str = "",
) -> None:
    """End these open requests; with the last open one of a turn its wait is over."""
    for row in found:
        end(ApprovalState(row["state"]), state)
        values = {"asked": row["number"], "becomes": state.value, "by": by, "why": why[:2_000], "at": at}
        await tx.execute(END, values)
        await show_anew(tx, row, at, state.value)
    for turn, session in {(row["turn_id"], row["session_id"]) for row in found}:
        if not await rows(tx, OPEN_OF_TURN, turn=turn):
            await tx.execute(WAIT_OVER.values(ended_at=at), {"turn": turn})
        await tx.execute(SHOW, {"session": session})


async def show_anew(tx: AsyncConnection, approval: Row, at: float, why: str) -> None:
    """The post of a request is drawn once more from the rows; `why` names what there is to show."""
    session = await one(tx, PLACE, session=approval["session_id"])
    assert session is not None
    values = rewrite_row(session, approval["turn_id"], approval["number"], why, at)
    await tx.execute(NEW_POST, values)


async def post_gone(tx: AsyncConnection, dialect: str, channel: str, ts: str) -> None:
    """The post of an open request was deleted: it is asked once more, because nobody can see what they decide."""
    found = await one(tx, AT, channel=channel, ts=ts)
    session = await lock(tx, SessionId(found["session_id"])) if found is not None else None
    if found is None or session is None or await one(tx, AT, channel=channel, ts=ts) is None:
        return
    again = request_again_row(session, found["turn_id"], found["number"], session["now"])
    if (await tx.execute(insert_ignore(outbox, dialect).values(**again))).rowcount == 0:
        return
    await tx.execute(update(approvals).where(approvals.c.number == found["number"]).values(message_ts=None))
    await tx.execute(SHOW, {"session": session["id"]})


async def still_waits(tx: AsyncConnection, turn: str) -> bool:
    """Whether a suspended turn has something to wait for."""
    return bool(await rows(tx, select(turns.c.id).where(turns.c.id == _TURN, WAITS_STILL), turn=turn))


async def wake(tx: AsyncConnection, turn: str, at: float, *, stopped: bool, steered: bool) -> None:
    """A suspended turn goes on: what is still open ends, truthfully."""
    state = ApprovalState.EXPIRED
    if stopped or steered:
        state = ApprovalState.STOPPED if stopped else ApprovalState.WITHDRAWN
    await end_open(tx, turn, state, at)
    await tx.execute(WAIT_OVER.values(ended_at=at), {"turn": turn})


async def approvals_of(tx: AsyncConnection, turn: str) -> Mapping[str, Approval]:
    """The requests of a turn, by the row of the call that they are about."""
    return {row["call_row"]: _approval(row) for row in await rows(tx, OF_TURN, turn=turn)}


async def approval_of(tx: AsyncConnection, call_row: str) -> Approval | None:
    """The request for one call; None when nobody was asked about it."""
    found = await one(tx, OF_CALL, call=call_row)
    return None if found is None else _approval(found)


def _approval(row: Row) -> Approval:
    return Approval(
        approval_id(row["number"]),
        ApprovalState(row["state"]),
        row["digest"],
        row["expires_at"],
        UserId(row["decided_by"]) if row["decided_by"] else None,
        row["reason"],
    )


async def outcomes(tx: AsyncConnection, claimed: Claimed, step: int, at: float) -> None:
    """What became of approved calls is shown where they were approved."""
    waited = any(one.approval is not None for one in claimed.open_calls)
    for row in await rows(tx, OF_TURN, turn=claimed.turn) if waited else ():
        if row["step"] == step and row["state"] == ApprovalState.APPROVED.value and row["message_ts"]:
            await show_anew(tx, row, at, "outcome")
