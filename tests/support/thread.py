"""A thread in the local Slack as a test sees it: people write and press, cards appear, the ledger explains."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import select, text

from bot.demo import Town, town
from storage.tables import metadata

ONCALL, ENGINEER, GUEST, NEWCOMER = "U0ONCALL", "U0ENGINEER", "U0GUEST", "U0SECOND"
CHANNEL = "C0INCIDENT"
ASK = "<@U0PILOT> checkout answers 5xx since 14:05, what is going on?"
PATIENCE_S = 40.0

Message = Mapping[str, Any]


class Thread:
    """One thread. `root` is set by the first question."""

    def __init__(self, made: Town, channel: str = CHANNEL) -> None:
        self.town = made
        self.slack = made.slack
        self.channel = channel
        self.root: str | None = None

    # -- people

    async def ask(self, words: str = ASK, user: str = ENGINEER) -> str:
        """The question that starts the thread."""
        self.root = await self.slack.say(self.channel, user, words)
        return self.root

    async def reply(self, words: str, user: str = ONCALL) -> str:
        """A reply in the thread."""
        return await self.slack.say(self.channel, user, words, thread_ts=self.root)

    async def press(self, button: str, user: str = ONCALL, card: int = -1) -> None:
        """A click on a button of a card."""
        message = (await self.cards(at_least=1))[card]
        await self.slack.press(self.channel, message["ts"], button, user)

    async def press_on(self, message: Message, button: str, user: str) -> None:
        """A click on a button that a message had when somebody looked at it."""
        await self.slack.press(self.channel, message["ts"], button, user)

    # -- what is there

    def messages(self) -> list[Message]:
        """The thread with its ephemerals, oldest first."""
        return list(self.slack.messages(self.channel, self.root))

    def own(self, kind: str) -> list[Message]:
        """Our posts of one kind (`card`, `answer`)."""
        return [message for message in self.messages() if part_of(message).startswith(kind)]

    async def cards(self, at_least: int = 1) -> list[Message]:
        """The cards of the thread."""
        await self.until(lambda: len(self.own("card")) >= at_least)
        return self.own("card")

    async def answers(self, at_least: int = 1) -> list[Message]:
        """The answers of the thread."""
        await self.until(lambda: len(self.own("answer")) >= at_least)
        return self.own("answer")

    def whispers(self, user: str) -> list[str]:
        """What only `user` was told, in order."""
        return [
            shown(message)
            for message in self.slack.messages(self.channel, self.root)
            if message.get("ephemeral") and message.get("ephemeral_user") == user
        ]

    def signs(self, ts: str) -> list[str]:
        """The reactions on a message."""
        found = next((message for message in self.messages() if message["ts"] == ts), {})
        return [reaction["name"] for reaction in found.get("reactions", ())]

    # -- what the ledger says

    async def rows(self, table: str, order: str = "1") -> list[dict[str, Any]]:
        """All rows of a table."""
        async with self.town.app.db.reading() as tx:
            found = await tx.execute(select(metadata.tables[table]).order_by(text(order)))
            return [dict(row) for row in found.mappings()]

    async def settles(self) -> list[dict[str, Any]]:
        """How turns ended, in order."""
        return await self.rows("settles", "created_at")

    async def released(self, turns: int = 1) -> list[str]:
        """Wait until `turns` turns have settled and every card is released; their reasons."""

        async def all_released() -> bool:
            cards = await self.rows("cards")
            settled = await self.settles()
            return len(settled) >= turns and all(card["state"] == "released" for card in cards)

        await self.until(all_released)
        return [settle["reason"] for settle in await self.settles()]

    async def until(self, condition: Callable[[], bool | Awaitable[bool]], timeout_s: float = PATIENCE_S) -> None:
        """Wait until it is so."""
        async with asyncio.timeout(timeout_s):
            while True:
                found = condition()
                if await found if isinstance(found, Awaitable) else found:
                    return
                await asyncio.sleep(0.02)

    def requests(self) -> list[Mapping[str, Any]]:
        """The bodies of the model's requests, in order."""
        assert self.town.model is not None
        return [seen.body for seen in self.town.model.requests]


def part_of(message: Message) -> str:
    """The part of a turn that one of our posts is, by its metadata."""
    payload = (message.get("metadata") or {}).get("event_payload") or {}
    return str(payload.get("part", ""))


def shown(message: Message) -> str:
    """Everything that a message says, blocks and text, as one text."""
    return f"{message.get('text', '')}\n{message.get('blocks', '')}"


@asynccontextmanager
async def in_town(tmp_path: Path, *, asks: bool = False, **options: Any) -> AsyncIterator[Thread]:
    """A running town, and a thread that nobody has begun yet. With `asks` the test's own tools need approval, too."""
    own = frozenset(tool.spec.name for tool in options.get("tools") or ())
    async with town(tmp_path / "data", preapproved=frozenset() if asks else own, **options) as made:
        running = asyncio.ensure_future(made.app.run())
        await made.slack.connected(1)
        try:
            yield Thread(made)
        finally:
            made.app.stop()
            await running
