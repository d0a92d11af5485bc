"""Which result answers which call, by the ids as they are stored.

A result belongs to the message in front of it. One that comes later is moved to its call, unless that call has
an answer already: a real one makes it a second report, a placeholder means that the model has gone on from
there and that the placeholder is history. Either way the late result is kept as marked text. One that was stored
right in front of its call, which nothing else answers, was stored in the wrong order and is moved behind it.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from core.messages import Block
from core.repair_lines import Line, Scene, text_block
from core.repair_words import NO_OUTPUT, as_text, is_placeholder, knows_nothing, late, orphan


@dataclass(slots=True)
class Call:
    """One tool call as stored, and the results that answer it. `at` is its place in its message; `here`
    counts the results that stand in the next message."""

    block: Block
    at: int
    raw_id: str | None
    results: list[Block] = field(default_factory=list)
    here: int = 0
    new_id: str = ""

    def same_as(self, other: Call) -> bool:
        return all(self.block.get(name) == other.block.get(name) for name in ("name", "input"))

    def real(self) -> list[Block]:
        """What was really reported, each thing once."""
        kept = [result for result in self.results if not is_placeholder(result)]
        if len(kept) < 2:
            return kept
        return list({said(result): result for result in reversed(kept)}.values())[::-1]


def said(result: Mapping[str, Any]) -> str:
    """What a result reports, whatever its id."""
    return json.dumps([result.get("content"), bool(result.get("is_error"))], sort_keys=True, default=str)


def _key(value: Any) -> str | None:
    return None if value is None else str(value)


@dataclass(slots=True)
class _Early:
    """A result that no call stands in front of, and the call right behind it, if there is one."""

    block: Block
    raw_id: str
    line: Line
    place: tuple[int, int]
    call: Call | None = None


class Answers:
    """Every call of a history with its results.

    `calls` by line; `texts` what stands instead of a result that answers no call, by line and block; `places`
    where a result stands in its message, by its identity.
    """

    def __init__(self, lines: Sequence[Line], scene: Scene) -> None:
        self._scene = scene
        self._latest: dict[str, Call] = {}
        self._current: list[Call] = []
        self._before: dict[str, _Early] = {}
        self._orphans: list[_Early] = []
        self.calls: dict[int, list[Call]] = {}
        self.texts: dict[tuple[int, int], list[Block]] = {}
        self.places: dict[int, int] = {}
        for index, line in enumerate(lines):
            if line.role == "assistant":
                self._open(index, line)
            elif line.role == "user":
                self._close(index, line)
        for early in self._orphans:
            self._settle(early)

    def _settle(self, early: _Early) -> None:
        """A result without a call in front of it belongs to the call behind it, or to none."""
        call = early.call
        if call is None or call.results:
            what = f"a result without its call is kept as marked text ({early.raw_id})"
            self._scene.note("R21", early.line.path, what)
            self.texts[early.place] = result_as_text(early.block, early.raw_id, known_call=False)
            return
        self._scene.note("R21", early.line.path, f"the result of {early.raw_id} moved behind its call")
        call.results.append(early.block)
        self.texts[early.place] = []

    def _open(self, index: int, line: Line) -> None:
        self._current = [
            Call(block, at, _key(block.get("id")))
            for at, block in enumerate(line.blocks)
            if block["type"] == "tool_use"
        ]
        self.calls[index] = self._current
        for call in self._current:
            if call.raw_id is not None:
                self._latest[call.raw_id] = call
                if call.raw_id in self._before:
                    self._before.pop(call.raw_id).call = call
        self._before = {}

    def _close(self, index: int, line: Line) -> None:
        self._before = {}
        waiting: dict[str | None, deque[Call]] = {}
        for call in self._current:
            waiting.setdefault(call.raw_id, deque()).append(call)
        for at, block in enumerate(line.blocks):
            if block["type"] != "tool_result":
                continue
            raw_id = _key(block.get("tool_use_id"))
            found = self._only_open() if raw_id is None else _next(waiting.get(raw_id))
            if found is None and raw_id is not None and raw_id not in self._latest and not is_placeholder(block):
                self._before[raw_id] = _Early(block, raw_id, line, (index, at))
                self._orphans.append(self._before[raw_id])
                continue
            if found is None:
                self.texts[index, at] = self._elsewhere(block, raw_id, line)
                continue
            found.results.append(block)
            found.here += 1
            self.places[id(block)] = at
        self._current = []

    def _only_open(self) -> Call | None:
        """A result without an id answers the only call that is open, when there is only one."""
        calls = list(islice((call for call in self._current if not call.results), 2))
        return calls[0] if len(calls) == 1 else None

    def _elsewhere(self, block: Block, raw_id: str | None, line: Line) -> list[Block]:
        """What stands in place of a result that doesn't belong to the message in front of it."""
        earlier = self._latest.get(raw_id) if raw_id is not None else None
        if earlier is not None and not earlier.results and not is_placeholder(block):
            self._scene.note("R21", line.path, f"the late result of {raw_id} moved to its call")
            earlier.results.append(block)
            return []
        if knows_nothing(block):
            self._scene.note("R21", line.path, f"a placeholder without its call was taken out ({raw_id})")
            return []
        if earlier is not None and any(said(block) == said(each) for each in earlier.results):
            self._scene.note("R21", line.path, f"a second copy of a result was taken out ({raw_id})")
            return []
        what = "a late result" if earlier is not None else "a result without its call"
        self._scene.note("R21", line.path, f"{what} is kept as marked text ({raw_id})")
        return result_as_text(block, raw_id, known_call=earlier is not None)


def _next(named: deque[Call] | None) -> Call | None:
    """The next of several calls of one id; the last of them takes what is left over."""
    if named is None:
        return None
    while len(named) > 1 and named[0].results:
        named.popleft()
    return named[0]


def result_as_text(block: Mapping[str, Any], raw_id: str | None, *, known_call: bool) -> list[Block]:
    """A result as what may stand anywhere in a user message: marked text, and its pictures behind it."""
    words = late if known_call else orphan
    content = block.get("content", NO_OUTPUT)
    if isinstance(content, str):
        return [text_block(words(raw_id, content or NO_OUTPUT))]
    texts = [part["text"] for part in content if part["type"] == "text"]
    names = [as_text(part.get("tool_name")) for part in content if part["type"] == "tool_reference"]
    others = [part for part in content if part["type"] in ("image", "document", "search_result")]
    return [text_block(words(raw_id, "\n".join([*texts, *names]) or NO_OUTPUT)), *others]
