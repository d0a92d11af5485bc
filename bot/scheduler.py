"""The sweeps on a timetable: APScheduler says when, a named lease in the database says who.

Whoever holds the lease of a sweep does it, so of many processes one looks; when that one dies, another takes over as
soon as the lease has run out. A find is counted once for as long as it is there, and logged as a warning: each is a
bug or a crash somewhere above. What a sweep frees or starts is rung for.

APScheduler cancels running jobs at its end and forgives a late one only a second by default. So the end waits for the
sweep that runs, late firings are always done, and several that were missed are one.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from datetime import UTC

import structlog
from apscheduler.events import EVENT_JOB_ERROR, JobExecutionEvent
from apscheduler.jobstores.memory import MemoryJobStore
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from sqlalchemy.exc import SQLAlchemyError

from core.ports import Doorbell
from core.reconcile import RULES, Find, Rule
from storage import leases
from storage.database import Database
from storage.ledger.common import Ids
from storage.sweeps import SWEEPS, Found

log = structlog.get_logger(__name__)

SWEEP_S = 60.0
STOP_S = 5.0
SHORTEST_LEASE_S = 30.0
NAMED = 5
"""How many of many finds the log names."""


class Sweeps:
    """The reconciler of one process, `owner`. `found(kind, count)` counts; `changed()`: there may be more to send.

    `rules` are the timetable.
    """

    def __init__(
        self,
        db: Database,
        doorbell: Doorbell,
        ids: Ids,
        *,
        owner: str,
        found: Callable[[str, int], None],
        changed: Callable[[], None],
        rules: Mapping[Find, Rule] = RULES,
    ) -> None:
        self._db = db
        self._doorbell = doorbell
        self._ids = ids
        self._owner = owner
        self._found = found
        self._changed = changed
        self._rules = rules
        self._known: dict[Find, frozenset[str]] = {}
        self._turn = asyncio.Lock()
        self._scheduler = AsyncIOScheduler(
            jobstores={"default": MemoryJobStore()},
            job_defaults={"misfire_grace_time": None, "coalesce": True, "max_instances": 1},
            timezone=UTC,
        )
        self._scheduler.add_listener(_failed, EVENT_JOB_ERROR)

    def start(self) -> None:
        """Sweep from now on, each on its own timetable."""
        for find, rule in self._rules.items():
            self._scheduler.add_job(self._sweep, "interval", [find], seconds=rule.every_s, id=find.value)
        self._scheduler.start()

    async def stop(self) -> None:
        """Start no further sweep, let the running one end, and give the leases back."""
        if self._scheduler.running:
            self._scheduler.pause()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STOP_S), self._turn:
                    pass
            self._scheduler.shutdown(wait=False)
            await asyncio.sleep(0)
        for find in self._known:
            await leases.release(self._db, _lease(find), self._owner)
        self._known.clear()

    async def once(self) -> dict[str, int]:
        """Every sweep once, in order: what each found that was new. Sweeps that another process holds are left out.

        A sweep that fails is logged and must not keep the bot from starting: the timetable tries it again.
        """
        counts: dict[str, int] = {}
        for find in SWEEPS:
            try:
                count = await self._sweep(find)
            except (SQLAlchemyError, OSError) as error:
                log.error("sweep_failed", sweep=find.value, error=repr(error))
                continue
            if count is not None:
                counts[find.value] = count
        return counts

    async def _sweep(self, find: Find) -> int | None:
        """One sweep if it is ours to do; how much of what it found was not known before."""
        async with self._turn:
            lease_s = max(SHORTEST_LEASE_S, 3 * self._rules[find].every_s)
            if not await leases.take(self._db, _lease(find), self._owner, lease_s):
                self._known.pop(find, None)
                return None
            known = self._known.setdefault(find, frozenset())
            async with asyncio.timeout(SWEEP_S):
                found = await SWEEPS[find](self._db, self._ids)
            self._known[find] = frozenset(one.key for one in found if not one.put_right)
        new = sorted(one.key for one in found if one.key not in known)
        self._tell(find, new)
        await self._ring(found)
        return len(new)

    def _tell(self, find: Find, new: list[str]) -> None:
        if new:
            self._found(find.value, len(new))
            log.warning("sweep_found", find=find.value, count=len(new), of=new[:NAMED], means=self._rules[find].means)

    async def _ring(self, found: list[Found]) -> None:
        if found:
            self._changed()
        for session in {one.session for one in found if one.session is not None}:
            await self._doorbell.ring(session)


def _lease(find: Find) -> str:
    return f"sweep:{find.value}"


def _failed(event: JobExecutionEvent) -> None:
    log.error("sweep_failed", sweep=event.job_id, error=repr(event.exception))
