"""`core.ledger.Ledger` and `core.worker.Rounds` over the database: each method is one transaction.

Writes are shielded: a worker that is cancelled in the middle of one waits for its end, so that nothing is half known.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

from sqlalchemy import Float, String, bindparam, case, exists, literal, or_, select, union_all, update
from sqlalchemy.ext.asyncio import AsyncConnection

from core.approvals import Request
from core.control import Mail
from core.gateway import Call, CallResult
from core.history import EntryKind
from core.ledger import Claimed, Closed, Frozen, Lease, Settled, Spent, Stitch, Surroundings
from core.limits import Limits
from core.messages import Epoch, SessionId, TurnId
from core.ports import Doorbell
from core.remediation import EmptyCause, Rung
from core.repair import Known
from core.settle import Outcome
from core.turn import Stamp
from core.worker import Due
from storage import leases
from storage.database import Database, now, run
from storage.dialect import insert_ignore
from storage.ledger import claim as claiming
from storage.ledger import close as closing
from storage.ledger import mend as mending
from storage.ledger import open as opening
from storage.ledger import settle as settling
from storage.ledger import suspend as suspending
from storage.ledger.common import STEER_WAITS, Ids, Price, mail_of, rows, strongest
from storage.ledger.requests import WAITS_STILL
from storage.partial import not_settled
from storage.tables import messages, sessions, stops, switches, turns

T = TypeVar("T")

_STOPPED = exists().where(
    stops.c.session_id == turns.c.session_id,
    or_(stops.c.slack_ts > turns.c.newest_ts, stops.c.turn_id == turns.c.id),
)
_STEERED = exists().where(messages.c.session_id == turns.c.session_id, STEER_WAITS)
DUE = (
    select(
        turns.c.session_id,
        (turns.c.start_after - now()).label("in_s"),
        case((_STOPPED, 1), else_=0).label("stopped"),
    )
    .join(sessions, sessions.c.id == turns.c.session_id)
    .where(
        not_settled(turns),
        turns.c.session_id.not_in(bindparam("besides", expanding=True)),
        or_(turns.c.state != "suspended", _STOPPED, _STEERED, ~WAITS_STILL),
        or_(
            sessions.c.lease_owner.is_(None),
            sessions.c.lease_owner == bindparam("worker", type_=String),
            sessions.c.lease_until <= now(),
        ),
        or_(turns.c.start_after <= now() + bindparam("within_s", type_=Float), _STOPPED),
    )
    .order_by(turns.c.created_at)
)
_MINE = turns.c.id.in_(bindparam("turns", expanding=True))
MAIL_OF_ALL = union_all(
    select(
        turns.c.session_id,
        literal("stop").label("kind"),
        stops.c.level,
        stops.c.author,
        stops.c.slack_ts,
        stops.c.source,
    )
    .join(stops, stops.c.session_id == turns.c.session_id)
    .where(_MINE, or_(stops.c.slack_ts > turns.c.newest_ts, stops.c.turn_id == turns.c.id)),
    select(
        turns.c.session_id,
        literal("steer"),
        literal(""),
        messages.c.author,
        messages.c.slack_ts,
        messages.c.source,
    )
    .join(messages, messages.c.session_id == turns.c.session_id)
    .where(
        _MINE,
        STEER_WAITS,
    ),
)
PAUSED = select(switches.c.value).where(switches.c.name == "paused")


class SqlLedger:
    """The ledger of one worker. `changed` hears of settles: what only moves a card on is found in time anyway."""

    def __init__(
        self,
        db: Database,
        doorbell: Doorbell,
        limits: Limits,
        *,
        worker: str,
        ids: Ids,
        price: Price,
        changed: Callable[[], None] = lambda: None,
        closed: Callable[[Claimed, int, Sequence[CallResult]], None] = lambda _claimed, _step, _results: None,
        stitched: Callable[[Claimed, Stitch], None] = lambda _claimed, _stitch: None,
    ) -> None:
        self._db = db
        self._doorbell = doorbell
        self._limits = limits
        self._worker = worker
        self._ids = ids
        self._price = price
        self._changed = changed
        self._closed = closed
        self._stitched = stitched

    async def _write(self, work: Callable[[AsyncConnection], Awaitable[T]]) -> T:
        return await asyncio.shield(asyncio.ensure_future(run(self._db, work)))

    async def claim(
        self,
        session: SessionId,
        worker: str,
        frozen: Frozen,
        *,
        surroundings: Surroundings | None = None,
        holding: Lease | None = None,
    ) -> Claimed | None:
        return await self._write(
            lambda tx: claiming.claim(
                tx,
                session,
                worker,
                frozen,
                lease_s=self._limits.lease_s,
                surroundings=surroundings,
                holding=holding,
            )
        )

    async def open(
        self,
        claimed: Claimed,
        step: int,
        content: Sequence[Mapping[str, Any]],
        calls: Sequence[Call],
        spent: Sequence[Spent],
    ) -> None:
        await self._write(lambda tx: opening.open_step(tx, claimed, step, content, calls, spent, self._price))

    async def intend(self, claimed: Claimed, step: int, call: Call) -> None:
        await self._write(lambda tx: opening.intend(tx, claimed, step, call))

    async def record(self, claimed: Claimed, step: int, results: Sequence[CallResult]) -> None:
        await self._write(lambda tx: closing.record(tx, claimed, step, results))

    async def suspend(
        self,
        claimed: Claimed,
        step: int,
        results: Sequence[CallResult],
        requests: Sequence[Request],
        valid_s: float,
    ) -> Mail | None:
        mail = await self._write(
            lambda tx: suspending.suspend(tx, self._ids, claimed, step, results, requests, valid_s)
        )
        if mail is None:
            self._changed()
        return mail

    async def close(
        self,
        claimed: Claimed,
        step: int,
        results: Sequence[CallResult],
        probe: Callable[[int], Stamp | None],
    ) -> Closed:
        closed = await self._write(lambda tx: closing.close(tx, claimed, step, results, probe))
        self._closed(claimed, step, results)
        return closed

    async def drop(self, claimed: Claimed, stamp: Stamp, spent: Sequence[Spent]) -> Closed:
        return await self._write(lambda tx: closing.drop(tx, claimed, stamp, spent, self._price))

    async def climb(
        self, claimed: Claimed, rung: Rung, cause: EmptyCause, words: str | None, spent: Sequence[Spent]
    ) -> Mail:
        return await self._write(lambda tx: closing.climb(tx, claimed, rung, cause, words, spent, self._price))

    async def settle(self, claimed: Claimed, outcome: Outcome, spent: Sequence[Spent]) -> Settled:
        settled = await self._write(
            lambda tx: settling.settle(
                tx, self._ids, claimed, outcome, spent, self._price, quiet_s=self._limits.quiet_s
            )
        )
        self._changed()
        if settled.next_turn is not None and not settled.goes_on:
            await self._doorbell.ring(claimed.lease.session)
        return settled

    async def stitched(self, claimed: Claimed, stitches: Sequence[Stitch]) -> None:
        await self._write(lambda tx: mending.stitched(tx, claimed, stitches, self._db.dialect))
        for stitch in stitches:
            self._stitched(claimed, stitch)

    async def go_on_from(
        self,
        claimed: Claimed,
        kind: EntryKind,
        messages: Sequence[Mapping[str, Any]],
        stitches: Sequence[Stitch] = (),
    ) -> None:
        await self._write(lambda tx: mending.go_on_from(tx, claimed, kind, messages, stitches, self._db.dialect))
        for stitch in stitches:
            self._stitched(claimed, stitch)

    async def known(self, session: SessionId) -> Mapping[str, Known]:
        async with self._db.reading() as tx:
            return await mending.known(tx, session)

    async def history(self, session: SessionId) -> list[dict[str, Any]]:
        async with self._db.reading() as tx:
            return await claiming.history(tx, session)

    async def mail(self, session: SessionId, turn: TurnId) -> Mail:
        async with self._db.reading() as tx:
            return await mail_of(tx, session, turn)

    async def release(self, lease: Lease) -> None:
        await leases.release_session(self._db, lease.session, lease.worker, lease.epoch)
        await self._doorbell.ring(lease.session)

    # -- rounds: one query for all sessions of the worker

    async def due(self, within_s: float, besides: Collection[SessionId]) -> Sequence[Due]:
        async with self._db.reading() as tx:
            found = await rows(tx, DUE, worker=self._worker, within_s=within_s, besides=list(besides))
        return [
            Due(
                SessionId(row["session_id"]),
                0.0 if row["stopped"] else max(0.0, row["in_s"]),
                bool(row["stopped"]),
            )
            for row in found
        ]

    async def mail_of(self, wanted: Mapping[SessionId, TurnId]) -> Mapping[SessionId, Mail]:
        async with self._db.reading() as tx:
            found = await rows(tx, MAIL_OF_ALL, turns=list(wanted.values()))
        mail: dict[SessionId, Mail] = {}
        for session in wanted:
            own = [row for row in found if row["session_id"] == session]
            heard = sorted((row for row in own if row["kind"] == "stop"), key=lambda row: str(row["slack_ts"]))
            mail[session] = Mail(strongest(heard), sum(1 for row in own if row["kind"] == "steer"))
        return mail

    async def renew(self, held: Mapping[SessionId, Epoch]) -> Collection[SessionId]:
        return await leases.renew(self._db, self._worker, held, self._limits.lease_s)

    async def paused(self) -> bool:
        async with self._db.reading() as tx:
            found = await rows(tx, PAUSED)
        return bool(found and found[0]["value"] == "yes")

    async def pause(self, paused: bool, by: str) -> None:
        """Let no new turn start (running ones go on), or let them start again."""
        value = "yes" if paused else "no"

        async def work(tx: AsyncConnection) -> None:
            await tx.execute(
                insert_ignore(switches, self._db.dialect).values(
                    name="paused", value=value, changed_by=by, changed_at=now()
                )
            )
            await tx.execute(
                update(switches)
                .where(switches.c.name == "paused")
                .values(value=value, changed_by=by, changed_at=now())
            )

        await self._write(work)
