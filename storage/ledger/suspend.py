"""*suspend*: a turn waits for people, and no worker holds it.

What is known of the step is recorded, the requests are written with their posts, the attempt ends, and the session is
given back, all in one transaction: a restart loses nothing, and nobody thinks while a person does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import bindparam, insert, update
from sqlalchemy.ext.asyncio import AsyncConnection

from core.approvals import BY_CONFIGURATION, ApprovalState, Request, digest
from core.control import Mail
from core.gateway import CallResult
from core.ledger import Claimed
from core.turn import AttemptEnd, TurnMove, TurnState, move_turn
from storage.ledger.close import end_calls
from storage.ledger.common import Ids, end, fence, mail_of
from storage.ledger.open import call_row_id
from storage.ledger.outgoing import request_row
from storage.tables import approvals, outbox, sessions, suspensions, turns

NEW_SUSPENSION, NEW_APPROVAL, NEW_POST = insert(suspensions), insert(approvals), insert(outbox)
WAIT = update(turns).where(turns.c.id == bindparam("turn")).values(state="suspended")
GIVE_BACK = (
    update(sessions)
    .where(sessions.c.id == bindparam("session"))
    .values(state="suspended", lease_owner=None, lease_until=None)
)


async def suspend(
    tx: AsyncConnection,
    ids: Ids,
    claimed: Claimed,
    step: int,
    results: Sequence[CallResult],
    requests: Sequence[Request],
    valid_s: float,
) -> Mail | None:
    """See `core.ledger.Ledger.suspend`."""
    fenced = await fence(tx, claimed.lease)
    mail = await mail_of(tx, claimed.lease.session, claimed.turn)
    if mail.stop is not None or mail.steers:
        return mail
    at = float(fenced["now"])
    if results:
        await end_calls(tx, claimed, step, results, at)
    if requests:
        await _ask(tx, ids, claimed, step, requests, at, at + valid_s)
    await end(tx, claimed, AttemptEnd.SUSPENDED, None, at)
    move_turn(TurnState.RUNNING, TurnMove.SUSPEND)
    await tx.execute(WAIT, {"turn": claimed.turn})
    await tx.execute(GIVE_BACK, {"session": claimed.lease.session})
    return None


async def _ask(
    tx: AsyncConnection,
    ids: Ids,
    claimed: Claimed,
    step: int,
    requests: Sequence[Request],
    at: float,
    until: float,
) -> None:
    own = {"session_id": claimed.lease.session, "turn_id": claimed.turn, "created_at": at}
    suspension = ids("u")
    over = None if any(request.asks for request in requests) else at
    await tx.execute(NEW_SUSPENSION, {"id": suspension, "kind": "approval", "until": until, "ended_at": over, **own})
    for request in requests:
        row: dict[str, Any] = {
            "suspension_id": suspension,
            "call_row": call_row_id(claimed, step, request.call.position),
            "digest": digest(request.call.tool, request.call.arguments),
            "preview": request.preview,
            "state": ApprovalState.OPEN.value,
            "expires_at": until,
            **own,
        }
        if not request.asks:
            row |= {"state": ApprovalState.APPROVED.value, "decided_by": BY_CONFIGURATION, "ended_at": at}
        number = (await tx.execute(NEW_APPROVAL.returning(approvals.c.number), row)).scalar_one()
        if request.asks:
            await tx.execute(NEW_POST, request_row(claimed, number, at))
