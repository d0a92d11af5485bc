"""When a turn may be cut: at the fall of the balance from above 0 to 0, and nowhere else.

The agent loop is a stream of committed entries. Each tool call in a committed assistant message adds one to the
balance, each committed result takes one away; text and streamed deltas count nothing; a server-side call counts
until its result is there. While the balance is above 0 the history holds calls without results, and a history that
ends there is refused by every model API for ever. The moment in which the last result is committed is the safe
point. Exactly there the four forces are asked, in one fixed order; the first that applies decides and the rest are
not asked.

    steer      somebody redirected: settle `steered`, the next turn starts with their words
    drain      this worker goes down: the attempt ends, the turn goes on elsewhere
    dispatch   helpers were started: settle `dispatched`, their reports start the next turn
    await      a helper asked its parent: settle `awaiting`, the answer starts the next turn

A stop is not a force: it is a fact under the lock, read before any of these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from core.turn import Stamp


class Force(StrEnum):
    """What may cut a turn at a safe point, in order of priority."""

    STEER = "steer"
    DRAIN = "drain"
    DISPATCH = "dispatch"
    AWAIT = "await"


PRIORITY: tuple[Force, ...] = (Force.STEER, Force.DRAIN, Force.DISPATCH, Force.AWAIT)

_OPENS = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})


def _closes(block_type: str) -> bool:
    return block_type.endswith("tool_result")


def delta(blocks: Iterable[Mapping[str, Any]]) -> int:
    """What one committed entry adds to the balance: calls minus results."""
    total = 0
    for block in blocks:
        kind = str(block.get("type", ""))
        if kind in _OPENS:
            total += 1
        elif _closes(kind):
            total -= 1
    return total


@dataclass(slots=True)
class Balance:
    """The tool calls that still wait for their result."""

    open: int = 0

    def observe(self, blocks: Iterable[Mapping[str, Any]]) -> bool:
        """Count one committed entry; True exactly when the balance falls from above 0 to 0: the safe point."""
        change = delta(blocks)
        if change == 0:
            return False
        was_open = self.open > 0
        self.open = max(0, self.open + change)
        return was_open and self.open == 0


@dataclass(slots=True)
class Probe:
    """The four questions. Each is asked at most once, and only if no force before it applied."""

    questions: Mapping[Force, Callable[[], bool]]
    asked: list[Force] = field(default_factory=list)

    def ask(self) -> Stamp | None:
        """The stamp of the first force that applies, or None: go on."""
        for force in PRIORITY:
            self.asked.append(force)
            question = self.questions.get(force)
            if question is not None and question():
                return stamp_of(force)
        return None


def stamp_of(force: Force) -> Stamp:
    """The stamp that a force leaves on the attempt that it cut."""
    match force:
        case Force.STEER:
            return Stamp.STEER
        case Force.DRAIN:
            return Stamp.DRAIN
        case Force.DISPATCH:
            return Stamp.DISPATCH
        case Force.AWAIT:
            return Stamp.AWAIT
