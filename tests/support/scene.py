"""One thread on a real database, with a model that says what a test tells it: the core and the storage together."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import select, text

from bot.watching import Watching
from core.agent_loop import Means
from core.approvals import ApprovalPolicy
from core.gateway import Gateway
from core.ledger import Frozen, Surroundings, Wanted
from core.limits import Limits
from core.marker import is_assent, marker_of, parse_decision
from core.messages import Action, Arrival, ChannelId, Level, Marker, Place, Rights, SlackTs, Source, UserId, Who
from core.ports import Model, ModelAnswer, ModelRequest, StreamProgress, Tool, ToolOutput, ToolSpec, Usage
from core.worker import Worker
from storage.database import Database
from storage.doorbell import LocalDoorbell
from storage.ledger.arrive import Arrived
from storage.ledger.signs import ChannelPolicy
from storage.ledger.sql import SqlLedger
from storage.mailbox import Mailbox
from storage.tables import metadata

BOT = "U0PILOT"
FAST = Limits(patience_s=0.05, quiet_s=0.0, quiet_max_s=0.0, poll_s=0.05, drain_s=3.0, drain_stream_margin_s=1.0)
EVERYTHING = Rights(ask=True, steer=True, stop=True, approve=True)

Say = Callable[[ModelRequest], Awaitable[ModelAnswer]]


def answer(words: str = "", *calls: tuple[str, Mapping[str, Any]], stop_reason: str = "") -> ModelAnswer:
    """What the model returns: text, and calls as (tool, input)."""
    content: list[dict[str, Any]] = [{"type": "text", "text": words}] if words else []
    content += [
        {"type": "tool_use", "id": f"toolu_{next(_ids)}", "name": name, "input": dict(given)} for name, given in calls
    ]
    reason = stop_reason or ("tool_use" if calls else "end_turn")
    return ModelAnswer(content, reason, Usage(10, 5), "claude-test")


_ids = itertools.count(1)


@dataclass
class SayingModel:
    """Says `lines` one after another; a line is an answer, an error to raise, or a function of the request."""

    lines: list[ModelAnswer | Exception | Say] = field(default_factory=list)
    requests: list[ModelRequest] = field(default_factory=list)

    async def stream(self, request: ModelRequest, progress: StreamProgress) -> ModelAnswer:
        self.requests.append(request)
        progress.started = True
        line = self.lines.pop(0)
        if isinstance(line, Exception):
            raise line
        return line if isinstance(line, ModelAnswer) else await line(request)


@dataclass
class FakeTool:
    """A tool that does `work` and counts how often it began."""

    spec: ToolSpec
    work: Callable[[Mapping[str, Any]], Awaitable[ToolOutput]]
    began: int = 0

    async def run(self, arguments: Mapping[str, Any]) -> ToolOutput:
        self.began += 1
        return await self.work(arguments)

    async def health(self) -> str | None:
        return None


@dataclass
class KeepingTool(FakeTool):
    """A tool that holds something for each turn. `held` are the turns in the order of their first call, `told` says
    what became of each (`closed`), and `before_closing` is awaited by a close."""

    held: list[object] = field(default_factory=list)
    told: list[tuple[Any, ...]] = field(default_factory=list)
    before_closing: Callable[[], Awaitable[object]] | None = None

    def for_turn(self, turn: object) -> KeptTool:
        return KeptTool(self, turn)


@dataclass
class KeptTool:
    """`KeepingTool` in one turn."""

    tool: KeepingTool
    turn: object

    @property
    def spec(self) -> ToolSpec:
        return self.tool.spec

    async def run(self, arguments: Mapping[str, Any]) -> ToolOutput:
        if self.turn not in self.tool.held:
            self.tool.held.append(self.turn)
        return await self.tool.run(arguments)

    async def health(self) -> str | None:
        return None

    async def close(self) -> None:
        if self.turn in self.tool.held:
            if self.tool.before_closing is not None:
                await self.tool.before_closing()
            self.tool.told.append(("closed", self.tool.held.index(self.turn)))


@dataclass
class Scene:
    """A thread, its people and its bot."""

    db: Database
    mailbox: Mailbox
    ledger: SqlLedger
    worker: Worker
    model: SayingModel
    limits: Limits
    faults: list[BaseException]
    clock: float = 1_790_000_000.0

    def ts(self, ahead_s: float = 1.0) -> SlackTs:
        self.clock += ahead_s
        return SlackTs(f"{self.clock:.6f}")

    async def say(
        self,
        words: str,
        *,
        who: str = "U0ENGINEER",
        thread: str = "1790000000.000100",
        ts: str | None = None,
        rights: Rights = EVERYTHING,
        seen: Who = Who.MEMBER,
        source: Source | None = None,
        key: str | None = None,
    ) -> Arrived:
        """One message in the thread, as the listeners would hand it over."""
        at = SlackTs(ts) if ts else self.ts()
        mentioned = f"<@{BOT}>" in words
        marker, rest, stop = marker_of(words, bot_user=BOT, mentioned=mentioned)
        own = words.replace(f"<@{BOT}>", "").strip()
        ruling = parse_decision(own)
        return await self.mailbox.arrive(
            Arrival(
                source=source or (Source.MENTION if mentioned else Source.REPLY),
                marker=marker,
                who=seen,
                rights=rights,
                author=UserId(who),
                team="T0HOME",
                channel=ChannelId("C0INCIDENT"),
                thread_ts=SlackTs(thread),
                ts=at,
                dedupe_key=key or f"msg:{at}:{who}",
                text=rest,
                mentioned=mentioned,
                bare=stop is not None and stop.bare,
                rest=stop.rest if stop else "",
                level=stop.level if stop else None,
                only_in_session=not mentioned,
                place=Place.THREAD,
                assent=is_assent(own),
                approval_id=ruling.approval_id if ruling else None,
                reason=ruling.reason if ruling else "",
            )
        )

    async def press(
        self, action: Action, approval: str, *, who: str = "U0ONCALL", rights: Rights = EVERYTHING
    ) -> Arrived:
        """Approve or Deny on the post of a request."""
        at = self.ts()
        return await self.mailbox.arrive(
            Arrival(
                source=Source.BUTTON,
                marker=Marker.APPROVE if action is Action.APPROVE else Marker.DENY,
                who=Who.MEMBER,
                rights=rights,
                author=UserId(who),
                team="T0HOME",
                channel=ChannelId("C0INCIDENT"),
                thread_ts=SlackTs("1790000000.000100"),
                ts=at,
                dedupe_key=f"act:{at}:{who}",
                only_in_session=True,
                action=action,
                subject=approval,
                approval_id=approval,
            )
        )

    async def asked(self, count: int = 1) -> list[dict[str, Any]]:
        """Wait until `count` requests are open and nobody works; all requests."""

        async def waits() -> bool:
            found = [row for row in await self.rows("approvals") if row["state"] == "open"]
            return len(found) == count and self.worker.running == 0

        await self.until(waits)
        return await self.rows("approvals", "number")

    async def stop(self, level: Level = Level.STEP, *, who: str = "U0ONCALL", ts: str | None = None) -> Arrived:
        """The stop button's effect, without naming a turn."""
        at = SlackTs(ts) if ts else self.ts()
        return await self.mailbox.arrive(
            Arrival(
                source=Source.NATIVE_STOP,
                marker=Marker.CANCEL if level is Level.TASK else Marker.STOP_STEP,
                who=Who.PARTICIPANT,
                rights=EVERYTHING,
                author=UserId(who),
                team="T0HOME",
                channel=ChannelId("C0INCIDENT"),
                thread_ts=SlackTs("1790000000.000100"),
                ts=at,
                dedupe_key=f"native:{at}:{who}",
                level=level,
            )
        )

    async def rows(self, table: str, order: str = "1") -> list[dict[str, Any]]:
        """All rows of a table."""
        async with self.db.reading() as tx:
            found = await tx.execute(select(metadata.tables[table]).order_by(text(order)))
            return [dict(row) for row in found.mappings()]

    async def reasons(self) -> list[str]:
        """Why turns ended, in order."""
        return [row["reason"] for row in await self.rows("settles", "created_at")]

    async def until(self, condition: Callable[[], Awaitable[bool]], timeout_s: float = 10.0) -> None:
        """Wait until it is so."""
        async with asyncio.timeout(timeout_s):
            while not await condition():  # noqa: ASYNC110 - a row, not an event
                await asyncio.sleep(0.005)

    async def settled(self, count: int = 1) -> list[str]:
        """Wait until `count` turns have settled and nothing runs; their reasons."""

        async def enough() -> bool:
            open_turns = [row for row in await self.rows("turns") if row["state"] != "settled"]
            return len(await self.reasons()) >= count and not open_turns and self.worker.running == 0

        await self.until(enough)
        return await self.reasons()


class NoReader:
    """Reads nothing: these threads begin with the question."""

    async def read(self, wanted: Wanted) -> Surroundings:
        return Surroundings()


def tool(
    name: str,
    work: Callable[[Mapping[str, Any]], Awaitable[ToolOutput]] | None = None,
    **spec: Any,
) -> FakeTool:
    """A tool; without `work` it answers at once."""

    async def at_once(arguments: Mapping[str, Any]) -> ToolOutput:
        return ToolOutput(f"{name} says {dict(arguments)}")

    schema = {"type": "object", "additionalProperties": True}
    return FakeTool(ToolSpec(name, f"the {name}", schema, **spec), work or at_once)


def keeping(name: str, **spec: Any) -> KeepingTool:
    """A tool that holds something for each turn, and answers at once."""
    made = tool(name, **spec)
    return KeepingTool(made.spec, made.work)


def unasked(tools: Sequence[Tool]) -> Callable[[ChannelId], ApprovalPolicy]:
    """A configuration that approves all of `tools`: their writes run without asking anybody."""
    return lambda _channel: ApprovalPolicy(preapproved=frozenset(one.spec.name for one in tools))


@asynccontextmanager
async def scene(
    db: Database,
    lines: Sequence[ModelAnswer | Exception | Say],
    tools: Sequence[Tool] = (),
    *,
    limits: Limits = FAST,
    model: Model | None = None,
    running: bool = True,
    fallback: str | None = None,
    name: str = "worker-1",
    approvals: Callable[[ChannelId], ApprovalPolicy] | None = None,
    watching: Watching | None = None,
) -> AsyncIterator[Scene]:
    """A scene whose worker runs (unless `running` is False)."""
    loop = asyncio.get_running_loop()
    numbers = itertools.count(1)
    doorbell = LocalDoorbell()
    saying = SayingModel(list(lines))

    def ids(kind: str) -> str:
        return f"{kind}-{name}-{next(numbers)}"

    policy = ChannelPolicy(quiet_s=limits.quiet_s, quiet_max_s=limits.quiet_max_s)
    mailbox = Mailbox(db, doorbell, ids, lambda _channel: policy)
    told: dict[str, Any] = {} if watching is None else {"closed": watching.closed, "stitched": watching.stitched}
    ledger = SqlLedger(db, doorbell, limits, worker=name, ids=ids, price=lambda _model, _usage: 0.001, **told)
    faults: list[BaseException] = []
    gateway = Gateway(tools, limits, loop.time)
    means = Means(
        model or saying, gateway, ledger, limits, loop.time, lambda: 0.0, fallback, approvals or unasked(tools)
    )
    worker = Worker(
        means,
        ledger,
        doorbell,
        lambda _session: Frozen("claude-test", "You are a test.", gateway.declaration()),
        NoReader(),
        name=name,
        slots=100,
        settled=watching.settled if watching is not None else lambda _claimed, _settled: None,
        fault=lambda _claimed, error: faults.append(error),
        trouble=faults.append,
    )
    made = Scene(db, mailbox, ledger, worker, saying, limits, faults)
    task = asyncio.ensure_future(worker.run()) if running else None
    try:
        yield made
    finally:
        await worker.drain()
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
