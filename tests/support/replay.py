"""Raw envelopes into the running product: what Slack really sends, also where no hand of a person could make it.

A `Stage` is one program with its far ends, shared by the tests of a module: each test plays in a room (a channel) of
its own. `Raw` makes and injects the envelopes of one room; all that it sends was acknowledged, or it fails.
"""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import structlog

from bot.app import App
from bot.playground.model import Reply, call, say
from bot.playground.slack import Delivery, Person, Workspace
from bot.playground.slack.people import default_people
from bot.settings import Settings
from bot.telemetry import configure_logging
from core.limits import Limits
from core.ports import Tool, ToolOutput, ToolSpec
from tests.support.rooms import FarEnds, Room, far_ends, program
from tests.support.story import QUICK, is_over
from tests.support.thread import ENGINEER, Message

Json = dict[str, Any]
PATIENT_S = 20.0
"""How long a busy machine may take for what takes milliseconds."""
HELD = replace(QUICK, tool_timeout_s=60.0, turn_s=300.0)
"""A held call and its turn wait for the test, also on a busy machine."""
BOT, PARTNER, AGENT = "U0PILOT", "U0PARTNER", "U0AGENT"


@dataclass
class Gate:
    """A read that waits for the test wherever its `room` is held; elsewhere it answers at once."""

    held: dict[str, asyncio.Event] = field(default_factory=dict)
    began: list[str] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    spec = ToolSpec("look", "looks", {"type": "object", "additionalProperties": True}, timeout_s=60.0)

    async def run(self, arguments: Mapping[str, Any]) -> ToolOutput:
        room = str(arguments.get("room", ""))
        self.began.append(room)
        try:
            if room in self.held:
                await self.held[room].wait()
        except asyncio.CancelledError:
            self.cancelled.append(room)
            raise
        return ToolOutput(f"{room}: nothing unusual")

    async def health(self) -> str | None:
        return None


@dataclass
class Configured(FarEnds):
    """Far ends whose program is configured in another way."""

    change: Callable[[Settings], Settings] = lambda settings: settings

    @property
    def settings(self) -> Settings:
        return self.change(super().settings)


@dataclass
class Stage:
    """The running product, its far ends, its one tool and its log."""

    ends: FarEnds
    app: App
    gate: Gate
    log: io.StringIO

    def room(self, word: str, *replies: Reply, then: Iterable[Reply] = ()) -> Room:
        return self.ends.room(word, *replies, then=then)

    async def busy(self, word: str, *replies: Reply) -> Room:
        """A room whose turn is in the middle of a call that does not end by itself; `replies` follow."""
        self.gate.held[word] = asyncio.Event()
        room = self.room(word, say("Looking.") + call("look", room=word), *replies)
        await room.ask()
        await room.until(lambda: word in self.gate.began)
        await room.cards()
        return room

    def let(self, room: Room) -> None:
        """Let the call of a busy room end."""
        self.gate.held[room.word].set()

    def logged(self, event: str) -> list[Json]:
        """The log lines of one event."""
        return [line for line in map(json.loads, self.log.getvalue().splitlines()) if line.get("event") == event]


def with_strangers() -> Workspace:
    """The usual workspace, with somebody of another company and another team's agent in it."""
    partner = Person(PARTNER, "pia", "Pia Nyström", "external", team_id="T0ELSEWHERE", is_stranger=True)
    agent = Person(AGENT, "helpful", "Helpful Agent", "bot", bot_id="B0OTHER")
    return Workspace(people=[*default_people(), partner, agent])


@contextmanager
def log_lines() -> Iterable[io.StringIO]:  # type: ignore[misc]
    """Everything that is logged meanwhile."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    stream = io.StringIO()
    configure_logging(stream, logging.DEBUG)
    root.setLevel(logging.WARNING)
    try:
        yield stream
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        structlog.reset_defaults()


@asynccontextmanager
async def staged(
    tmp_path: Path,
    *,
    workspace: Workspace | None = None,
    limits: Limits = HELD,
    tools: Iterable[Tool] = (),
    settings: Callable[[Settings], Settings] = lambda settings: settings,
    **options: Any,
) -> AsyncIterator[Stage]:
    """The product between its far ends, until the block ends; then no request was invalid or unexpected."""
    gate = Gate()
    with log_lines() as log:
        async with far_ends(tmp_path, workspace=workspace or with_strangers()) as made:
            ends = Configured(**vars(made), change=settings)
            ends.slack.wire.ack_timeout_s = PATIENT_S
            async with program(ends, limits=limits, tools=[gate, *tools], **options) as app:
                yield Stage(ends, app, gate, log)
            ends.sound()


class Raw:
    """The envelopes of one room."""

    def __init__(self, room: Room) -> None:
        self.room = room
        self.slack = room.slack

    def ts(self) -> str:
        """The next timestamp of this Slack."""
        return self.slack.state.next_ts()

    def message(self, text: str, user: str = ENGINEER, *, root: bool = False, **fields: Any) -> Json:
        """A `message` event of the room's thread, or one that could begin it. A field None is left out."""
        ts = fields.pop("ts", None) or self.ts()
        said: Json = {
            "type": "message",
            "channel": self.room.channel,
            "channel_type": "channel",
            "user": user,
            "text": text,
            "ts": ts,
            "event_ts": ts,
            "client_msg_id": f"cm-{ts}",
        }
        if not root and self.room.root is not None:
            said |= {"thread_ts": self.room.root, "parent_user_id": ENGINEER}
        return {key: value for key, value in (said | fields).items() if value is not None}

    def mention(self, message: Mapping[str, Any]) -> Json:
        """The `app_mention` that Slack sends beside a message."""
        return {key: value for key, value in message.items() if key != "channel_type"} | {"type": "app_mention"}

    def changed(self, before: Mapping[str, Any], **changes: Any) -> Json:
        """`message_changed`: the message `before` with these changes; None takes a field away."""
        ts = self.ts()
        old = {key: value for key, value in before.items() if key not in ("channel", "channel_type", "event_ts")}
        new = {key: value for key, value in (old | changes).items() if value is not None}
        where = {"channel": self.room.channel, "channel_type": "channel"}
        hidden = {"type": "message", "subtype": "message_changed", "hidden": True, "ts": ts, "event_ts": ts}
        return where | hidden | {"message": new, "previous_message": old}

    def deleted(self, before: Mapping[str, Any]) -> Json:
        """`message_deleted`, which names nobody."""
        event = self.changed(before) | {"subtype": "message_deleted", "deleted_ts": before["ts"]}
        del event["message"]
        return event

    def reacted(self, message: Mapping[str, Any], user: str, sign: str) -> Json:
        """`reaction_added`, which does not say in which thread the message is."""
        item = {"type": "message", "channel": self.room.channel, "ts": message["ts"]}
        who = {"user": user, "item_user": message["user"]}
        return {"type": "reaction_added", "reaction": sign, "item": item, "event_ts": self.ts()} | who

    def envelope(self, event: Json, *, attempt: int = 0, reason: str = "", **outer: Any) -> Json:
        """The envelope of an event; every one has an id of its own."""
        workspace = self.slack.workspace
        ours = {"enterprise_id": None, "team_id": workspace.team_id, "user_id": BOT, "is_bot": True}
        payload: Json = {
            "type": "event_callback",
            "team_id": workspace.team_id,
            "api_app_id": workspace.app_id,
            "event_id": self.slack.state.next_id("Ev"),
            "event_time": 1_790_000_000,
            "authorizations": [ours | {"is_enterprise_install": False}],
            "is_ext_shared_channel": False,
            "event": event,
        }
        return {
            "type": "events_api",
            "envelope_id": self.slack.state.next_id("envelope-"),
            "retry_attempt": attempt,
            "retry_reason": reason,
            "payload": payload | outer,
        }

    async def event(self, event: Json, *, attempt: int = 0, reason: str = "", **outer: Any) -> Delivery:
        """Send an event; `outer` are fields of the payload around it."""
        return await self._sent(self.envelope(event, attempt=attempt, reason=reason, **outer))

    async def click(
        self, card: Message, action_id: str, value: str, user: str = ENGINEER, *, ts: str | None = None, **more: Any
    ) -> Delivery:
        """Send a click on a message, whatever buttons that has."""
        container = {"type": "message", "message_ts": card["ts"], "channel_id": self.room.channel}
        action = {"type": "button", "action_id": action_id, "block_id": "b", "value": value}
        payload: Json = {
            "type": "block_actions",
            "api_app_id": self.slack.workspace.app_id,
            "team": {"id": self.slack.workspace.team_id},
            "user": {"id": user, "team_id": self.slack.workspace.team_id},
            "channel": {"id": self.room.channel},
            "trigger_id": self.slack.state.next_id("trigger-"),
            "response_url": "https://hooks.slack.test/actions/1",
            "container": container | {"thread_ts": self.room.root, "is_ephemeral": False},
            "message": dict(card),
            "actions": [action | {"action_ts": ts or self.ts()}],
        }
        return await self.interaction(payload | more)

    async def interaction(self, payload: Json, kind: str = "interactive") -> Delivery:
        """Send any other interaction."""
        envelope_id = self.slack.state.next_id("envelope-")
        return await self._sent({"type": kind, "envelope_id": envelope_id, "payload": payload})

    async def _sent(self, envelope: Json) -> Delivery:
        delivery = await self.slack.inject(envelope)
        assert delivery.acknowledged, envelope
        return delivery


# -- what must hold


async def ended(room: Room, *reasons: str) -> None:
    """The turns of the room ended for these reasons, no card shows work, and every answer is where it belongs."""
    assert await room.released(len(reasons)) == list(reasons)
    for settle in await room.settles():
        assert (settle["final_event_id"] is not None) == (settle["reason"] == "completed")
    if set(reasons) <= CUT | {"completed"}:
        assert room.all("diagnoses") == []
        assert [entry for entry in room.all("entries") if entry["kind"] == "ladder"] == []
    await room.until(lambda: all(is_over(card) for card in room.own("card")))
    await room.until(lambda: all(row["state"] in DELIVERED for row in room.all("outbox") if row["kind"] == "answer"))


def sent(room: Room) -> str:
    """Everything that people's words were to the model of this room; results and its own words aside."""
    blocks = [
        block
        for request in room.requests()
        for message in request["messages"]
        if message["role"] == "user"
        for block in message["content"]
    ]
    return "\n".join(str(block["text"]) for block in blocks if block["type"] == "text")


def stored(room: Room) -> str:
    """The rows of the history that hold people's words."""
    return "\n".join(entry["body"] for entry in room.all("entries") if entry["kind"] == "user")


async def told(room: Room, user: str, words: str) -> str:
    """Wait until only `user` was told something with `words` in it; what it was."""
    await room.until(lambda: any(words in said for said in room.whispers(user)))
    return next(said for said in room.whispers(user) if words in said)


async def signed(room: Room, ts: str, sign: str) -> None:
    """Wait until the message has our sign, and no other one of ours."""
    await room.until(lambda: room.signs(ts) == [sign])


DELIVERED = {"sent", "failed", "dropped"}
CUT = {"steered", "stopped_step", "cancelled", "dispatched", "awaiting"}
