"""Whole turns on the real worker, through as many deaths as a test wants: one database file, virtual time."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from core.agent_loop import Means
from core.approvals import ApprovalPolicy
from core.gateway import Gateway
from core.history import flatten
from core.ledger import Frozen
from core.limits import Limits
from core.messages import Arrival, SlackTs
from core.ports import Tier, ToolSpec
from core.validator import problems
from core.worker import Worker
from storage.database import Database
from storage.doorbell import LocalDoorbell
from storage.ledger.signs import ChannelPolicy
from storage.ledger.sql import SqlLedger
from storage.mailbox import Mailbox
from tests.simulation.clock import SharedClock
from tests.simulation.crashes import Life, Log, MortalModel, MortalTool, Script
from tests.simulation.files import Files
from tests.simulation.laws_of_approvals import ASKS
from tests.simulation.people import Thread
from tests.simulation.snapshot import Reader, Snapshot
from tests.simulation.watcher import Watcher
from tests.support.scene import NoReader

LIMITS = Limits(lease_s=4.0, renew_s=2.0, lease_margin_s=1.0, poll_s=2.0, patience_s=0.5)
SCHEMA = {"type": "object", "properties": {"call": {"type": "string"}}, "required": ["call"]}
TAKES_S = {"look": 0.0, "read": 0.1, "slow": 5.0, "change": 0.3, ASKS: 0.3}
QUIET_S = 1.5
LATER_S = 1000.0
"""When a later process begins, by the clock of the database: the lease of the one before it has run out."""


@dataclass(frozen=True)
class Story:
    """What the model plays, what people do about it, and how the turns end when nobody dies.

    Without `rings` the bell of what comes in is heard by nobody, as when Redis is gone. An approval counts for
    `valid_s`.
    """

    script: Script
    people: Callable[[Stage], Awaitable[None]]
    ends: Sequence[str]
    faults: Mapping[str, Exception] = field(default_factory=dict)
    rings: bool = True
    valid_s: float = 10 * LATER_S


class Stage:
    """The world around the worker: it does not die."""

    def __init__(self, story: Story, files: Files, *, process: str = "") -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SharedClock)
        self.loop = loop
        self.story = story
        self._process = process
        files.clock = loop.database_now
        loop.pass_time(LATER_S if process else 0.0)
        self.log = Log(loop.database_now, files.journal)
        self.thread = Thread(SlackTs("1790000001.000001"))
        self.doorbell = LocalDoorbell()
        self.lives: list[Life] = []
        self.faults: list[BaseException] = []
        self._files = files
        self._reader = Reader(files.path)
        self._watcher = Watcher()
        self._numbers = itertools.count(1)

    def now(self) -> Snapshot:
        return self._reader.read()

    def id(self, kind: str) -> str:
        return f"{kind}{self._process}{next(self._numbers)}"

    async def say(self, arrival: Arrival) -> None:
        """A person's event, committed by the listeners, which live on."""
        await self._mailbox.arrive(arrival)

    async def until(self, condition: Callable[[Snapshot], object]) -> None:
        while not condition(self.now()):  # noqa: ASYNC110 - rows, in virtual time
            await asyncio.sleep(0.25)

    async def play(self, deaths: Sequence[int], *, by_signal: bool = False) -> Snapshot:
        """Run the story; the first worker dies at the first of `deaths` and so on, the last one lives."""
        bell = self.doorbell if self.story.rings else LocalDoorbell()
        policy = ChannelPolicy(quiet_s=0, quiet_max_s=0)
        self._mailbox = Mailbox(await self._files.own(), bell, self.id, lambda _channel: policy)
        people = asyncio.ensure_future(self.story.people(self))
        try:
            for dies_at in (*deaths, None):
                if not await self._live(Life(dies_at, by_signal=by_signal)):
                    break
            if people.done():
                people.result()
            return self.now()
        finally:
            await self._bury()

    async def _bury(self) -> None:
        """End what the dead left behind, and close their files."""
        for life in self.lives:
            life.buried = True
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        self._reader.close()
        await self._files.close()

    async def _live(self, life: Life) -> bool:
        """One life of a worker, until it dies (True) or there is nothing left to do."""
        self.lives.append(life)
        db = await self._files.of(life, len(self.lives))
        running = asyncio.ensure_future(self._worker(life, db).run())
        died = asyncio.ensure_future(life.died.wait())
        quiet = asyncio.ensure_future(self._quiet())
        await asyncio.wait({running, died, quiet}, return_when=asyncio.FIRST_COMPLETED)
        quiet.cancel()
        self.look()
        if running.done():
            running.result()
        if died.done():
            return True
        running.cancel()
        return False

    async def _quiet(self) -> None:
        """Every turn has settled, and nobody has said anything for a while."""
        since = self.loop.time()
        while self.loop.time() < since + QUIET_S:
            await asyncio.sleep(0.5)
            now = self.now()
            if not now["turns"] or any(turn["state"] != "settled" for turn in now["turns"]):
                since = self.loop.time()
            assert self.loop.time() < LATER_S + 600, "a turn never ends"

    def _worker(self, life: Life, db: Database) -> Worker:
        name = f"worker-{self._process}{len(self.lives)}"
        tools = [self._tool(life, what) for what in TAKES_S]
        gateway = Gateway(tools, LIMITS, self.loop.time)
        ledger = SqlLedger(db, self.doorbell, LIMITS, worker=name, ids=self.id, price=lambda _model, _usage: 0.01)
        model = MortalModel(life, self.log, self.story.script)
        policy = ApprovalPolicy(anybody=True, preapproved=frozenset({"change"}), valid_s=self.story.valid_s)
        means = Means(
            model, gateway, ledger, LIMITS, self.loop.time, lambda: 0.0, "claude-other", lambda _channel: policy
        )
        return Worker(
            means,
            ledger,
            self.doorbell,
            lambda _session: Frozen("claude-test", "You are a test.", gateway.declaration()),
            NoReader(),
            name=name,
            slots=10,
            settled=lambda _claimed, _settled: None,
            fault=lambda _claimed, error: self.faults.append(error),
            trouble=self.faults.append,
        )

    def _tool(self, life: Life, name: str) -> MortalTool:
        tier = Tier.WRITE if name in ("change", ASKS) else Tier.READ
        spec = ToolSpec(name, f"the {name}", SCHEMA, tier=tier)
        return MortalTool(spec, life, self.log, TAKES_S[name], self.story.faults.get(name))

    # -- what must be true

    def look(self) -> None:
        """The laws hold for what is committed, and for what the world saw."""
        now = self.now()
        broken = [*self._watcher.look(now), *self._requests(), *self._after_stops(now)]
        broken += [f"{call} began {times} times" for call, times in self.log.began.items() if times > 1]
        assert not broken, "\n".join(broken)

    def _requests(self) -> list[str]:
        sent = [request for _, request in self.log.requests]
        broken = [
            str(found)
            for request in sent
            for found in problems({"messages": request.messages, "tools": request.tools})
        ]
        for before, after in itertools.pairwise(sent):
            earlier, later = flatten(before.messages), flatten(after.messages)
            if later[: len(earlier)] != earlier:
                broken.append(f"a request does not begin with the one before it: {earlier} ... {later}")
            if (before.tools, before.system) != (after.tools, after.system):
                broken.append("tools or system changed")
        return broken

    def _after_stops(self, now: Snapshot) -> list[str]:
        """What started after a stop that reaches its turn."""
        things = [*self.log.started, *((at, "a request") for at, _ in self.log.requests)]
        broken = []
        for at, what in things:
            tried = [row for row in now["attempts"] if row["started_at"] <= at]
            turn = now.one("turns", id=max(tried, key=lambda row: float(row["started_at"]))["turn_id"])
            assert turn is not None
            for stop in now.stops_in_scope(turn):
                if stop["arrived_at"] < at:
                    broken.append(f"{what} started {at - stop['arrived_at']:.6f} s after {stop['id']} was committed")
        return broken
