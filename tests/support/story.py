"""What stories of steering and stopping share: tools that wait for the test, waits, and what must hold at the end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from core.frame import framed, unframed
from core.limits import Limits
from core.ports import Tier, ToolOutput, ToolSpec
from tests.support.thread import Message, Thread

QUICK = Limits(
    patience_s=0.1, quiet_s=0.1, quiet_max_s=0.5, poll_s=0.2, drain_s=4.0, drain_stream_margin_s=2.0, reserve_s=5.0
)
STOP_BUTTONS = ("stop_step", "cancel_task")
ENDED = {"consumed", "withdrawn", "stopped", "refused", "ignored", "control"}
"""How a message can end. A note may wait for the next turn for as long as nobody asks."""


@dataclass
class HeldTool:
    """A tool that does not answer before the test lets it, and counts what became of its calls."""

    name: str
    tier: Tier = Tier.READ
    began: int = 0
    ended: int = 0
    cancelled: int = 0
    let: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def spec(self) -> ToolSpec:
        schema = {"type": "object", "additionalProperties": True}
        return ToolSpec(self.name, f"the {self.name}", schema, tier=self.tier, timeout_s=30.0)

    async def run(self, arguments: Mapping[str, Any]) -> ToolOutput:
        self.began += 1
        try:
            await self.let.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        self.ended += 1
        return ToolOutput(f"{self.name} says {json.dumps(dict(arguments))}")

    async def health(self) -> str | None:
        return None


def quick(name: str, tier: Tier = Tier.READ) -> HeldTool:
    """A tool that answers at once."""
    made = HeldTool(name, tier)
    made.let.set()
    return made


# -- waits


async def writing(thread: Thread, request: int) -> None:
    """Wait until the model holds its answer to this request (0 is the first)."""
    model = thread.town.model
    assert model is not None
    await model.wait_for(lambda seen: len(seen.requests) > request and seen.requests[request].holding, 40.0)


async def taken(thread: Thread, ts: str, count: int = 1) -> dict[str, Any]:
    """Wait until the ledger has the message, and return its row."""

    async def there() -> bool:
        return len([row for row in await thread.rows("messages") if row["slack_ts"] == ts]) >= count

    await thread.until(there)
    return next(row for row in await thread.rows("messages", "arrived_at") if row["slack_ts"] == ts)


async def called(thread: Thread, tool: str, status: str) -> None:
    """Wait until a call of `tool` has this status in the ledger."""

    async def there() -> bool:
        return any(row["tool"] == tool and row["status"] == status for row in await thread.rows("calls"))

    await thread.until(there)


async def whispered(thread: Thread, user: str, words: str, count: int = 1) -> str:
    """Wait until `user` was told something with `words` in it that nobody else sees; what it was."""
    await thread.until(lambda: sum(words in said for said in thread.whispers(user)) >= count)
    return next(said for said in thread.whispers(user) if words in said)


async def signed(thread: Thread, ts: str, name: str) -> None:
    """Wait until the message has our sign."""
    await thread.until(lambda: name in thread.signs(ts))


async def saying(thread: Thread, words: str, card: int = -1) -> str:
    """Wait until a card says `words`; everything that it says."""
    await thread.until(lambda: len(thread.own("card")) > 0 and words in thread.own("card")[card]["text"])
    return str(thread.own("card")[card]["text"])


# -- what is there


def words_of(request: Mapping[str, Any]) -> list[str]:
    """The texts of the last user message of a request, in order; results are `(result) ...`, out of their frames."""
    last = request["messages"][-1]
    assert last["role"] == "user"
    content = last["content"] if isinstance(last["content"], list) else [{"type": "text", "text": last["content"]}]
    return [
        f"(result) {inside(block['content'])}" if block["type"] == "tool_result" else str(block.get("text", ""))
        for block in content
    ]


def inside(text: str) -> str:
    """What stands in a frame; a text without one as it is."""
    found = unframed(text)
    return text if found is None else found.text


def noted(author: str, text: str) -> str:
    """A note as the model reads it."""
    return f"[note: said in the thread, not to you] <@{author}>:\n{framed(f'note by {author}', text)}"


def sent(thread: Thread) -> str:
    """Everything that was ever sent to the model, system prompt and tools aside."""
    return json.dumps([request["messages"] for request in thread.requests()], ensure_ascii=False)


def said_in_slack(thread: Thread) -> str:
    """Every version of every message of ours that ever was in the channel."""
    own = [
        version["message"]
        for version in thread.slack.every_version(thread.channel)
        if version["message"].get("bot_id") == thread.slack.workspace.bot_id
    ]
    return json.dumps(own, ensure_ascii=False)


# -- what must hold when a story is over


async def holds(thread: Thread, reasons: Sequence[str], *, never_sent: Sequence[str] = ()) -> None:
    """The laws, for a thread in which nothing runs any more and whose turns ended for `reasons`."""
    assert await thread.released(len(reasons)) == list(reasons)
    assert thread.town.model is not None and thread.town.model.violations == []
    turns = await thread.rows("turns", "number")
    settles = await thread.settles()
    assert [turn["state"] for turn in turns] == ["settled"] * len(reasons)
    assert sorted(settle["turn_id"] for settle in settles) == sorted(turn["id"] for turn in turns)
    for settle in settles:
        assert (settle["final_event_id"] is not None) == (settle["reason"] == "completed")
    assert await thread.rows("diagnoses") == [] and await thread.rows("automation") == []
    assert [row["kind"] for row in await thread.rows("entries") if row["kind"] == "ladder"] == []
    assert all(row["rung"] == 0 for row in turns)
    for message in await thread.rows("messages"):
        assert message["state"] in ENDED or message["disposition"] == "note", message
    for word in never_sent:
        assert word not in sent(thread)
    await thread.until(lambda: all(is_over(card) for card in thread.own("card")))
    assert most_running_cards(thread) <= 1


def is_over(card: Message) -> bool:
    """Whether a card shows nothing that runs."""
    drawn = str(card.get("blocks"))
    return not any(button in drawn for button in STOP_BUTTONS) and "○" not in drawn


def most_running_cards(thread: Thread) -> int:
    """How many cards of the thread showed a running turn at the same time, at most."""
    versions = [
        (version["at"], card["ts"], version["message"])
        for card in thread.own("card")
        for version in thread.slack.versions(thread.channel, card["ts"])
    ]
    running: set[str] = set()
    most = 0
    for _, ts, message in sorted(versions, key=lambda version: version[0]):
        (running.discard if is_over(message) else running.add)(ts)
        most = max(most, len(running))
    return most
