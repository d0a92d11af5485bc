"""What the card of a turn is drawn from: committed rows, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache

from sqlalchemy import bindparam, exists, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from core.approvals import ApprovalState, approval_id
from core.card import CallLine, CallState, CardFacts, StepLine
from core.card_lines import asks, tool_words
from core.gateway import CallStatus
from core.messages import SessionId, TurnId, UserId
from core.ports import Tier
from core.remediation import Rung
from storage.database import now
from storage.ledger.common import Row, one, rows, stop_of
from storage.tables import (
    approvals,
    attempts,
    calls,
    cards,
    costs,
    entries,
    messages,
    outbox,
    sessions,
    settles,
    turns,
)

STATES = {
    CallStatus.OPEN: CallState.RUNNING,
    CallStatus.INTENT: CallState.RUNNING,
    CallStatus.OK: CallState.OK,
    CallStatus.ERROR: CallState.ERROR,
    CallStatus.TIMEOUT: CallState.TIMEOUT,
    CallStatus.CANCELLED: CallState.CANCELLED,
    CallStatus.DENIED: CallState.DENIED,
    CallStatus.REFUSED: CallState.REFUSED,
    CallStatus.UNKNOWN: CallState.UNKNOWN,
    CallStatus.INTERRUPTED: CallState.INTERRUPTED,
    CallStatus.NOT_RUN: CallState.NOT_RUN,
}
REMEMBERED_CALLS = 2_000


_gone = messages.alias("gone")
_DELETED = (
    select(func.count())
    .select_from(messages)
    .where(
        messages.c.turn_id == turns.c.id,
        messages.c.state == "consumed",
        exists().where(
            _gone.c.session_id == messages.c.session_id,
            _gone.c.source == "delete",
            _gone.c.target_ts.in_([messages.c.slack_ts, messages.c.target_ts]),
        ),
    )
    .scalar_subquery()
)
"""How many messages people deleted after the turn had read them."""


_TRIED = attempts.c.turn_id == turns.c.id
_BEGAN = select(func.min(attempts.c.started_at)).where(_TRIED).scalar_subquery()
_RESUMED = exists().where(_TRIED, attempts.c.ended.in_(["drained", "crashed"]))
_COST = select(func.coalesce(func.sum(costs.c.usd), 0.0)).where(costs.c.turn_id == turns.c.id).scalar_subquery()
_POSTED = exists().where(
    outbox.c.turn_id == turns.c.id,
    outbox.c.kind == "answer",
    outbox.c.part == 0,
    outbox.c.state == "sent",
)
TURN = (
    select(
        turns,
        sessions.c.model,
        cards.c.fallback,
        settles.c.reason,
        settles.c.detail,
        settles.c.ended_by,
        settles.c.step,
        settles.c.known,
        settles.c.created_at.label("settled_at"),
        func.coalesce(settles.c.cost_usd, _COST).label("cost_usd"),
        _BEGAN.label("began"),
        _RESUMED.label("resumed"),
        _POSTED.label("answer_posted"),
        _DELETED.label("deleted"),
        now().label("now"),
    )
    .join(sessions, sessions.c.id == turns.c.session_id)
    .join(cards, cards.c.turn_id == turns.c.id)
    .outerjoin(settles, settles.c.turn_id == turns.c.id)
    .where(turns.c.id == bindparam("turn"))
)
CALLS = (
    select(
        calls.c.step,
        calls.c.tool,
        calls.c.status,
        calls.c.tier,
        calls.c.arguments,
        calls.c.duration_ms,
        approvals.c.number,
        approvals.c.state.label("asked"),
        approvals.c.message_ts.label("asked_ts"),
    )
    .outerjoin(approvals, approvals.c.call_row == calls.c.id)
    .where(calls.c.turn_id == bindparam("turn"))
    .order_by(calls.c.step, calls.c.position)
)
SAID = (
    select(entries.c.step, entries.c.body)
    .where(entries.c.turn_id == bindparam("turn"), entries.c.kind == "assistant")
    .order_by(entries.c.seq.desc())
    .limit(1)
)


async def card_facts(tx: AsyncConnection, turn_id: TurnId, *, max_steps: int) -> CardFacts | None:
    """The facts of one card, or None if there is no such turn."""
    turn = await one(tx, TURN, turn=turn_id)
    if turn is None:
        return None
    settled = turn["reason"] is not None
    found = await rows(tx, CALLS, turn=turn_id) if turn["began"] is not None else []
    steps = _steps(found, await _said(tx, turn_id) if found and not settled else {})
    waiting = [row for row in found if row["asked"] == ApprovalState.OPEN.value]
    stop = None if settled else await stop_of(tx, SessionId(turn["session_id"]), turn_id)
    stop = None if stop is None or stop.closed else stop
    return CardFacts(
        turn_id=turn_id,
        asked_by=UserId(turn["asked_by"]),
        asked_text=turn["asked_text"],
        state=turn["state"],
        steps=steps,
        max_steps=max_steps,
        elapsed_s=_elapsed(turn),
        cost_usd=float(turn["cost_usd"]),
        model=turn["model"] or "",
        doing=_doing(turn, steps, waiting),
        stopping_by=stop.author if stop else None,
        stop_level=stop.level if stop else None,
        quiet=bool(turn["state"] == "waiting" and turn["start_after"] > turn["now"]),
        resumed=bool(turn["resumed"]),
        rung=turn["rung"],
        reason=turn["reason"],
        detail=turn["detail"],
        ended_by=UserId(turn["ended_by"]) if turn["ended_by"] else None,
        ended_step=turn["step"] or 0,
        answer_posted=bool(settled and turn["answer_posted"]),
        answer_fallback=turn["fallback"],
        known=turn["known"] or "",
        deleted=turn["deleted"],
        request_ts=next((row["asked_ts"] for row in waiting if row["asked_ts"]), None),
    )


def _steps(found: Sequence[Row], said: Mapping[int, str]) -> tuple[StepLine, ...]:
    numbers = sorted({row["step"] for row in found})
    return tuple(
        StepLine(number, tuple(_line(row) for row in found if row["step"] == number), said.get(number, ""))
        for number in numbers
    )


async def _said(tx: AsyncConnection, turn_id: TurnId) -> dict[int, str]:
    """What the model said beside the calls of its last step."""
    return {row["step"]: text_beside(row["body"]) for row in await rows(tx, SAID, turn=turn_id)}


def text_beside(body: str) -> str:
    """What a stored answer of the model says beside its calls."""
    return " ".join(block["text"] for block in json.loads(body) if block.get("type") == "text")


def _line(row: Row) -> CallLine:
    took = row["duration_ms"]
    return CallLine(
        row["tool"],
        _asks(row["arguments"], row["tier"]),
        CallState.ASKED if row["asked"] == ApprovalState.OPEN.value else STATES[CallStatus(row["status"])],
        None if took is None else took / 1000,
        row["tier"] != Tier.READ,
    )


@lru_cache(REMEMBERED_CALLS)
def _asks(arguments: str, tier: str) -> str:
    """A card is drawn many times, and its calls stay what they are."""
    return asks(json.loads(arguments), writes=tier != Tier.READ)


def _doing(turn: Row, steps: Sequence[StepLine], asked: Sequence[Row]) -> str:
    if turn["state"] == "waiting":
        return "getting ready"
    if turn["state"] == "suspended":
        names = ", ".join(approval_id(row["number"]) for row in asked)
        return f"approval of {names}" if names else "a worker, which is about to go on"
    running = [call for call in steps[-1].calls if call.state is CallState.RUNNING] if steps else []
    if running:
        return f"running {tool_words(running[0].tool) if len(running) == 1 else f'{len(running)} calls'}"
    return "asking for the answer once more" if turn["rung"] > Rung.GROUND else "thinking"


def _elapsed(turn: Row) -> float:
    until = turn["now"] if turn["settled_at"] is None else turn["settled_at"]
    return 0.0 if turn["began"] is None else max(0.0, float(until - turn["began"]))
