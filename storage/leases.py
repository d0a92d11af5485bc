"""Who may act, and until when, by the database's clock.

A named lease is held by one owner at a time: the writer of a workspace, each sweep. A session's lease lives in its
row, next to the epoch that fences it: renewing asks for owner and epoch, never for the time. A lease that ran out
and that nobody took is still its owner's, because taking it raises the epoch.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import delete, or_, tuple_, update
from sqlalchemy.ext.asyncio import AsyncConnection

from core.messages import Epoch, SessionId
from storage.database import Database, now, run
from storage.dialect import upsert
from storage.tables import leases, sessions


async def take(db: Database, name: str, owner: str, seconds: float) -> bool:
    """Take the lease or extend it, to `seconds` from now. False when somebody else holds it."""
    insert = upsert(leases, db.dialect).values(name=name, owner=owner, until=now() + seconds)
    statement = insert.on_conflict_do_update(
        index_elements=[leases.c.name],
        set_={"owner": insert.excluded.owner, "until": insert.excluded.until},
        where=or_(leases.c.owner == insert.excluded.owner, leases.c.until <= now()),
    )

    async def work(tx: AsyncConnection) -> bool:
        return (await tx.execute(statement)).rowcount == 1

    return await run(db, work)


async def release(db: Database, name: str, owner: str) -> None:
    """Give the lease back, if it is still ours."""
    async with db.transaction() as tx:
        await tx.execute(delete(leases).where(leases.c.name == name, leases.c.owner == owner))


async def renew(db: Database, owner: str, sessions_held: Mapping[SessionId, Epoch], seconds: float) -> set[SessionId]:
    """Extend the leases of all these sessions to `seconds` from now; the ones that are still ours."""
    if not sessions_held:
        return set()
    statement = (
        update(sessions)
        .where(
            sessions.c.lease_owner == owner,
            tuple_(sessions.c.id, sessions.c.epoch).in_(list(sessions_held.items())),
        )
        .values(lease_until=now() + seconds)
        .returning(sessions.c.id)
    )

    async def work(tx: AsyncConnection) -> set[SessionId]:
        return {SessionId(session) for session in (await tx.execute(statement)).scalars()}

    return await run(db, work)


async def release_session(db: Database, session: SessionId, owner: str, epoch: Epoch) -> None:
    """Give the session back, so that another worker need not wait for the lease to run out."""
    mine = sessions.c.id == session, sessions.c.lease_owner == owner, sessions.c.epoch == epoch
    async with db.transaction() as tx:
        await tx.execute(update(sessions).where(*mine).values(lease_owner=None, lease_until=None))
