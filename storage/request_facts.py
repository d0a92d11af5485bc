"""What the post of a request is drawn from: committed rows, and nothing else."""

from __future__ import annotations

import json
from dataclasses import dataclass

from sqlalchemy import bindparam, exists, select
from sqlalchemy.ext.asyncio import AsyncConnection

from core.approvals import ApprovalState, approval_id
from core.gateway import CallStatus
from core.messages import UserId
from core.ports import Tier
from core.request import RequestFacts
from storage.card_facts import text_beside
from storage.ledger.common import one, rows
from storage.ledger.outgoing import request_keys
from storage.tables import approvals, calls, entries, outbox, turns

_ON_THE_WAY = exists().where(
    outbox.c.dedupe_key.in_(bindparam("posts", expanding=True)), outbox.c.state.in_(["waiting", "sending"])
)
ASKED = (
    select(
        approvals,
        calls.c.tool,
        calls.c.tier,
        calls.c.arguments,
        calls.c.step,
        calls.c.status,
        turns.c.asked_by,
        _ON_THE_WAY.label("on_the_way"),
    )
    .join(calls, calls.c.id == approvals.c.call_row)
    .join(turns, turns.c.id == approvals.c.turn_id)
    .where(approvals.c.number == bindparam("asked"))
)
SAID = select(entries.c.body).where(
    entries.c.turn_id == bindparam("turn"), entries.c.kind == "assistant", entries.c.step == bindparam("at_step")
)
LOOKED = (
    select(calls.c.tool)
    .where(calls.c.session_id == bindparam("session"), calls.c.status == CallStatus.OK.value, calls.c.tier == "read")
    .distinct()
    .order_by(calls.c.tool)
)


@dataclass(frozen=True, slots=True)
class RequestPost:
    """One request, and where its post is. `on_the_way`: it may still be posted."""

    facts: RequestFacts
    session: str
    message_ts: str | None
    on_the_way: bool


async def request_post(tx: AsyncConnection, number: int) -> RequestPost | None:
    """The facts of request `number`, or None if there is no such request."""
    row = await one(tx, ASKED, asked=number, posts=list(request_keys(number)))
    if row is None:
        return None
    said = await one(tx, SAID, turn=row["turn_id"], at_step=row["step"])
    looked = await rows(tx, LOOKED, session=row["session_id"])
    facts = RequestFacts(
        id=approval_id(row["number"]),
        state=ApprovalState(row["state"]),
        tool=row["tool"],
        tier=Tier(row["tier"]),
        arguments=json.loads(row["arguments"]),
        preview=row["preview"],
        asked_by=UserId(row["asked_by"]),
        expires_at=row["expires_at"],
        said=text_beside(said["body"]) if said is not None else "",
        looked_at=[found["tool"] for found in looked],
        decided_by=UserId(row["decided_by"]) if row["decided_by"] else None,
        reason=row["reason"],
        status=CallStatus(row["status"]),
    )
    return RequestPost(facts, row["session_id"], row["message_ts"], bool(row["on_the_way"]))
