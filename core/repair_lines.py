"""The form in which the suture works on a history: lines of one role with blocks, each knowing its origin."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from core.errors import PilothouseError
from core.messages import Block
from core.repair_words import Known
from core.validator_rules import SHAPES, Limits, Profile, blocks_of, limits_of


class NotRepairable(PilothouseError):
    """No valid request can be made of this history without inventing or losing something."""


@dataclass(frozen=True, slots=True)
class Repair:
    """One stitch: the rule that was broken, where (in the history as it was given), and what was done."""

    rule: str
    path: str
    what: str


@dataclass(slots=True)
class Line:
    """One message at work. `at` is its place in the given history, `raw` the message itself."""

    at: int
    role: str
    blocks: list[Block]
    raw: Mapping[str, Any] | None = None
    fields: dict[str, Any] = field(default_factory=dict)

    @property
    def path(self) -> str:
        return f"messages.{self.at}"


@dataclass(slots=True)
class Scene:
    """What the passes know beside the lines, and what they hand on beside them.

    `broken` are the rules that the request breaks as it came. `changes` are parts of it that must change with the
    messages, `deferred` blocks that may only be sent later.
    """

    request: Mapping[str, Any]
    profile: Profile = Profile.EVERYWHERE
    known: Mapping[str, Known] = field(default_factory=dict)
    in_flight: Collection[str] = ()
    verify: Callable[[Mapping[str, Any], int, int], str | None] | None = None
    broken: frozenset[str] = frozenset()
    repairs: list[Repair] = field(default_factory=list)
    changes: dict[str, Any] = field(default_factory=dict)
    deferred: list[Block] = field(default_factory=list)

    @property
    def system_allowed(self) -> bool:
        return bool(self.request.get("allow_system"))

    @property
    def prefill(self) -> bool:
        return bool(self.request.get("prefill"))

    @property
    def limits(self) -> Limits:
        return limits_of(self.request)

    def now(self, name: str) -> Any:
        """A part of the request as it stands after the changes so far."""
        return self.changes.get(name, self.request.get(name))

    def note(self, rule: str, path: str, what: str) -> None:
        self.repairs.append(Repair(rule, path, what))


Pass = Callable[[list[Line], Scene], list[Line]]

MARK_FIELD: Final = "cache_control"


def text_block(text: str) -> Block:
    return {"type": "text", "text": text}


def unused(wanted: str, taken: set[str], numbers: Counter[str], most: int | None = None) -> str:
    """`wanted`, or with the first number behind it that is free, at most `most` characters long; it is taken then.

    `numbers` remembers where to go on, so that the same name many times over costs no more each time.
    """
    new, number = wanted, numbers[wanted] or 1
    while new in taken:
        number += 1
        tail = f"_{number}"
        new = wanted[: most - len(tail)] + tail if most is not None else wanted + tail
    numbers[wanted] = number
    taken.add(new)
    return new


def write(line: Line) -> dict[str, Any]:
    """The message of a line: the very one that was given when nothing of it changed."""
    raw = line.raw
    if raw is not None and raw.get("role") == line.role and blocks_of(raw.get("content")) == line.blocks:
        fields = {name for name in raw if name not in ("role", "content")}
        if fields == set(line.fields) and _whole(raw.get("content")):
            return dict(raw)
    return {"role": line.role, "content": line.blocks, **line.fields}


def _whole(content: Any) -> bool:
    return isinstance(content, str) or (
        isinstance(content, list) and all(isinstance(block, Mapping) for block in content)
    )


def write_all(lines: Sequence[Line]) -> list[dict[str, Any]]:
    return [write(line) for line in lines]


def join(lines: list[Line], scene: Scene) -> list[Line]:
    """R06: neighbours of one role become one message. The flattened list of blocks stays what it was."""
    joined: list[Line] = []
    growing: Line | None = None
    for line in lines:
        last = joined[-1] if joined else None
        if last is None or last.role != line.role or line.role == "system":
            joined.append(line)
            continue
        if last is not growing:
            growing = joined[-1] = Line(last.at, last.role, list(last.blocks))
        growing.blocks.extend(line.blocks)
        scene.note("R06", line.path, f"joined to the {line.role} message in front of it")
    return joined


def seen_by_model(block: Mapping[str, Any]) -> Mapping[str, Any]:
    """A block without what is not part of the prefix: cache marks, and fields that can't have been sent."""
    shape = SHAPES.get(str(block.get("type")))
    if shape is None:
        return block
    return {
        name: value
        for name, value in block.items()
        if name != MARK_FIELD and (name == "type" or name in shape.required or name in shape.optional)
    }
