"""A ledger with its mailbox, and the few sentences that a test needs to fill it: say, claim, step, answer.

Everything is written by the transactions that the product uses; ids and timestamps count up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from core.evidence import kept_of
from core.gateway import Call, CallResult, CallStatus
from core.ledger import Claimed, Frozen, Spent, Surroundings
from core.limits import Limits
from core.messages import Arrival, ChannelId, Marker, Rights, SessionId, SlackTs, Source, TurnId, UserId, Who
from core.ports import Evidence, ToolOutput, Usage
from core.settle import Outcome, Reason
from core.turn import Stamp
from storage.database import Database
from storage.doorbell import LocalDoorbell
from storage.ledger.arrive import Arrived
from storage.ledger.signs import ChannelPolicy
from storage.ledger.sql import SqlLedger
from storage.mailbox import Mailbox

FROZEN = Frozen("claude-sonnet-5-5", "system", [])
ALL = Rights(ask=True, steer=True, stop=True)
ROOT = "1790000000.000100"


ALL_FINE = ToolOutput("all fine")


@dataclass
class House:
    """A ledger and its mailbox, with ids and timestamps that count up."""

    db: Database
    numbers: Callable[[], int] = field(default_factory=lambda: count(1).__next__)

    def __post_init__(self) -> None:
        bell = LocalDoorbell()
        self.mailbox = Mailbox(self.db, bell, self.new_id, lambda _channel: ChannelPolicy())
        price = lambda _model, usage: usage.output_tokens / 1000  # noqa: E731
        self.ledger = SqlLedger(self.db, bell, Limits(quiet_s=0), worker="w1", ids=self.new_id, price=price)

    def new_id(self, kind: str) -> str:
        return f"{kind}-{self.numbers():03d}abc"

    async def say(self, text: str, **more: Any) -> Arrived:
        number = self.numbers()
        values: dict[str, Any] = {
            "source": Source.MENTION,
            "marker": Marker.NONE,
            "who": Who.MEMBER,
            "rights": ALL,
            "author": UserId("U0ENGINEER"),
            "team": "T1",
            "channel": ChannelId("C0INCIDENT"),
            "thread_ts": SlackTs(ROOT),
            "ts": SlackTs(f"1790000{number:03d}.000100"),
            "dedupe_key": f"k{number}",
            "mentioned": more.get("source", Source.MENTION) is Source.MENTION,
        }
        return await self.mailbox.arrive(Arrival(**values | more, text=text))

    async def claim(self, session: SessionId | None) -> Claimed:
        assert session is not None
        claimed = await self.ledger.claim(session, "w1", FROZEN, surroundings=Surroundings())
        assert claimed is not None
        return claimed

    async def step(
        self,
        claimed: Claimed,
        step: int,
        tools: Sequence[str],
        stamp: Stamp | None = None,
        brought: ToolOutput = ALL_FINE,
    ) -> None:
        calls = [_call(claimed, step, place, tool) for place, tool in enumerate(tools)]
        content = [{"type": "text", "text": "Looking."}, *(_block(call) for call in calls)]
        await self.ledger.open(claimed, step, content, calls, [Spent(FROZEN.model, step, Usage(100, 10))])
        text, kept = kept_of(brought, Limits().output_chars)
        results = [CallResult(call, CallStatus.OK, text, duration_s=0.25, kept=kept) for call in calls]
        await self.ledger.close(claimed, step, results, lambda _steers: stamp)
        claimed.steps = step
        claimed.evidence.append(Evidence(calls[0].call_id, calls[0].tool, calls[0].summary))

    async def answer(self, claimed: Claimed) -> None:
        words = [{"type": "text", "text": "It is the gateway."}]
        outcome = Outcome(Reason.COMPLETED, answer=words, answer_text="It is the gateway.", step=claimed.steps)
        await self.ledger.settle(claimed, outcome, [Spent(FROZEN.model, claimed.steps, Usage(200, 30))])

    async def completed(self, **more: Any) -> TurnId:
        asked = await self.say("why 5xx?", **more)
        claimed = await self.claim(asked.session)
        await self.step(claimed, 1, ["prometheus_query", "loki_query"])
        await self.answer(claimed)
        return claimed.turn

    async def steered(self) -> tuple[TurnId, TurnId]:
        asked = await self.say("why 5xx?")
        claimed = await self.claim(asked.session)
        await self.say("it's the gateway", author=UserId("U0ONCALL"))
        await self.step(claimed, 1, ["loki_query"], Stamp.STEER)
        await self.ledger.settle(claimed, Outcome(Reason.STEERED, stamp=Stamp.STEER, step=1), [])
        following = await self.claim(asked.session)
        await self.answer(following)
        return claimed.turn, following.turn


def _call(claimed: Claimed, step: int, place: int, tool: str) -> Call:
    call_id = f"toolu_{claimed.turn}_{step}_{place}"
    return Call(place, call_id, tool, {"query": "up"}, "read", True, "query=up")


def _block(call: Call) -> dict[str, Any]:
    return {"type": "tool_use", "id": call.call_id, "name": call.tool, "input": dict(call.arguments)}
