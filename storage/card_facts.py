"""What the card of a turn is drawn from: committed rows, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import exists, func, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from core.card import CallLine, CallState, CardFacts, StepLine
from core.card_lines import asks, tool_words
from core.gateway import CallStatus
from core.messages import TurnId, UserId
from core.ports import Tier
from core.remediation import Rung
from storage.database import now
from storage.ledger.common import Row, one, rows, strongest
from storage.tables import (
    attempts,
    calls,
    cards,
    costs,
    entries,
    messages,
    outbox,
    sessions,
    settles,
    stops,
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
            _gone.c.target_ts == messages.c.slack_ts,
        ),
    )
    .scalar_subquery()
)
"""How many messages people deleted after the turn had read them."""


async def card_facts(tx: AsyncConnection, turn_id: TurnId, *, max_steps: int) -> CardFacts | None:
    """The facts of one card, or None if there is no such turn."""
    turn = await one(
        tx,
        select(turns, sessions.c.model, cards.c.fallback, _DELETED.label("deleted"), now().label("now"))
        .join(sessions, sessions.c.id == turns.c.session_id)
        .join(cards, cards.c.turn_id == turns.c.id)
        .where(turns.c.id == turn_id),
    )
    if turn is None:
        return None
    settle = await one(tx, select(settles).where(settles.c.turn_id == turn_id))
    tried = await rows(tx, select(attempts).where(attempts.c.turn_id == turn_id).order_by(attempts.c.number))
    steps = _steps(
        await rows(
            tx,
            select(
                calls.c.step,
                calls.c.tool,
                calls.c.status,
                calls.c.tier,
                calls.c.arguments,
                calls.c.duration_ms,
            )
            .where(calls.c.turn_id == turn_id)
            .order_by(calls.c.step, calls.c.position),
        ),
        {} if settle else await _said(tx, turn_id),
    )
    cost = settle["cost_usd"] if settle else await _cost(tx, turn_id)
    stop = None if settle else await _stop(tx, turn)
    return CardFacts(
        turn_id=turn_id,
        asked_by=UserId(turn["asked_by"]),
        asked_text=turn["asked_text"],
        state=turn["state"],
        steps=steps,
        max_steps=max_steps,
        elapsed_s=_elapsed(turn, tried, settle),
        cost_usd=float(cost),
        model=turn["model"] or "",
        doing=_doing(turn, steps),
        stopping_by=stop.author if stop else None,
        stop_level=stop.level if stop else None,
        quiet=bool(turn["state"] == "waiting" and turn["start_after"] > turn["now"]),
        resumed=any(row["ended"] in ("drained", "crashed") for row in tried),
        rung=turn["rung"],
        reason=settle["reason"] if settle else None,
        detail=settle["detail"] if settle else None,
        ended_by=UserId(settle["ended_by"]) if settle and settle["ended_by"] else None,
        ended_step=settle["step"] if settle else 0,
        answer_posted=await _answer_posted(tx, turn_id) if settle else False,
        answer_fallback=turn["fallback"],
        known=settle["known"] if settle else "",
        deleted=turn["deleted"],
    )


def _steps(found: Sequence[Row], said: Mapping[int, str]) -> tuple[StepLine, ...]:
    numbers = sorted({row["step"] for row in found})
    return tuple(
        StepLine(number, tuple(_line(row) for row in found if row["step"] == number), said.get(number, ""))
        for number in numbers
    )


async def _said(tx: AsyncConnection, turn_id: TurnId) -> dict[int, str]:
    """What the model said beside the calls of its last step."""
    last = await rows(
        tx,
        select(entries.c.step, entries.c.body)
        .where(entries.c.turn_id == turn_id, entries.c.kind == "assistant")
        .order_by(entries.c.seq.desc())
        .limit(1),
    )
    return {row["step"]: _text_of(row["body"]) for row in last}


def _text_of(body: str) -> str:
    return " ".join(block["text"] for block in json.loads(body) if block.get("type") == "text")


def _line(row: Row) -> CallLine:
    took = row["duration_ms"]
    return CallLine(
        row["tool"],
        _asks(row["arguments"], row["tier"]),
        STATES[CallStatus(row["status"])],
        None if took is None else took / 1000,
        row["tier"] != Tier.READ,
    )


@lru_cache(REMEMBERED_CALLS)
def _asks(arguments: str, tier: str) -> str:
    """A card is drawn many times, and its calls stay what they are."""
    return asks(json.loads(arguments), writes=tier != Tier.READ)


def _doing(turn: Row, steps: Sequence[StepLine]) -> str:
    if turn["state"] == "waiting":
        return "getting ready"
    running = [call for call in steps[-1].calls if call.state is CallState.RUNNING] if steps else []
    if running:
        return f"running {tool_words(running[0].tool) if len(running) == 1 else f'{len(running)} calls'}"
    return "asking for the answer once more" if turn["rung"] > Rung.GROUND else "thinking"


def _elapsed(turn: Row, tried: Sequence[Row], settle: Row | None) -> float:
    until = settle["created_at"] if settle else turn["now"]
    return max(0.0, float(until - tried[0]["started_at"])) if tried else 0.0


async def _cost(tx: AsyncConnection, turn_id: TurnId) -> Any:
    row = await one(
        tx, select(func.coalesce(func.sum(costs.c.usd), 0.0).label("usd")).where(costs.c.turn_id == turn_id)
    )
    return row["usd"] if row else 0.0


async def _stop(tx: AsyncConnection, turn: Row) -> Any:
    found = await rows(
        tx,
        select(stops.c.level, stops.c.author, stops.c.slack_ts, stops.c.source)
        .where(
            stops.c.session_id == turn["session_id"],
            or_(stops.c.slack_ts > turn["newest_ts"], stops.c.turn_id == turn["id"]),
        )
        .order_by(stops.c.slack_ts),
    )
    return strongest(found)


async def _answer_posted(tx: AsyncConnection, turn_id: TurnId) -> bool:
    row = await one(
        tx,
        select(outbox.c.id).where(
            outbox.c.turn_id == turn_id,
            outbox.c.kind == "answer",
            outbox.c.part == 0,
            outbox.c.state == "sent",
        ),
    )
    return row is not None
