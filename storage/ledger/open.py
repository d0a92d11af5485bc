"""*open*: the model's answer and its calls are committed, and the calls start.

Refused with `LostLease` for an old epoch and with `Stopped` when a stop in scope is committed: then nothing of the
answer is in the history. A write has a second gate of its own, `intend`, right before it runs: there a steer or an
approval that ran out refuses it too. Its arguments are kept as they are, because it may run later, from this row.
Those of a read are kept for people only, without secrets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import bindparam, insert, update
from sqlalchemy.ext.asyncio import AsyncConnection

from core.approvals import why_not_run
from core.cancel import SAYS, Cancel
from core.errors import Overtaken, Stopped
from core.gateway import Call, CallResult, CallStatus
from core.ledger import Claimed, Spent
from core.redaction import redact_values
from storage.database import now
from storage.ledger.common import Price, book, dump, fence, mail_of, stop_of
from storage.ledger.requests import approval_of
from storage.tables import calls, entries

NEW_CALL = insert(calls)
INTEND = update(calls).where(calls.c.id == bindparam("row")).values(status=CallStatus.INTENT.value, started_at=now())
NEW_ENTRY = insert(entries).values(created_at=now())


async def open_step(
    tx: AsyncConnection,
    claimed: Claimed,
    step: int,
    content: Sequence[Mapping[str, Any]],
    admitted: Sequence[Call],
    spent: Sequence[Spent],
    price: Price,
) -> None:
    """See `core.ledger.Ledger.open`."""
    fenced = await fence(tx, claimed.lease, entries=1)
    if await stop_of(tx, claimed.lease.session, claimed.turn) is not None:
        raise Stopped(f"a stop reaches {claimed.turn}")
    await add_entry(tx, claimed, fenced["next_seq"] - 1, "assistant", step, content)
    await tx.execute(
        NEW_CALL,
        [
            {
                "id": call_row_id(claimed, step, call.position),
                "session_id": claimed.lease.session,
                "turn_id": claimed.turn,
                "step": step,
                "position": call.position,
                "call_id": call.call_id,
                "tool": call.tool,
                "tier": call.tier,
                "status": (CallStatus.OPEN if call.refusal is None else CallStatus.REFUSED).value,
                "arguments": dump(call.arguments if call.writes else redact_values(call.arguments)),
                "input_summary": call.summary,
                "output": call.refusal,
                "started_at": fenced["now"],
            }
            for call in admitted
        ],
    )
    await book(tx, claimed.turn, spent, price)


async def intend(tx: AsyncConnection, claimed: Claimed, step: int, call: Call) -> None:
    """See `core.ledger.Ledger.intend`."""
    fenced = await fence(tx, claimed.lease)
    mail = await mail_of(tx, claimed.lease.session, claimed.turn)
    if mail.stop is not None:
        raise Stopped(f"a stop reaches {claimed.turn}")
    if mail.steers:
        raise Overtaken(SAYS[Cancel.STEER])
    row = call_row_id(claimed, step, call.position)
    approval = await approval_of(tx, row)
    why = why_not_run(approval, call.tool, call.arguments, fenced["now"]) if approval is not None else None
    if why is not None:
        raise Overtaken(why)
    await tx.execute(INTEND, {"row": row})


def call_row_id(claimed: Claimed, step: int, position: int) -> str:
    """The id of the audit row of one call."""
    return f"{claimed.turn}.{step}.{position}"


async def add_entry(
    tx: AsyncConnection,
    claimed: Claimed,
    seq: int,
    kind: str,
    step: int,
    body: Sequence[Mapping[str, Any]],
) -> str:
    """Append one entry to the history at the reserved place `seq`; returns its id."""
    entry = f"{claimed.turn}.{seq}"
    await tx.execute(
        NEW_ENTRY,
        {
            "id": entry,
            "session_id": claimed.lease.session,
            "turn_id": claimed.turn,
            "seq": seq,
            "kind": kind,
            "step": step,
            "body": dump(list(body)),
            "epoch": claimed.lease.epoch,
        },
    )
    return entry


def outcome_of(claimed: Claimed, step: int, result: CallResult, at: float) -> dict[str, Any]:
    """The audit row's end of one call, as parameters for `END_CALL`."""
    return {
        "row": call_row_id(claimed, step, result.call.position),
        "status": result.status.value,
        "output": result.text,
        "output_summary": result.summary,
        "evidence_id": result.kept.id if result.kept is not None else None,
        "links": dump(list(result.links)),
        "ended_at": at,
        "duration_ms": round(result.duration_s * 1000, 1),
    }
