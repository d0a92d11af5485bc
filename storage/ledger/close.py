"""*close*: the results of a batch are committed, or a dropped answer is; the stamp of a cut is written with it.

The balance falls to 0 exactly here, so this is the safe point: mailbox and stops are read under the lock, a stop in
scope wins, and otherwise the forces are asked in their order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlalchemy import String, bindparam, func, update
from sqlalchemy.ext.asyncio import AsyncConnection

from core.control import Mail
from core.gateway import CallResult, CallStatus
from core.history import result_block, user_block
from core.ledger import Claimed, Closed, Spent
from core.remediation import EmptyCause, Rung
from core.turn import Stamp, end_for
from storage.ledger import evidence, pictures
from storage.ledger.common import Price, book, end, fence, mail_of
from storage.ledger.open import add_entry, outcome_of
from storage.ledger.requests import outcomes
from storage.tables import calls, turns

END_CALL = (
    update(calls)
    .where(calls.c.id == bindparam("row"), calls.c.ended_at.is_(None))
    .values(
        status=bindparam("status"),
        output=bindparam("output"),
        output_summary=bindparam("output_summary"),
        evidence_id=func.coalesce(bindparam("evidence_id", type_=String), calls.c.evidence_id),
        links=bindparam("links"),
        ended_at=bindparam("ended_at"),
        duration_ms=bindparam("duration_ms"),
    )
)
"""A result that was recorded stays as it was."""

CLIMB = (
    update(turns)
    .where(turns.c.id == bindparam("turn"))
    .values(rung=bindparam("reached"), rung_cause=bindparam("why"))
)


async def end_calls(
    tx: AsyncConnection, claimed: Claimed, step: int, results: Sequence[CallResult], at: float
) -> None:
    """Write how calls ended, and what they brought."""
    await evidence.keep(tx, results)
    await tx.execute(END_CALL, [outcome_of(claimed, step, result, at) for result in results])
    await pictures.keep(tx, claimed, step, results, at)


async def record(tx: AsyncConnection, claimed: Claimed, step: int, results: Sequence[CallResult]) -> None:
    """See `core.ledger.Ledger.record`."""
    fenced = await fence(tx, claimed.lease)
    await end_calls(tx, claimed, step, results, fenced["now"])


async def close(
    tx: AsyncConnection,
    claimed: Claimed,
    step: int,
    results: Sequence[CallResult],
    probe: Callable[[int], Stamp | None],
) -> Closed:
    """See `core.ledger.Ledger.close`."""
    fenced = await fence(tx, claimed.lease, entries=1)
    blocks = [result_block(result.call.call_id, result.said, is_error=result.is_error) for result in results]
    await add_entry(tx, claimed, fenced["next_seq"] - 1, "results", step, blocks)
    await end_calls(tx, claimed, step, results, fenced["now"])
    await outcomes(tx, claimed, step, fenced["now"])
    mail = await mail_of(tx, claimed.lease.session, claimed.turn)
    if any(result.status is CallStatus.UNKNOWN for result in results):
        return Closed(None, mail.stop)
    stamp = Stamp.STOP if mail.stop is not None else probe(mail.steers)
    if stamp is not None:
        await end(tx, claimed, end_for(stamp), stamp, fenced["now"])
    return Closed(stamp, mail.stop)


async def drop(tx: AsyncConnection, claimed: Claimed, wanted: Stamp, spent: Sequence[Spent], price: Price) -> Closed:
    """See `core.ledger.Ledger.drop`."""
    fenced = await fence(tx, claimed.lease)
    await book(tx, claimed.turn, spent, price)
    mail = await mail_of(tx, claimed.lease.session, claimed.turn)
    stamp: Stamp | None = wanted
    if mail.stop is not None:
        stamp = Stamp.STOP
    elif wanted in (Stamp.STEER, Stamp.STOP):
        stamp = Stamp.STEER if mail.steers else None
    elif mail.steers:
        stamp = Stamp.STEER
    if stamp is not None:
        await end(tx, claimed, end_for(stamp), stamp, fenced["now"])
    return Closed(stamp, mail.stop)


async def climb(
    tx: AsyncConnection,
    claimed: Claimed,
    rung: Rung,
    cause: EmptyCause,
    words: str | None,
    spent: Sequence[Spent],
    price: Price,
) -> Mail:
    """See `core.ledger.Ledger.climb`."""
    fenced = await fence(tx, claimed.lease, entries=words is not None)
    if words is not None:
        seq = fenced["next_seq"] - 1
        await add_entry(tx, claimed, seq, "ladder", claimed.steps, [user_block(words)])
    await tx.execute(CLIMB, {"turn": claimed.turn, "reached": int(rung), "why": cause.value})
    await book(tx, claimed.turn, spent, price)
    return await mail_of(tx, claimed.lease.session, claimed.turn)
