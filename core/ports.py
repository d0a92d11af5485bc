"""What the core needs from the world, as protocols. Each has one contract suite in `tests/contracts/`.

Model       one streamed answer for one request
Tool        one thing that the model may call
Clock       monotonic time and sleeping
Doorbell    "there is mail": notification gives speed, the database gives truth
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

from core.messages import Block, SessionId


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one answer. `estimated` when the stream was dropped before the API could say."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    estimated: bool = False


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One request. `without_tools` keeps the frozen tool list and sends `tool_choice: {"type": "none"}`.

    `thinking` stands in for what the adapter was configured with: a tool loop whose thinking is lost goes on without.
    """

    model: str
    system: str
    tools: Sequence[Mapping[str, Any]]
    messages: Sequence[Mapping[str, Any]]
    max_tokens: int
    without_tools: bool = False
    thinking: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """A complete answer: `message_stop` has arrived. `content` is exactly what the API sent, block by block.

    A tool call whose input was not valid JSON has `input == {}` and its id in `broken_calls`.
    """

    content: Sequence[Block]
    stop_reason: str
    usage: Usage
    model: str
    broken_calls: frozenset[str] = frozenset()


@dataclass(slots=True)
class StreamProgress:
    """What is known of a running stream, so that a dropped one can be booked. The model's adapter fills it."""

    started: bool = False
    input_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    output_chars: int = 0

    def estimate(self) -> Usage:
        """The usage to book when the stream is dropped: output estimated at 4 characters a token."""
        return Usage(
            self.input_tokens,
            self.output_chars // 4,
            self.cache_read_tokens,
            self.cache_write_tokens,
            estimated=True,
        )


class Model(Protocol):
    """One door to the Messages API."""

    async def stream(self, request: ModelRequest, progress: StreamProgress) -> ModelAnswer:
        """Send `request` once, without retries, and return the whole answer.

        Cancelling the caller's task closes the connection at once. Raises a `core.errors.ModelError`.
        """
        ...


class Tier(StrEnum):
    """What a call can do: look, change something, or leave the company."""

    READ = "read"
    WRITE = "write"
    EXTERNAL = "external"


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as the model sees it, and as the gateway treats it."""

    name: str
    description: str
    input_schema: Mapping[str, Any]
    tier: Tier = Tier.READ
    interruptible: bool = True
    timeout_s: float = 10.0


@dataclass(frozen=True, slots=True)
class Picture:
    """A PNG for people: it is posted to the thread and not sent to the model. `alt` says in words what it shows."""

    title: str
    alt: str
    png: bytes


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A page as it was read: where from in the end, when (seconds since the epoch), the SHA-256 of its bytes as hex,
    and its whole text."""

    url: str
    taken_at: float
    digest: str
    text: str


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """What a tool found. `text` goes to the model, and is cut there if it is long; the whole of it, or the
    `snapshot` that it was taken from, is kept as evidence. `links` (title, address) and `pictures` are for people."""

    text: str
    links: Sequence[tuple[str, str]] = ()
    is_error: bool = False
    pictures: Sequence[Picture] = ()
    snapshot: Snapshot | None = None


class Tool(Protocol):
    """One thing that the model may call."""

    @property
    def spec(self) -> ToolSpec: ...

    async def run(self, arguments: Mapping[str, Any]) -> ToolOutput:
        """Do it. Honours cancellation at once; `core.errors.ToolError` is for what the model can mend.

        A change that was sent and whose end is not known raises `core.errors.OutcomeUnknown`.
        """
        ...

    async def health(self) -> str | None:
        """None when the far end answers, else one sentence that says what is wrong and what to do."""
        ...


@runtime_checkable
class ChangeTool(Tool, Protocol):
    """A tool that changes something, and can say beforehand what exactly."""

    async def preview(self, arguments: Mapping[str, Any]) -> str:
        """What a run would change, as a diff or as before and after, for the person who decides; it only reads.

        `core.errors.ToolError` when it can already be seen that the change is impossible.
        """
        ...


class TurnTool(Tool, Protocol):
    """A tool that holds something for one turn. After `close` it may be called again, and holds something new."""

    async def close(self) -> None:
        """Let go of it, whatever runs. Never raises."""
        ...


@runtime_checkable
class PerTurnTool(Tool, Protocol):
    """A tool that has to hold something while a turn runs, such as the context of a browser."""

    def for_turn(self, turn: object) -> TurnTool:
        """The same tool for one turn. Tools may share what they hold for the same `turn`."""
        ...


class Clock(Protocol):
    """Time for the loop: monotonic seconds, and sleeping."""

    def monotonic(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...


class Doorbell(Protocol):
    """Rings wake whoever listens; a lost ring costs a poll interval and nothing else."""

    async def ring(self, session: SessionId) -> None:
        """Tell every listener, on every worker, that `session` has mail."""
        ...

    def listen(self) -> AbstractAsyncContextManager[AsyncIterator[SessionId]]:
        """All rings from now on, of every session."""
        ...


@dataclass(frozen=True, slots=True)
class Evidence:
    """One thing that was looked at: which call, and the whole output (capped when it came in)."""

    call_id: str
    tool: str
    summary: str
    links: Sequence[tuple[str, str]] = field(default_factory=tuple)
