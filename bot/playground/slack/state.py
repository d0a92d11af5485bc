"""What is in the workspace: every message with all its versions, threads, statuses of agent sessions, files, views.

Nothing here sends or refuses anything. A message is kept for ever, deleted or not, because tests ask for what was
true of *any* version: no mass mention ever, no edit after the last one, no post outside the thread.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from bot.playground.slack.people import Channel, Json, Workspace
from bot.playground.slack.refusal import Refused
from core.messages import ts_order

TOMBSTONE_TEXT = "This message was deleted."


@dataclass(slots=True)
class Stream:
    """A message that is being streamed. `over` names the error that further appends get."""

    started_at: float
    over: str | None = None


@dataclass(slots=True)
class Message:
    """One message. `body` is its newest version in Slack's shape, without what a thread adds to its root."""

    channel: str
    body: Json
    versions: list[Json] = field(default_factory=list)
    ephemeral_user: str | None = None
    gone: bool = False
    stream: Stream | None = None

    @property
    def ts(self) -> str:
        return str(self.body["ts"])

    @property
    def thread_ts(self) -> str | None:
        return self.body.get("thread_ts")

    @property
    def is_reply(self) -> bool:
        return self.thread_ts not in (None, self.ts)

    @property
    def is_tombstone(self) -> bool:
        return self.body.get("subtype") == "tombstone"

    @property
    def in_channel_view(self) -> bool:
        return not self.is_reply or self.body.get("subtype") == "thread_broadcast"


@dataclass(slots=True)
class SharedFile:
    """A file on the files host."""

    id: str
    name: str
    mimetype: str
    content: bytes = b""
    complete: bool = False
    title: str = ""
    alt: str = ""


@dataclass(slots=True)
class View:
    """A modal or a home tab."""

    id: str
    user: str
    body: Json
    hash: str
    root_id: str
    closed: bool = False


class State:
    """The workspace and everything in it. `watchers` get ("channel", "thread") of whatever changed.

    `keep` hears of each message whose newest version changed, `keep_file` of each file that is complete.
    While `held_shares` is a list, uploads that were completed are posted when somebody runs what is in it.
    """

    def __init__(self, workspace: Workspace, clock: Callable[[], float]) -> None:
        self.workspace = workspace
        self.clock = clock
        self.statuses: dict[tuple[str, str], list[str]] = {}
        self.files: dict[str, SharedFile] = {}
        self.held_shares: list[Callable[[], None]] | None = None
        self.views: dict[str, View] = {}
        self.homes: dict[str, View] = {}
        self.watchers: set[asyncio.Queue[tuple[str, str]]] = set()
        self.keep: Callable[[Message], None] | None = None
        self.keep_file: Callable[[SharedFile], None] | None = None
        self._messages: dict[str, dict[str, Message]] = {}
        self._replies: dict[tuple[str, str], list[Message]] = {}
        self._last_ts = (0, 0)
        self._counter = 0

    def next_ts(self) -> str:
        """A timestamp that nothing else in this workspace has, later than all before it."""
        now = int(self.clock() * 1_000_000)
        moment = max((now // 1_000_000, now % 1_000_000), (self._last_ts[0], self._last_ts[1] + 1))
        if moment[1] >= 1_000_000:
            moment = (moment[0] + 1, 0)
        self._last_ts = moment
        return f"{moment[0]}.{moment[1]:06d}"

    def next_id(self, prefix: str) -> str:
        self._counter += 1
        return f"{prefix}{self._counter:08d}"

    def changed(self, channel: str, thread_ts: str) -> None:
        for watcher in self.watchers:
            watcher.put_nowait((channel, thread_ts))

    # -- writing ------------------------------------------------------------------------------------------------

    def add(self, channel: str, body: Json, by: str, ephemeral_user: str | None = None) -> Message:
        """Keep a new message and its first version."""
        message = Message(channel, body, ephemeral_user=ephemeral_user)
        self._place(message)
        self._version(message, "posted", by)
        return message

    def restore(self, message: Message) -> None:
        """Put back a message of an earlier life. New ids are larger than any that were given then."""
        self._place(message)
        self._counter = max(self._counter, int(self.clock() * 1000))

    def _place(self, message: Message) -> None:
        self._messages.setdefault(message.channel, {})[message.ts] = message
        if message.is_reply and message.thread_ts is not None and not message.gone:
            thread = self._replies.setdefault((message.channel, message.thread_ts), [])
            thread.append(message)
            thread.sort(key=lambda reply: ts_order(reply.ts))

    def change(self, message: Message, body: Json, by: str, what: str = "edited") -> None:
        """Replace the body by a new version; `what` says how it came to it."""
        message.body = body
        self._version(message, what, by)

    def remove(self, message: Message, by: str) -> None:
        """Delete it; a root with replies stays behind as a tombstone."""
        if self.replies(message):
            tombstone = {
                "type": "message",
                "subtype": "tombstone",
                "user": "USLACKBOT",
                "text": TOMBSTONE_TEXT,
                "ts": message.ts,
                "hidden": True,
            }
            self.change(message, tombstone, by, "deleted")
            return
        message.gone = True
        if message.thread_ts is not None and message.is_reply:
            self._replies[message.channel, message.thread_ts].remove(message)
        self._version(message, "deleted", by)

    def _version(self, message: Message, what: str, by: str) -> None:
        message.versions.append({"what": what, "by": by, "at": self.clock(), "message": copy.deepcopy(message.body)})
        self.touch(message)

    def touch(self, message: Message) -> None:
        """Tell the watchers of a change that is no new version, such as a reaction."""
        if self.keep is not None:
            self.keep(message)
        self.changed(message.channel, message.thread_ts or message.ts)

    # -- reading ------------------------------------------------------------------------------------------------

    def lookup(self, channel: str, ts: str | None) -> Message | None:
        """Any message that ever was, ephemeral and deleted ones too."""
        return self._messages.get(channel, {}).get(ts or "")

    def find(self, channel: str, ts: str | None) -> Message | None:
        """A message that the Web API can see."""
        message = self.lookup(channel, ts)
        hidden = message is None or message.gone or message.ephemeral_user is not None
        return None if hidden else message

    def replies(self, root: Message) -> list[Message]:
        """The visible replies, oldest first."""
        thread = self._replies.get((root.channel, root.ts), [])
        return [reply for reply in thread if reply.ephemeral_user is None]

    def everything(self, channel: str) -> Iterator[Message]:
        """All messages of a channel that are still there, ephemeral ones included, oldest first."""
        yield from (message for message in self.ever(channel) if not message.gone)

    def ever(self, channel: str) -> list[Message]:
        """All messages that ever were in a channel."""
        return sorted(self._messages.get(channel, {}).values(), key=lambda m: ts_order(m.ts))

    def channels_with_messages(self) -> list[str]:
        return list(self._messages)

    def streams(self, channel: str, thread_ts: str) -> list[Message]:
        """The running streams of a thread."""
        thread = self._replies.get((channel, thread_ts), [])
        return [m for m in thread if m.stream is not None and m.stream.over is None]

    def view(self, message: Message, metadata: bool = False) -> Json:
        """The message as the Web API shows it, with what its thread adds."""
        shown = copy.deepcopy(message.body)
        if not metadata:
            shown.pop("metadata", None)
        replies = [] if message.is_reply else self.replies(message)
        if replies:
            users = list(dict.fromkeys(str(reply.body.get("user", "")) for reply in replies))
            shown |= {
                "thread_ts": message.ts,
                "reply_count": len(replies),
                "reply_users": users[:5],
                "reply_users_count": len(users),
                "latest_reply": replies[-1].ts,
                "subscribed": False,
            }
        return shown

    # -- what the bot may reach ---------------------------------------------------------------------------------

    def reachable(self, wanted: Any) -> Channel:
        """The channel, or `channel_not_found` where the bot can't even know that there is one."""
        channel = self.workspace.channel(str(wanted))
        if channel is None or (channel.is_private and not channel.has(self.workspace.bot_user_id)):
            raise Refused("channel_not_found")
        return channel

    def joined(self, wanted: Any) -> Channel:
        """A channel that the bot is a member of, or `not_in_channel`."""
        channel = self.reachable(wanted)
        if not channel.has(self.workspace.bot_user_id):
            raise Refused("not_in_channel")
        return channel
