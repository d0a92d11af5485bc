"""A process that dies at a moment of our choice, and what is left of it.

Every commit, every tool call and every request to the model has its *moments*: before, in the middle, after. A `Life`
counts them and ends at one. From then on nothing of that life reaches the world: what it had begun in the
database is rolled back, and every door stays shut for ever, however many of its tasks still believe that they run.
"""

from __future__ import annotations

import asyncio
import math
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from core.ports import ModelAnswer, ModelRequest, StreamProgress, ToolOutput, ToolSpec, Usage
from storage.database import Database


class _Died(BaseException):
    """Unwinds a transaction of a life that ended inside it."""


class Life:
    """One life of a worker's process. `dies_at` is the number of the moment at which it ends; None: never."""

    def __init__(self, dies_at: int | None = None, *, by_signal: bool = False) -> None:
        self.died = asyncio.Event()
        self.moments: list[str] = []
        self.died_at = math.inf
        self.buried = False
        self._grave = asyncio.Event()
        self._dies_at = dies_at
        self._by_signal = by_signal

    async def moment(self, name: str) -> None:
        """Pass this moment, or die here and never return."""
        if self.died.is_set() or self.ends(name):
            await self.nothing()

    def ends(self, name: str) -> bool:
        """Whether this is the moment of death."""
        self.moments.append(name)
        if len(self.moments) != self._dies_at:
            return False
        if self._by_signal:
            os.kill(os.getpid(), signal.SIGKILL)
        self.died_at = asyncio.get_running_loop().time()
        self.died.set()
        return True

    async def nothing(self) -> None:
        """What the dead do. Only the end of the test wakes them, and then they fall apart."""
        if not self.buried:
            await self._grave.wait()
        raise asyncio.CancelledError


class MortalDatabase(Database):
    """The real database as one life sees it. Between two lives it is closed, and keeps what it has compiled."""

    life: Life

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection]:
        if self.life.died.is_set():
            await self.life.nothing()
        try:
            async with super().transaction() as tx:
                yield tx
                if self.life.died.is_set() or self.life.ends("before a commit"):
                    raise _Died
        except _Died:
            await self.life.nothing()
        await self.life.moment("after a commit")

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncConnection]:
        if self.life.died.is_set():
            await self.life.nothing()
        async with super().reading() as tx:
            yield tx


@dataclass
class Log:
    """What the world saw, whoever it was that did it. Times are those of the database's clock.

    `journal` is a file that also keeps the calls that began, for the next process to read.
    """

    now: Callable[[], float]
    journal: Path
    started: list[tuple[float, str]] = field(default_factory=list)
    ended: dict[str, float] = field(default_factory=dict)
    requests: list[tuple[float, ModelRequest]] = field(default_factory=list)
    seen: dict[str, asyncio.Event] = field(default_factory=dict)

    def begin(self, call: str) -> None:
        """A tool has begun to do something."""
        self.started.append((self.now(), call))
        with self.journal.open("a") as file:
            file.write(f"{call}\n")

    @property
    def began(self) -> Counter[str]:
        """How often each call began, in all processes."""
        return Counter(self.journal.read_text().split()) if self.journal.exists() else Counter()

    def event(self, name: str) -> asyncio.Event:
        return self.seen.setdefault(name, asyncio.Event())


@dataclass
class MortalTool:
    """A tool that takes `takes_s`; a `fault` is raised at its end."""

    spec: ToolSpec
    life: Life
    log: Log
    takes_s: float
    fault: Exception | None = None

    async def run(self, arguments: Mapping[str, Any]) -> ToolOutput:
        name = self.spec.name
        await self.life.moment(f"before {name}")
        self.log.begin(str(arguments["call"]))
        self.log.event(name).set()
        await self.life.moment(f"in {name}")
        await asyncio.sleep(self.takes_s)
        await self.life.moment(f"after {name}")
        self.log.ended[str(arguments["call"])] = self.log.now()
        if self.fault is not None:
            raise self.fault
        return ToolOutput(f"{name} said this to {arguments['call']}")

    async def health(self) -> str | None:
        return None


Says = str | Sequence[str]
"""An answer in words, or the tools to call."""

Script = Callable[[str, int], Says]
"""What the model says to the newest words of a person, at which step since then."""


@dataclass
class MortalModel:
    """A model that plays a script from nothing but the request, so that another life goes on with it."""

    life: Life
    log: Log
    script: Script
    writes_s: float = 0.4

    async def stream(self, request: ModelRequest, progress: StreamProgress) -> ModelAnswer:
        await self.life.moment("before a request")
        self.log.requests.append((self.log.now(), request))
        progress.started = True
        words, step = newest_words(request.messages)
        self.log.event(f"asked {words} {step}").set()
        await self.life.moment("in a request")
        await asyncio.sleep(self.writes_s)
        await self.life.moment("after a request")
        return self._answer(self.script(words, step), len(request.messages))

    def _answer(self, says: Says, place: int) -> ModelAnswer:
        if isinstance(says, str):
            content: list[dict[str, Any]] = [{"type": "text", "text": says}] if says else []
            return ModelAnswer(content, "end_turn", Usage(10, 5), "claude-test")
        ids = [f"toolu_{place}_{number}_{name}" for number, name in enumerate(says)]
        content = [
            {"type": "tool_use", "id": call, "name": name, "input": {"call": call}}
            for call, name in zip(ids, says, strict=True)
        ]
        return ModelAnswer(content, "tool_use", Usage(10, 5), "claude-test")


def newest_words(messages: Sequence[Mapping[str, Any]]) -> tuple[str, int]:
    """The last text of a person or an alert, and how many answers the model has given since."""
    words, step = "", 0
    for message in messages:
        step += message["role"] == "assistant"
        for block in message["content"]:
            text = str(block.get("text", ""))
            if message["role"] == "user" and text.startswith(("<@", "[alert")):
                words, step = text.split("\n" if text.startswith("[") else ": ", 1)[1], 0
    return words, step
