"""What stands in for the world in the tests of the core: a model that says lines, a ledger on paper, calls and turns.

The ledger keeps the promises of `core.ledger.Ledger` for one turn of one session, and writes down in `wrote` what was
committed, in order; `tests/contracts/test_ledger_on_paper.py` asks it and the real one the same questions.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from core.approvals import Request
from core.cancel import SAYS, Cancel
from core.control import Mail, StopFact
from core.errors import LostLease, Overtaken, Stopped
from core.gateway import Call, CallResult, CallStatus
from core.history import EntryKind, append, result_block, user_block
from core.ledger import Claimed, Closed, Frozen, Lease, Settled, Spent, Stitch
from core.messages import ChannelId, Epoch, Level, SessionId, SlackTs, Source, TurnId, UserId
from core.ports import ModelAnswer, ModelRequest, StreamProgress, Tier, ToolOutput
from core.remediation import EmptyCause, Rung
from core.repair import Known
from core.settle import Outcome, reason_of
from core.turn import Stamp
from tests.support.scene import FakeTool, answer, tool, unasked

__all__ = ["FakeTool", "answer", "tool", "unasked"]

SESSION = SessionId("s1")
STEP = StopFact(Level.STEP, UserId("U0ANN"), "1790000001.000000")
TASK = StopFact(Level.TASK, UserId("U0BEN"), "1790000002.000000")

Line = ModelAnswer | BaseException | Callable[[ModelRequest, StreamProgress], Awaitable[ModelAnswer]]


@dataclass
class Lines:
    """A model that says one line after another: an answer, an error, or what a function makes of the request."""

    lines: list[Line]
    requests: list[ModelRequest] = field(default_factory=list)
    sent_at: list[float] = field(default_factory=list)

    async def stream(self, request: ModelRequest, progress: StreamProgress) -> ModelAnswer:
        self.requests.append(request)
        self.sent_at.append(asyncio.get_running_loop().time())
        line = self.lines.pop(0)
        progress.started = True
        if isinstance(line, BaseException):
            raise line
        return line if isinstance(line, ModelAnswer) else await line(request, progress)


@dataclass
class PaperLedger:
    """One turn of one session, in memory. `box` is its mailbox; `lost` makes every write fail as an old epoch."""

    box: Mail = field(default_factory=Mail)
    lost: bool = False
    settled: Settled | None = None
    claims: list[Claimed | None] = field(default_factory=list)
    wrote: list[tuple[Any, ...]] = field(default_factory=list)
    messages: list[dict[str, Any]] = field(default_factory=list)
    spent: list[Spent] = field(default_factory=list)
    trouble: dict[str, BaseException] = field(default_factory=dict)
    records: dict[str, Known] = field(default_factory=dict)

    def words(self, verb: str) -> list[tuple[Any, ...]]:
        """What was written by one of the decisions."""
        return [row[1:] for row in self.wrote if row[0] == verb]

    def _write(self, verb: str, *what: Any) -> None:
        if self.lost:
            raise LostLease("an old epoch")
        if (error := self.trouble.pop(verb, None)) is not None:
            raise error
        self.wrote.append((verb, *what))

    def _unless_stopped(self) -> None:
        if self.box.stop is not None and not self.lost:
            raise Stopped("a stop in scope")

    async def claim(self, session: SessionId, worker: str, frozen: Frozen, **given: Any) -> Claimed | None:
        self._write("claim", given.get("holding"), given.get("surroundings"))
        return self.claims.pop(0) if self.claims else None

    async def open(
        self, claimed: Claimed, step: int, content: Sequence[Any], calls: Sequence[Call], spent: Sequence[Spent]
    ) -> None:
        self._unless_stopped()
        self._write("open", step, [call.call_id for call in calls])
        append(self.messages, EntryKind.ASSISTANT, content)
        self.spent += spent

    async def intend(self, claimed: Claimed, step: int, call: Call) -> None:
        self._unless_stopped()
        if self.box.steers and not self.lost:
            raise Overtaken(SAYS[Cancel.STEER])
        self._write("intend", call.call_id)

    async def record(self, claimed: Claimed, step: int, results: Sequence[CallResult]) -> None:
        self._write("record", [result.call.call_id for result in results])

    async def suspend(
        self,
        claimed: Claimed,
        step: int,
        results: Sequence[CallResult],
        requests: Sequence[Request],
        valid_s: float,
    ) -> Mail | None:
        if self.box.stop is not None or self.box.steers:
            return self.box
        ended = [result.status.value for result in results]
        self._write("suspend", step, ended, [request.call.call_id for request in requests], valid_s)
        return None

    async def close(
        self, claimed: Claimed, step: int, results: Sequence[CallResult], probe: Callable[[int], Stamp | None]
    ) -> Closed:
        unknown = any(result.status is CallStatus.UNKNOWN for result in results)
        stamp = None if unknown else Stamp.STOP if self.box.stop else probe(self.box.steers)
        self._write("close", step, [result.status.value for result in results], stamp)
        blocks = [result_block(one.call.call_id, one.said, is_error=one.is_error) for one in results]
        append(self.messages, EntryKind.RESULTS, blocks)
        return Closed(stamp, self.box.stop)

    async def drop(self, claimed: Claimed, stamp: Stamp, spent: Sequence[Spent]) -> Closed:
        found: Stamp | None = Stamp.STOP if self.box.stop else Stamp.STEER if self.box.steers else None
        written = found or (stamp if stamp not in (Stamp.STEER, Stamp.STOP) else None)
        self._write("drop", written)
        self.spent += spent
        return Closed(written, self.box.stop)

    async def climb(
        self, claimed: Claimed, rung: Rung, cause: EmptyCause, words: str | None, spent: Sequence[Spent]
    ) -> Mail:
        self._write("climb", rung, cause)
        append(self.messages, EntryKind.LADDER, [user_block(words)] if words else [])
        self.spent += spent
        return self.box

    async def settle(self, claimed: Claimed, outcome: Outcome, spent: Sequence[Spent]) -> Settled:
        stop = self.box.stop
        reason = reason_of(Stamp.STOP, stop.level) if stop else outcome.reason
        self._write("settle", reason)
        self.spent += spent
        settled = self.settled or Settled(reason, None)
        if not settled.goes_on:
            await self.release(claimed.lease)
        return settled

    async def stitched(self, claimed: Claimed, stitches: Sequence[Stitch]) -> None:
        self._write("stitched", [stitch.rule for stitch in stitches])

    async def go_on_from(
        self, claimed: Claimed, kind: EntryKind, messages: Sequence[Any], stitches: Sequence[Stitch] = ()
    ) -> None:
        self._write("go_on_from", kind, [stitch.rule for stitch in stitches])
        self.messages = [dict(message) for message in messages]

    async def known(self, session: SessionId) -> Mapping[str, Known]:
        return self.records

    async def history(self, session: SessionId) -> list[dict[str, Any]]:
        return list(self.messages)

    async def mail(self, session: SessionId, turn: TurnId) -> Mail:
        return self.box

    async def release(self, lease: Lease) -> None:
        self._write("release", lease.session)


_numbers = itertools.count(1)
TOOLS = [{"name": "look", "description": "Look.", "input_schema": {"type": "object"}}]


def call(name: str = "metrics", tier: Tier = Tier.READ, **changes: Any) -> Call:
    """One admitted call."""
    number = next(_numbers)
    made = {"position": number, "call_id": f"toolu_c{number}", "tool": name, "arguments": {}, "tier": tier.value}
    return Call(**(made | {"interruptible": tier is Tier.READ, "summary": ""} | changes))


def claimed(**changes: Any) -> Claimed:
    """A turn that was just claimed: somebody asked why."""
    made = Claimed(
        lease=Lease(SESSION, "worker-1", Epoch(1)),
        turn=TurnId("t1"),
        attempt=1,
        source=Source.MENTION,
        asked_by=UserId("U0ANN"),
        channel=ChannelId("C0INCIDENT"),
        thread_ts=SlackTs("1790000000.000100"),
        frozen=Frozen("claude-test", "You are a test.", TOOLS),
        messages=[{"role": "user", "content": [user_block("why?")]}],
    )
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def after(seconds: float, text: str = "done", *, error: BaseException | None = None) -> Callable[..., Any]:
    """The work of a tool that needs `seconds`, and then says `text` or raises `error`."""

    async def work(arguments: Mapping[str, Any]) -> ToolOutput:
        await asyncio.sleep(seconds)
        if error is not None:
            raise error
        return ToolOutput(text)

    return work


def stubborn(seconds: float, text: str = "done at last") -> Callable[..., Any]:
    """The work of a tool that needs `seconds` and ignores every cancellation until then."""

    async def work(arguments: Mapping[str, Any]) -> ToolOutput:
        until = asyncio.get_running_loop().time() + seconds
        while (left := until - asyncio.get_running_loop().time()) > 0:
            try:
                await asyncio.sleep(left)
            except asyncio.CancelledError:
                continue
        return ToolOutput(text)

    return work
