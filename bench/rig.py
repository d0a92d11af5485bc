"""The product between far ends that run in another process, and a person who asks, replies and presses.

`Rig.say` and `Rig.press` write a line to the far ends' process and return at once, so a measurement pays for nothing
but what the product does. What became of it is read from the database file with a connection of our own.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from bench.far_ends import CHANNELS
from bot.app import App, build
from bot.settings import ModelPart, Settings, SlackPart, StoragePart
from bot.slack.pace import Pace
from bot.telemetry import configure_logging
from core.limits import Limits
from core.ports import Tool, ToolOutput, ToolSpec

ENGINEER = "U0ENGINEER"
POLL_S = 0.02
PATIENCE_S = 120.0
MODEL = "claude-sonnet-5-5"
ARGUMENTS: Mapping[str, Any] = {
    "type": "object",
    "properties": {"query": {"type": "string"}, "start": {"type": "string"}, "step": {"type": "string"}},
    "required": ["query"],
    "additionalProperties": False,
}
FOUND = "\n".join(f"{{code='{code}', pod='gateway-7'}} {rate}" for code, rate in ((200, 88.1), (504, 11.9), (503, 0)))


@dataclass
class FarEnds:
    """The other process, and where its two ends are."""

    process: asyncio.subprocess.Process
    slack_url: str
    model_url: str
    workspace: Mapping[str, str]

    def tell(self, **line: Any) -> None:
        """Have it do something; nothing comes back."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(line).encode() + b"\n")

    async def ask(self, do: str) -> Mapping[str, Any]:
        """Have it tell something."""
        assert self.process.stdout is not None
        self.tell(do=do)
        answer: Mapping[str, Any] = json.loads(await self.process.stdout.readline())
        return answer


@asynccontextmanager
async def far_ends(*, lenient: bool = False) -> AsyncIterator[FarEnds]:
    """Start the other process and wait until it serves."""
    pipe = asyncio.subprocess.PIPE
    options = ["--lenient"] if lenient else []
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.far_ends", *options, stdin=pipe, stdout=pipe
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        made = json.loads(await process.stdout.readline())
        yield FarEnds(process, made["slack"], made["model"], made["workspace"])
    finally:
        process.stdin.close()
        await process.wait()


class Unhurried(Pace):
    """Slack's limits would stretch forty turns over minutes; the local Slack has none."""

    def may(self, method: str, channel: str, *, urgent: bool) -> bool:
        return True


@dataclass
class Probe:
    """A trivial read: its answer is there at once."""

    spec: ToolSpec = field(default_factory=lambda: ToolSpec("probe", "Query a metric by range.", ARGUMENTS))
    ended_at: float = 0.0

    async def run(self, arguments: Mapping[str, Any]) -> ToolOutput:
        self.ended_at = time.time()
        return ToolOutput(FOUND)

    async def health(self) -> str | None:
        return None


@dataclass
class Read(Probe):
    """A read that takes `seconds`, and knows when it began, ended and was cancelled (seconds since the epoch)."""

    spec: ToolSpec = field(default_factory=lambda: ToolSpec("read", "Search the logs.", ARGUMENTS))
    seconds: float = 10.0
    cancelled_at: float = 0.0
    began: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, arguments: Mapping[str, Any]) -> ToolOutput:
        self.began.set()
        try:
            await asyncio.sleep(self.seconds)
        except asyncio.CancelledError:
            self.cancelled_at = time.time()
            raise
        self.ended_at = time.time()
        return ToolOutput(FOUND)


@dataclass
class Rig:
    """A running product with its far ends."""

    app: App
    ends: FarEnds
    file: Path
    rows: sqlite3.Connection
    said: int = 0

    def say(self, text: str, *, thread: str | None = None) -> str:
        """A person mentions the bot (in a thread of its own, if `thread` is None); returns the message's ts."""
        return self._write(f"<@{self.ends.workspace['bot']}> {text}", thread)

    def reply(self, text: str, thread: str) -> str:
        """A person replies in a thread without a mention."""
        return self._write(text, thread)

    def _write(self, text: str, thread: str | None) -> str:
        self.said += 1
        ts = f"{time.time():.6f}"
        place = self._channel(thread) if thread is not None else f"C0BENCH{self.said % CHANNELS}"
        self.ends.tell(do="say", channel=place, user=ENGINEER, text=text, ts=ts, thread_ts=thread)
        return ts

    def _channel(self, thread: str) -> str:
        return str(self.one("SELECT channel FROM sessions WHERE thread_ts = ?", thread))

    def press(self, button: str) -> None:
        """A person presses a button of the newest card."""
        channel, ts = self.row("SELECT channel, message_ts FROM cards ORDER BY opened_at DESC LIMIT 1")
        self.ends.tell(do="press", channel=channel, message_ts=ts, action_id=button, user=ENGINEER)

    def row(self, sql: str, *values: Any) -> Sequence[Any]:
        """The first row of a query."""
        found: Sequence[Any] | None = self.rows.execute(sql, values).fetchone()
        return found or (None,) * 8

    def one(self, sql: str, *values: Any) -> Any:
        """The first value of a query."""
        return self.row(sql, *values)[0]

    async def until(self, sql: str, *values: Any, wanted: Any = 1, poll_s: float = POLL_S) -> None:
        """Wait until a query's first value is `wanted`."""
        async with asyncio.timeout(PATIENCE_S):
            while self.one(sql, *values) != wanted:  # noqa: ASYNC110 - a row, not an event
                await asyncio.sleep(poll_s)

    async def quiet(self, turns: int) -> None:
        """Wait until `turns` turns have settled and everything about them is said and written."""
        await self.until("SELECT count(*) FROM settles", wanted=turns)
        await self.until(
            "SELECT (SELECT count(*) FROM cards WHERE state = 'open') + "
            "(SELECT count(*) FROM outbox WHERE state IN ('waiting', 'sending')) + "
            "(SELECT count(*) FROM sessions WHERE lease_owner IS NOT NULL)",
            wanted=0,
        )


def settings_of(ends: FarEnds, data: Path) -> Settings:
    """The settings of a product between these far ends."""
    return Settings(
        slack=SlackPart(
            bot_token=SecretStr(ends.workspace["bot_token"]),
            app_token=SecretStr(ends.workspace["app_token"]),
            signing_secret=SecretStr(ends.workspace["signing_secret"]),
            base_url=ends.slack_url,
        ),
        model=ModelPart(name=MODEL, api_key=SecretStr("local"), base_url=ends.model_url, direct=True),
        storage=StoragePart(data_dir=data),
    )


@asynccontextmanager
async def rig(
    ends: FarEnds, data: Path, tools: Sequence[Tool], limits: Limits | None = None, *, paced: bool = False
) -> AsyncIterator[Rig]:
    """The product, running, with its logs going nowhere but written. `paced`: Slack's limits are kept."""
    with open(os.devnull, "w") as nowhere:  # noqa: ASYNC230 - it never waits
        configure_logging(nowhere)
        pace = None if paced else Unhurried(time.monotonic)
        async with build(settings_of(ends, data), tools=tools, limits=limits, pace=pace) as app:
            running = asyncio.ensure_future(app.run())
            while app.connection.heard.hello_at is None:  # noqa: ASYNC110 - Slack's word, not an event of ours
                await asyncio.sleep(POLL_S)
            file = data / "pilothouse.db"
            rows = sqlite3.connect(f"file:{file}?mode=ro", uri=True, isolation_level=None)
            try:
                yield Rig(app, ends, file, rows)
            finally:
                rows.close()
                app.stop()
                await running
