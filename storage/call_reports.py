"""One call of a turn, for people who check: what was asked, how it ended, and all that it brought."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import bindparam, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from core.errors import BadInput
from core.messages import TurnId
from core.redaction import redact_values
from storage.ledger.common import Row, one
from storage.tables import calls, evidence

COUNT = select(func.count().label("count")).where(calls.c.turn_id == bindparam("turn"))
CALL = (
    select(
        calls,
        evidence.c.kind.label("evidence_kind"),
        evidence.c.body.label("evidence"),
        evidence.c.chars.label("evidence_chars"),
        evidence.c.digest.label("evidence_digest"),
        evidence.c.url.label("evidence_url"),
        evidence.c.taken_at.label("evidence_taken_at"),
    )
    .select_from(calls.outerjoin(evidence, evidence.c.id == calls.c.evidence_id))
    .where(calls.c.turn_id == bindparam("turn"))
    .order_by(calls.c.step, calls.c.position)
    .offset(bindparam("before"))
    .limit(1)
)


async def call_story(tx: AsyncConnection, turn: TurnId, number: int) -> Row:
    """The call with this number (1 is the first of the turn), with its evidence. Raises BadInput."""
    found = await one(tx, CALL, turn=turn, before=number - 1)
    if found is None:
        counted = await one(tx, COUNT, turn=turn)
        known = counted["count"] if counted is not None else 0
        raise BadInput(f"Turn {turn} has {known} calls: give the number of one, as `turns show` counts them.")
    return found | {"arguments": shown_arguments(found["arguments"]), "links": json.loads(found["links"])}


def shown_arguments(stored: str) -> Any:
    """The arguments of a row as people may see them; what can't be read is shown as it is."""
    try:
        return redact_values(json.loads(stored))
    except (ValueError, RecursionError):
        return stored
