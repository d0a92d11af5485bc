"""What the playing SRE reads: a request's messages as things that people said, looks that were taken, answers given.

An *episode* is everything since the last final answer. A turn that was redirected or stopped gave no answer, so
its looks stay in the episode, and whoever goes on knows what has been seen already.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

OURS = "[Pilothouse"
"""How a user-side text begins that the program wrote, not a person."""

DATA = ("[thread", "[note", "[alert", "[schedule", "[attachment", "[condensed", "[suture]")
"""How texts begin that were not said to us: they are read, and asked for nothing."""

FRAME = re.compile(r"^(?:</?untrusted\b[^>\n]*>|\[(?:root|reply|thread|alert|schedule|note)\b[^\]\n]*\]).*$", re.M)
MARKS = re.compile(r"\A<untrusted [^>\n]*>\n|\n</untrusted [^>\n]*>\Z")
AUTHOR = re.compile(r"^\s*<@\w+>:?\s*")

NOTHING_FOUND = re.compile(
    r"\b(no (data|results?|series|lines?( matches)?|entries|streams?|events|output)|empty result|0 (lines|series))\b",
    re.I,
)
CANCELLED = re.compile(r"\b(cancelled|canceled|interrupted|not run|not started|nothing was read)\b", re.I)
ABOUT_A_TABLE = re.compile(r"the same for all|\d+ (series|lines) ")
MOST_QUOTED = 180
CJK = re.compile(r"[\u3400-\u9fff]")


class State(StrEnum):
    """What came of a look."""

    SEEN = "seen"
    EMPTY = "empty"
    CANCELLED = "cancelled"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Look:
    """One tool call, as far as identity goes."""

    tool: str
    arguments: Mapping[str, Any]

    @property
    def key(self) -> str:
        return f"{self.tool} {json.dumps(self.arguments, sort_keys=True)}"


@dataclass(frozen=True, slots=True)
class Taken:
    """A look that has its result."""

    look: Look
    state: State
    text: str


@dataclass(slots=True)
class Episode:
    """What was said and seen between two answers. `data` was not said to us; `last_batch` is the newest step's."""

    words: list[str] = field(default_factory=list)
    data: list[str] = field(default_factory=list)
    taken: list[Taken] = field(default_factory=list)
    last_batch: list[Taken] = field(default_factory=list)
    answer: str | None = None


@dataclass(frozen=True, slots=True)
class Conversation:
    """All episodes, the running one last; and the names of the tools that may be called now."""

    episodes: Sequence[Episode]
    tools: frozenset[str]

    @property
    def now(self) -> Episode:
        return self.episodes[-1]

    @property
    def is_first(self) -> bool:
        return len(self.episodes) == 1

    @property
    def taken(self) -> list[Taken]:
        """Every look of every episode."""
        return [taken for episode in self.episodes for taken in episode.taken]

    @property
    def chinese(self) -> bool:
        """Whether somebody wrote Chinese in the running episode."""
        return any(CJK.search(text) for text in self.now.words)

    @property
    def told(self) -> list[str]:
        """Everything that was said in the running episode, to us or not."""
        return [*self.now.data, *self.now.words]


def read(body: Mapping[str, Any]) -> Conversation:
    """The conversation that `body` carries."""
    choice = (body.get("tool_choice") or {}).get("type")
    names = frozenset() if choice == "none" else frozenset(str(tool["name"]) for tool in body.get("tools") or ())
    episodes = [Episode()]
    calls: dict[str, Look] = {}
    for message in body["messages"]:
        blocks = _blocks(message["content"])
        if message["role"] == "assistant":
            found = {str(b["id"]): Look(b["name"], b["input"]) for b in blocks if b["type"] == "tool_use"}
            calls.update(found)
            if not found and (text := _text(blocks)):
                episodes[-1].answer = text
                episodes.append(Episode())
            continue
        _hear(episodes[-1], blocks, calls)
    return Conversation(episodes, names)


def _hear(episode: Episode, blocks: Sequence[Mapping[str, Any]], calls: Mapping[str, Look]) -> None:
    batch = [
        Taken(calls[block["tool_use_id"]], _state(block), _result_text(block))
        for block in blocks
        if block["type"] == "tool_result" and block["tool_use_id"] in calls
    ]
    episode.taken += batch
    episode.last_batch = batch
    for text in (str(block["text"]) for block in blocks if block["type"] == "text"):
        if text.startswith(DATA):
            episode.data.append(FRAME.sub("", text).strip())
        elif not text.startswith(OURS):
            episode.words.append(AUTHOR.sub("", text))


def _state(block: Mapping[str, Any]) -> State:
    text = _result_text(block)
    if block.get("is_error"):
        return State.CANCELLED if CANCELLED.search(text[:300]) else State.FAILED
    if CANCELLED.match(text):
        return State.CANCELLED
    return State.EMPTY if not text.strip() or NOTHING_FOUND.search(text[:300]) else State.SEEN


def _result_text(block: Mapping[str, Any]) -> str:
    return MARKS.sub("", _text(_blocks(block.get("content") or "")))


def _blocks(content: Any) -> list[Mapping[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


def _text(blocks: Sequence[Mapping[str, Any]]) -> str:
    return "\n".join(str(block["text"]) for block in blocks if block.get("type") == "text").strip()


def lines_with(taken: Sequence[Taken], pattern: str, tool: str = "", most: int = 1) -> list[str]:
    """Up to `most` lines with `pattern` in what was really seen, newest look first, shortened around the match."""
    found = (
        line
        for look in reversed(taken)
        if look.state is State.SEEN and look.look.tool.startswith(tool)
        for line in _matching(look.text, pattern)
    )
    return list(dict.fromkeys(line for line, _ in zip(found, range(most), strict=False)))


def _matching(text: str, pattern: str) -> Iterator[str]:
    for line in text.splitlines():
        match = re.search(pattern, line, re.I)
        if match and not ABOUT_A_TABLE.match(line):
            yield _around(" ".join(line.split()), pattern).strip(" |,")


def _around(line: str, pattern: str) -> str:
    """A long line as its first word (mostly a time) and what stands around the match."""
    match = re.search(pattern, line, re.I)
    if len(line) <= MOST_QUOTED or match is None:
        return line[:MOST_QUOTED]
    start = line.find(" ", max(0, match.start() - 40)) + 1
    head = f"{line.split(' ', 1)[0]} … " if match.start() > 60 else ""
    return head + line[start if head else 0 :][: MOST_QUOTED - len(head)]
