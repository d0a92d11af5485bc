"""One session on the real ledger, what comes in for it, and what its two workers have in hand."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

from core.gateway import Call, CallResult, CallStatus
from core.ledger import Claimed
from core.limits import Limits
from core.messages import Arrival, SessionId
from core.settle import Outcome
from storage.doorbell import LocalDoorbell
from storage.ledger.signs import ChannelPolicy
from storage.ledger.sql import SqlLedger
from storage.mailbox import Mailbox
from storage.sweeps import state_disagrees, wait_overdue
from tests.simulation.answers import decided_as_said
from tests.simulation.clock import SharedClock
from tests.simulation.files import Files
from tests.simulation.snapshot import Reader, Row, Snapshot
from tests.simulation.watcher import Watcher

LIMITS = Limits()
STOP_ROWS = frozenset({"stop_word", "native_stop", "stop_reaction"})
"""The policy rows by which a stop means whatever is older than it, not one card."""


@dataclass
class Job:
    """A turn in the hands of one worker: what it may do next follows from what is open."""

    claimed: Claimed
    worker: str
    step: int
    asked: bool = False
    asks: bool = False
    approved: set[int] = field(default_factory=set)
    calls: list[Call] = field(default_factory=list)
    results: dict[int, CallResult] = field(default_factory=dict)
    intended: set[int] = field(default_factory=set)
    outcome: Outcome | None = None

    def may(self) -> list[str]:
        """What a worker that does as it should can do now. While the step `asks`, its writes wait for people."""
        if self.outcome is not None:
            return ["settle"]
        if self.calls and self.asks:
            return ["suspend"] + ["record"] * bool(self.recordable())
        if self.calls:
            write = self.next_write()
            waits = write is not None and write.position in self.approved
            more = ["record"] * bool(self.recordable()) + ["intend"] * (write is not None) + ["put_back"] * waits
            return ["close", *more]
        return ["open", "answer", "drop", "climb", "fail"] + ["join"] * (not self.asked and self.step == 0)

    def recordable(self) -> list[Call]:
        """The calls that may have a result that nobody knows yet."""
        return [
            call for call in self.calls if call.position not in self.results and not (self.asks and may_begin(call))
        ]

    def next_write(self) -> Call | None:
        """The write that begins next: one after another, and none behind an outcome that is not known."""
        for call in filter(may_begin, self.calls):
            result = self.results.get(call.position)
            if result is None:
                return None if call.position in self.intended else call
            if result.status is CallStatus.UNKNOWN:
                return None
        return None


def may_begin(call: Call) -> bool:
    """Whether a call is a write that nothing has refused."""
    return call.writes and call.refusal is None


class World:
    """The database, its mailbox, and the jobs of two workers: in their hands, or given up but not forgotten."""

    def __init__(self, files: Files, loop: SharedClock) -> None:
        self.loop = loop
        self.jobs: dict[int, Job] = {}
        self.stale: list[Job] = []
        self.names = ["worker-0", "worker-1"]
        self.booked = 0
        self._files = files
        self._doorbell = LocalDoorbell()
        self._watcher = Watcher()
        self._numbers = itertools.count(1)
        self._stops: list[Arrival] = []
        self._early: dict[str, list[Arrival]] = {}
        self._stored: set[str] = set()

    async def open(self) -> None:
        self._files.fresh()
        self._files.clock = self.loop.database_now
        self._db = await self._files.own()
        self._reader = Reader(self._files.path)
        self._mailbox = Mailbox(self._db, self._doorbell, self.id, lambda _channel: ChannelPolicy())

    async def close(self) -> None:
        self._reader.close()
        await self._files.close()

    def id(self, kind: str) -> str:
        return f"{kind}{next(self._numbers)}"

    def snapshot(self) -> Snapshot:
        return self._reader.read()

    def look(self) -> None:
        """Every law holds for what is committed now."""
        broken = self._watcher.look(self.snapshot())
        assert not broken, "\n".join(broken)

    def ledger(self, name: str) -> SqlLedger:
        db, bell = self._db, self._doorbell
        return SqlLedger(db, bell, LIMITS, worker=name, ids=self.id, price=lambda _model, _usage: 0.01)

    def session(self) -> SessionId | None:
        found = self.snapshot()["sessions"]
        return SessionId(found[0]["id"]) if found else None

    # -- what comes in

    async def deliver(self, arrival: Arrival) -> None:
        """Slack hands over an event, perhaps not for the first time. A stop that is heard is never lost."""
        before = self.snapshot()
        arrived = await self._mailbox.arrive(arrival)
        now = self.snapshot()
        decided_as_said(arrival, before, now)
        if arrival.dedupe_key in self._stored:
            assert arrived.duplicate and now.tables == before.tables, "a duplicate did something"
            return
        if arrived.session is None:
            return
        self._stored.add(arrival.dedupe_key)
        message = now.one("messages", id=arrived.message)
        assert message is not None and message["disposition"] == arrived.disposition
        if arrived.row not in STOP_ROWS:
            for sign in self._early.pop(arrival.ts, []):
                self._heard(sign, now)
            self._tombstones(arrival, message)
        elif arrived.session == self.session():
            self._heard(arrival, now)
        else:
            self._early.setdefault(str(arrival.target_ts), []).append(arrival)

    def _heard(self, stop: Arrival, now: Snapshot) -> None:
        """A stop counts once its thread is known: it reaches every turn that knows nothing newer."""
        self._stops.append(stop)
        for turn in now["turns"]:
            if turn["state"] != "settled" and turn["newest_ts"] < stop.ts:
                assert now.stops_in_scope(turn), f"the stop {stop.ts} is lost: {turn['id']} goes on"

    def _tombstones(self, arrival: Arrival, message: Row) -> None:
        """A stop that was heard before, and said later, also stops what comes in only now."""
        if message["disposition"] in ("start", "steer") and message["state"] == "waiting":
            newer = [stop.ts for stop in self._stops if stop.ts > arrival.ts]
            assert not newer, f"{message['text']} of {arrival.ts} starts in spite of a stop at {newer}"

    async def sweep(self) -> None:
        """The reconciler looks for waits that nobody took up, and for states that disagree: there are none."""
        assert not await state_disagrees(self._db, self.id), "a session's state is not that of its turns"
        await wait_overdue(self._db, self.id)

    async def deliver_the_rest(self, wire: Sequence[Arrival]) -> None:
        """What Slack still owes."""
        for arrival in wire:
            if arrival.dedupe_key not in self._stored:
                await self.deliver(arrival)
