"""Pictures of tools: kept and made due for the thread in the transaction that commits the result of their call.

A result can be committed twice, soon after it was there and with its batch: its pictures are kept once. What comes
after a stop is not kept: nobody wants to look at it any more.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import bindparam, select
from sqlalchemy.ext.asyncio import AsyncConnection

from core.gateway import CallResult
from core.ledger import Claimed
from storage.dialect import insert_ignore
from storage.ledger.common import one, stop_of
from storage.ledger.open import call_row_id
from storage.ledger.outgoing import picture_row
from storage.tables import outbox, pictures

PNG = select(pictures.c.png).where(pictures.c.id == bindparam("picture"))


async def keep(tx: AsyncConnection, claimed: Claimed, step: int, results: Sequence[CallResult], at: float) -> None:
    """Write the pictures of these results, each with the row that posts it."""
    drawn = [
        (call_row_id(claimed, step, result.call.position), number, picture)
        for result in results
        for number, picture in enumerate(result.pictures)
    ]
    if not drawn or await stop_of(tx, claimed.lease.session, claimed.turn) is not None:
        return
    for call_row, number, picture in drawn:
        kept = {
            "id": f"{call_row}.{number}",
            "session_id": claimed.lease.session,
            "turn_id": claimed.turn,
            "call_row": call_row,
            "title": picture.title,
            "alt": picture.alt,
            "png": picture.png,
            "created_at": at,
        }
        await tx.execute(insert_ignore(pictures, tx.dialect.name), kept)
        post = picture_row(claimed, f"{call_row}.{number}", picture.title, picture.alt, at)
        await tx.execute(insert_ignore(outbox, tx.dialect.name), post)


async def png_of(tx: AsyncConnection, picture: str) -> bytes:
    """The bytes of a picture. Raises LookupError when there is none of this id."""
    found = await one(tx, PNG, picture=picture)
    if found is None:
        raise LookupError(f"there is no picture {picture}")
    return bytes(found["png"])
