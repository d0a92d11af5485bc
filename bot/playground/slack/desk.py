"""What every handler works with: the state, the wire, and the tickets that Slack hands out.

`publish`, `republish` and `withdraw` are the only places where a change of a message becomes events, so that a
person's side and the Web API can't tell different stories.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from bot.playground.slack import payloads
from bot.playground.slack.people import Channel, Json, Workspace
from bot.playground.slack.refusal import Refused
from bot.playground.slack.state import Message, State
from bot.playground.slack.wire import Wire

TRIGGER_LIFE_S = 3.0
RESPONSE_LIFE_S = 30 * 60.0
RESPONSE_USES = 5


@dataclass(slots=True)
class Ticket:
    """A response_url: what it answers to, since when, and how often it was used."""

    channel: str
    user: str
    message_ts: str | None
    thread_ts: str | None
    issued_at: float
    uses: int = 0


@dataclass(slots=True)
class Desk:
    """One workspace at work. `echo` says whether the app hears of its own messages, as it does at Slack."""

    workspace: Workspace
    state: State
    wire: Wire
    clock: Callable[[], float]
    rng: random.Random
    url: str = ""
    echo: bool = True
    mention_order: str = "random"
    triggers: dict[str, float] = field(default_factory=dict)
    trigger_users: dict[str, str] = field(default_factory=dict)
    socket_tickets: set[str] = field(default_factory=set)
    used_triggers: set[str] = field(default_factory=set)
    tickets: dict[str, Ticket] = field(default_factory=dict)

    # -- tickets ------------------------------------------------------------------------------------------------

    def issue_trigger(self, user: str) -> str:
        trigger = f"{int(self.clock())}.{self.state.next_id('')}.{self.rng.getrandbits(64):016x}"
        self.triggers[trigger] = self.clock()
        self.trigger_users[trigger] = user
        return trigger

    def use_trigger(self, trigger: Any) -> None:
        """Single use, 3 seconds."""
        issued_at = self.triggers.get(str(trigger))
        if issued_at is None:
            raise Refused("invalid_trigger_id")
        if trigger in self.used_triggers:
            raise Refused("exchanged_trigger_id")
        if self.clock() - issued_at > TRIGGER_LIFE_S:
            raise Refused("expired_trigger_id")
        self.used_triggers.add(str(trigger))

    def issue_socket_ticket(self) -> str:
        ticket = f"{self.state.next_id('S')}-{self.rng.getrandbits(64):016x}"
        self.socket_tickets.add(ticket)
        return ticket

    def issue_response_url(self, channel: str, user: str, message: Json | None = None) -> str:
        ticket = f"{self.state.next_id('R')}-{self.rng.getrandbits(64):016x}"
        found = message or {}
        self.tickets[ticket] = Ticket(channel, user, found.get("ts"), found.get("thread_ts"), self.clock())
        return f"{self.url}/response/{ticket}"

    def use_ticket(self, ticket: str) -> Ticket:
        """30 minutes, 5 uses."""
        found = self.tickets.get(ticket)
        if found is None or self.clock() - found.issued_at > RESPONSE_LIFE_S:
            raise Refused("expired_url")
        if found.uses >= RESPONSE_USES:
            raise Refused("used_url")
        found.uses += 1
        return found

    # -- events -------------------------------------------------------------------------------------------------

    def emit(self, event: Json, channel: Channel | None = None) -> None:
        """Tell the app, if it may hear of it."""
        if channel is not None and not channel.has(self.workspace.bot_user_id):
            return
        shared = channel is not None and channel.is_ext_shared
        event_id = self.state.next_id("Ev")
        self.wire.post_event(payloads.event_callback(self.workspace, event, event_id, self.clock(), shared))

    def channel_of(self, message: Message) -> Channel:
        found = self.workspace.channel(message.channel)
        if found is None:
            raise LookupError(f"message in an unknown channel {message.channel}")
        return found

    def is_ours(self, body: Json) -> bool:
        return body.get("bot_id") == self.workspace.bot_id or body.get("user") == self.workspace.bot_user_id

    def _mentions_us(self, body: Json) -> bool:
        token = f"<@{self.workspace.bot_user_id}"
        text = str(body.get("text", ""))
        return not self.is_ours(body) and (f"{token}>" in text or f"{token}|" in text)

    def publish(self, message: Message) -> None:
        """A new message: `message`, and `app_mention` beside it, in either order, when it mentions us."""
        channel = self.channel_of(message)
        shown = self.state.view(message)
        if self.is_ours(shown) and not self.echo:
            return
        events = [payloads.message_event(shown, channel)]
        if self._mentions_us(shown) and not channel.is_im:
            events.append(payloads.mention_event(shown, channel, message.ts))
        if self.mention_order == "mention_first" or (self.mention_order == "random" and self.rng.random() < 0.5):
            events.reverse()
        for event in events:
            self.emit(event, channel)

    def republish(self, message: Message, before: Json, *, again: bool = False) -> None:
        """A changed message. `again`: an edit that mentions us brings a second `app_mention`."""
        channel = self.channel_of(message)
        shown = self.state.view(message)
        if self.is_ours(before) and self.is_ours(shown) and not self.echo:
            return
        ts = self.state.next_ts()
        self.emit(payloads.changed_event(shown, before, channel, ts), channel)
        if again and self._mentions_us(shown) and not channel.is_im:
            self.emit(payloads.mention_event(shown, channel, ts), channel)

    def withdraw(self, message: Message, by: str) -> None:
        """Delete a message and say so: a tombstone for a root with replies, else `message_deleted`."""
        before = self.state.view(message)
        self.state.remove(message, by)
        if message.is_tombstone:
            self.republish(message, before)
        else:
            channel = self.channel_of(message)
            self.emit(payloads.deleted_event(before, channel, self.state.next_ts()), channel)

    def react(self, message: Message, name: str, user: str, error: Callable[[str], Exception]) -> None:
        """Add a reaction; `error` makes the exception for one that is there already."""
        reactions = message.body.setdefault("reactions", [])
        found = next((item for item in reactions if item["name"] == name), None)
        if found is not None and user in found["users"]:
            raise error("already_reacted")
        if found is None:
            found = {"name": name, "users": [], "count": 0}
            reactions.append(found)
        found["users"].append(user)
        found["count"] = len(found["users"])
        self._reacted("reaction_added", message, name, user)

    def unreact(self, message: Message, name: str, user: str, error: Callable[[str], Exception]) -> None:
        """Take a reaction away; `error` makes the exception for one that isn't there."""
        reactions = message.body.get("reactions", [])
        found = next((item for item in reactions if item["name"] == name and user in item["users"]), None)
        if found is None:
            raise error("no_reaction")
        found["users"].remove(user)
        found["count"] = len(found["users"])
        message.body["reactions"] = [item for item in reactions if item["users"]]
        self._reacted("reaction_removed", message, name, user)

    def _reacted(self, kind: str, message: Message, name: str, user: str) -> None:
        self.state.touch(message)
        if user == self.workspace.bot_user_id and not self.echo:
            return
        ts = self.state.next_ts()
        event = payloads.reaction_event(kind, user, name, message.channel, message.body, ts)
        self.emit(event, self.channel_of(message))
