"""Whole outputs and pages, kept beside the calls that brought them, in the transaction that ends the call."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy.ext.asyncio import AsyncConnection

from core.gateway import CallResult
from storage.database import now
from storage.dialect import insert_ignore
from storage.tables import evidence


async def keep(tx: AsyncConnection, results: Sequence[CallResult]) -> None:
    """Write what these results bring, before their rows refer to it."""
    found = {result.kept.id: result.kept for result in results if result.kept is not None}
    for kept in found.values():
        await tx.execute(
            insert_ignore(evidence, tx.dialect.name).values(created_at=now()),
            {
                "id": kept.id,
                "kind": kept.kind.value,
                "body": kept.body,
                "chars": kept.chars,
                "digest": kept.digest,
                "url": kept.url,
                "taken_at": kept.taken_at,
            },
        )
