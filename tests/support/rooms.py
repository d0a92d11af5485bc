"""Many threads at once: each in a channel of its own, with its own lines for the model, told apart by one word.

The far ends outlive the program, so that it can be ended, killed and started again between them. What the ledger
says is read from the file itself, because a killed program can't be asked.
"""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from bot.app import App, build
from bot.claude import PATH as LOADED
from bot.playground.model import Reply, ScriptedModel, http_error
from bot.playground.model.server import Seen
from bot.playground.slack import LocalSlack, Workspace
from bot.playground.slack.people import Channel
from bot.playground.world import World
from bot.settings import ChannelPart, Settings, demo_settings
from bot.slack.pace import Pace
from core.limits import Limits
from core.ports import Tool
from tests.support.thread import ENGINEER, ONCALL, Message, Thread, shown

Row = dict[str, Any]
assert LOADED, "the SDK takes seconds to load: not while a story is told"

ON_CALL = frozenset({ONCALL})
ALERT_BOTS = frozenset({"B0MONITOR"})


class Never(asyncio.Event):
    """Is never set. Unlike other events it can be waited for in one loop after another."""

    async def wait(self) -> Literal[True]:
        return await asyncio.get_running_loop().create_future()


NEVER = Never()


class Unlimited(Pace):
    """As if Slack had no limits; what it asks for with a 429 is still done."""

    def may(self, method: str, channel: str, *, urgent: bool) -> bool:
        return self._paused.get(method, 0.0) <= self._now()


class Lines:
    """What the model says in each room, in order. What was asked beyond it is in `unexpected`."""

    def __init__(self) -> None:
        self._lines: dict[str, Iterator[Reply]] = {}
        self.unexpected: list[str] = []

    def put(self, word: str, replies: Iterable[Reply]) -> None:
        self._lines[word] = iter(replies)

    def __call__(self, body: Mapping[str, Any], number: int) -> Reply:
        word = word_of(body)
        reply = next(self._lines.get(word, iter(())), None)
        if reply is None:
            self.unexpected.append(f"request {number} in {word or 'no room'}")
            return http_error(400, "invalid_request_error", "nothing is scripted for this")
        return reply


def word_of(body: Mapping[str, Any]) -> str:
    """The room that a request to the model comes from."""
    found = re.search(r"room (\w+):", json.dumps(body.get("messages", [])[:1]))
    return found.group(1) if found else ""


@dataclass
class FarEnds:
    """Slack, model and world, and where the program keeps its data."""

    slack: LocalSlack
    model: ScriptedModel
    world: World
    data: Path
    lines: Lines
    rooms: dict[str, Room] = field(default_factory=dict)
    reader: sqlite3.Connection | None = None

    def room(self, word: str, *replies: Reply, then: Iterable[Reply] = ()) -> Room:
        """A new room; the model says `replies` in it, and `then` what follows."""
        if word not in self.rooms:
            self.slack.workspace.channels.append(Channel(f"C0{word.upper()}", word))
            self.rooms[word] = Room(self, word)
        self.lines.put(word, (line for lines in (replies, then) for line in lines))
        return self.rooms[word]

    @property
    def settings(self) -> Settings:
        """Settings that lead here."""
        made = demo_settings(
            data=self.data,
            slack_url=self.slack.api_url,
            workspace=self.slack.workspace,
            world=self.world,
            model_url=self.model.url,
        )
        slack = made.slack.model_copy(update={"alert_bots": ALERT_BOTS})
        channels = {"default": ChannelPart(on_call=ON_CALL, approvers=ON_CALL)}
        return made.model_copy(update={"slack": slack, "channels": channels})

    def rows(self, table: str, order: str = "rowid") -> list[Row]:
        """All rows of a table, whoever has the database open."""
        return self.select(f"SELECT * FROM {table} ORDER BY {order}")

    def select(self, sql: str, parameters: Mapping[str, Any] | None = None) -> list[Row]:
        """One query over one connection that stays open, because tests look often."""
        if self.reader is None:
            self.reader = sqlite3.connect(f"file:{self.data / 'pilothouse.db'}?mode=ro", uri=True, timeout=20)
            self.reader.row_factory = sqlite3.Row
        return [dict(row) for row in self.reader.execute(sql, parameters or {})]

    def as_if_earlier(self, seconds: float) -> None:
        """What is being sent or waits is older by so much: as if this time had passed."""
        with closing(sqlite3.connect(self.data / "pilothouse.db", timeout=20)) as db, db:
            for table in ("cards", "outbox"):
                earlier = "sending_at = sending_at - :s, not_before = not_before - :s"
                db.execute(f"UPDATE {table} SET {earlier}", {"s": seconds})

    def sound(self) -> None:
        """What must hold after every story: no request was invalid, and none came that nobody expected."""
        assert self.model.violations == []
        assert self.lines.unexpected == []


OF_MY_SESSION = "session_id IN (SELECT id FROM sessions WHERE channel = :here)"
OF_MY_TURNS = f"turn_id IN (SELECT id FROM turns WHERE {OF_MY_SESSION})"
MINE = {"sessions": "channel = :here", **dict.fromkeys(("attempts", "costs", "diagnoses", "automation"), OF_MY_TURNS)}


class Room(Thread):
    """The one thread of a channel."""

    def __init__(self, ends: FarEnds, word: str) -> None:
        self.ends = ends
        self.word = word
        self.slack = ends.slack
        self.channel = f"C0{word.upper()}"
        self.root = None

    async def ask(self, words: str = "checkout answers 5xx, what is going on?", user: str = ENGINEER) -> str:
        return await super().ask(f"<@U0PILOT> room {self.word}: {words}", user)

    async def rows(self, table: str, order: str = "rowid") -> list[Row]:
        return self.all(table, order)

    def all(self, table: str, order: str = "rowid") -> list[Row]:
        """The rows of this thread."""
        return self.ends.select(
            f"SELECT * FROM {table} WHERE {MINE.get(table, OF_MY_SESSION)} ORDER BY {order}", {"here": self.channel}
        )

    def seen(self) -> list[Seen]:
        """The model's requests of this room."""
        return [seen for seen in self.ends.model.requests if word_of(seen.body) == self.word]

    def requests(self) -> list[Mapping[str, Any]]:
        return [seen.body for seen in self.seen()]

    async def asked(self, times: int) -> None:
        """Wait until the model has been asked so often."""
        await self.until(lambda: len(self.seen()) >= times)

    async def held(self, times: int) -> None:
        """Wait until request number `times` (1 is the first) is held."""
        await self.until(lambda: len(self.seen()) >= times and self.seen()[times - 1].holding)

    async def card(self) -> str:
        """What the last card of the thread says now."""
        return shown((await self.cards())[-1])

    def every(self, kind: str) -> list[Message]:
        """Our posts of one kind in the whole channel, deleted or not: what was ever posted."""
        posts = [
            version["message"] for version in self.slack.every_version(self.channel) if version["what"] == "posted"
        ]
        return [post for post in posts if _part(post).startswith(kind)]


def _part(message: Message) -> str:
    payload = (message.get("metadata") or {}).get("event_payload") or {}
    return str(payload.get("part", ""))


@asynccontextmanager
async def far_ends(tmp_path: Path, *, workspace: Workspace | None = None) -> AsyncIterator[FarEnds]:
    """Both far ends, running; no program between them yet."""
    lines = Lines()
    async with AsyncExitStack() as stack:
        world = await stack.enter_async_context(World())
        model = await stack.enter_async_context(ScriptedModel(lines))
        slack = await stack.enter_async_context(LocalSlack(workspace or Workspace(), speed=60.0))
        ends = FarEnds(slack, model, world, tmp_path / "data", lines)
        try:
            yield ends
        finally:
            if ends.reader is not None:
                ends.reader.close()


@asynccontextmanager
async def program(
    ends: FarEnds,
    *,
    limits: Limits | None = None,
    tools: Sequence[Tool] | None = None,
    pace: Pace | None = None,
    jitter: float = 0.0,
) -> AsyncIterator[App]:
    """The program between the far ends, running until the block ends."""
    loop = asyncio.get_running_loop()
    pace = pace or Unlimited(loop.time)
    made = build(
        ends.settings,
        world_now=ends.world.now,
        limits=limits,
        tools=tools,
        pace=pace,
        now=loop.time,
        jitter=lambda: jitter,
    )
    async with made as app:
        running = asyncio.ensure_future(app.run())
        await ends.slack.connected(1)
        try:
            yield app
        finally:
            app.stop()
            await running
