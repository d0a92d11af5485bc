"""What keeps a history sendable: an entry from which it goes on, the stitches, and what the audit knows of calls.

The history itself stays as it is. An entry of the kinds `mended` and `condensed` holds the messages that were sent
instead of it, so every later request begins with the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import String, bindparam, select
from sqlalchemy.ext.asyncio import AsyncConnection

from core.gateway import CallStatus, as_read
from core.history import EntryKind
from core.ledger import Claimed, Stitch
from core.messages import SessionId
from core.ports import Tier
from core.repair import Fate, Known
from storage.database import now
from storage.dialect import insert_ignore
from storage.ledger.common import Row, fence, rows
from storage.ledger.open import add_entry
from storage.tables import calls, repairs

CALLS = (
    select(calls.c.call_id, calls.c.tool, calls.c.tier, calls.c.status, calls.c.output)
    .where(calls.c.session_id == bindparam("session", type_=String))
    .order_by(calls.c.turn_id, calls.c.step, calls.c.position)
)
WRITES = (Tier.WRITE.value, Tier.EXTERNAL.value)
WITHOUT_OUTPUT: Mapping[CallStatus, Fate] = {
    CallStatus.INTENT: Fate.INTERRUPTED,
    CallStatus.UNKNOWN: Fate.INTERRUPTED,
    CallStatus.INTERRUPTED: Fate.INTERRUPTED,
    CallStatus.CANCELLED: Fate.CANCELLED,
    CallStatus.DENIED: Fate.DECLINED,
    CallStatus.NOT_RUN: Fate.NOT_STARTED,
}


async def go_on_from(
    tx: AsyncConnection,
    claimed: Claimed,
    kind: EntryKind,
    messages: Sequence[Mapping[str, Any]],
    stitches: Sequence[Stitch],
    dialect: str,
) -> None:
    """See `core.ledger.Ledger.go_on_from`."""
    fenced = await fence(tx, claimed.lease, entries=1)
    await add_entry(tx, claimed, fenced["next_seq"] - 1, kind.value, claimed.steps, messages)
    await stitched(tx, claimed, stitches, dialect)


async def stitched(tx: AsyncConnection, claimed: Claimed, stitches: Sequence[Stitch], dialect: str) -> None:
    """See `core.ledger.Ledger.stitched`."""
    for stitch in stitches:
        await tx.execute(
            insert_ignore(repairs, dialect).values(
                session_id=claimed.lease.session,
                turn_id=claimed.turn,
                rule=stitch.rule,
                path=stitch.path[:200],
                what=stitch.what,
                created_at=now(),
            )
        )


async def known(tx: AsyncConnection, session: SessionId) -> Mapping[str, Known]:
    """What the audit rows of a session say about its calls, by the id of the call."""
    return {row["call_id"]: _known(row) for row in await rows(tx, CALLS, session=session)}


def _known(row: Row) -> Known:
    status, writes = CallStatus(row["status"]), row["tier"] in WRITES
    if status is CallStatus.OPEN:
        return Known(Fate.NOT_STARTED if writes else Fate.INTERRUPTED, writes)
    if row["output"] is not None and status is not CallStatus.INTENT:
        text = as_read(row["tool"], status, row["output"]) if row["output"].strip() else "(no output)"
        return Known(Fate.RESULT, writes, result=text, is_error=status is not CallStatus.OK)
    return Known(WITHOUT_OUTPUT.get(status, Fate.NOT_RECORDED), writes)
