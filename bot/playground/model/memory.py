"""What the scripted model remembers of each conversation, to hold its client to law 1.

Of two requests of one conversation the later one must begin with everything that the earlier one said, in the
same order, under the same system prompt and with the same tools. The last user message may have grown, as long
as the model has not answered on it: in the flattened list that is just another extension.

Whose conversation is it? `metadata.user_id` says so if it is there. Otherwise the opening does: everything up to
the end of the model's first message, which mostly holds an id or a signature that no other thread has. Two threads
may open with the same words and even get the same words back; so under one opening there may be as many
conversations as were asked in it. What we have never seen (a restart on our side) we have to believe, and so we do a
conversation that begins with a condensed past: it is a new one, which the next request has to begin with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bot.playground.model.chain import Digest, Flat, canonical, digest
from core.condense import MARK
from core.messages import Block

SYSTEM = "messages: the system prompt of this conversation has changed; it is frozen with the first request"
TOOLS = "messages: the tool list of this conversation has changed; it is frozen with the first request"
ANSWERED = "messages.{at}: this answer was given to other words than those that stand before it here"
REWRITTEN = "messages: not an extension of the former request of this conversation: its entry {at} of {of} is gone"


@dataclass(slots=True)
class _Line:
    """One conversation: what is frozen, the links of its last request, and how often exactly it was sent."""

    system: Digest
    tools: Digest
    links: list[Digest]
    sent: int = 1

    def problem(self, later: _Line) -> str | None:
        """Why `later` can't be the next request of this conversation."""
        if later.system != self.system:
            return SYSTEM
        if later.tools != self.tools:
            return TOOLS
        same = _common(self.links, later.links)
        return REWRITTEN.format(at=same, of=len(self.links)) if same < len(self.links) else None


class Memory:
    """All conversations that this server has seen."""

    def __init__(self) -> None:
        self._openings: dict[Digest, list[_Line]] = {}
        self._lines: dict[Digest, list[_Line]] = {}
        self._answers: dict[Digest, set[Digest]] = {}

    def answered(self, flat: Flat, content: Sequence[Block]) -> None:
        """`content` was sent, whole, as the answer to `flat`."""
        if flat.links:
            said = digest(*(canonical(block) for block in content))
            self._answers.setdefault(said, set()).add(_digests(flat)[-1])

    def problem(self, flat: Flat) -> str | None:
        """What is wrong with `flat` as the next request of its conversation; if nothing is, it is remembered."""
        links, opening = _digests(flat), _opening(flat)
        line = _Line(flat.system, flat.tools, links)
        if flat.user:
            return _go_on(self._lines.setdefault(digest(flat.user.encode()), []), line, branches=1)
        if not links:
            return None
        if str(flat.links[0].block.get("text")).startswith(MARK):
            return None if opening is None else self._go_on_behind(opening, line)
        asked = self._openings.setdefault(links[0], [])
        if opening is None:
            _ask(asked, line)
            return None
        if (problem := self._misplaced(flat, opening, links)) is not None:
            return problem
        answered = _Line(line.system, line.tools, links[: opening.asked])
        problems = [one.problem(answered) for one in asked]
        if problems and all(problems):
            return problems[-1]
        branches = sum(one.sent for one, problem in zip(asked, problems, strict=True) if problem is None)
        return _go_on(self._lines.setdefault(links[opening.said - 1], []), line, branches or 1)

    def _go_on_behind(self, opening: _Opening, line: _Line) -> str | None:
        return _go_on(self._lines.setdefault(line.links[opening.said - 1], []), line, branches=1)

    def _misplaced(self, flat: Flat, opening: _Opening, links: list[Digest]) -> str | None:
        """Whether the model's first message is one of ours that answered something else."""
        first = flat.links[opening.asked : opening.said]
        given_to = self._answers.get(digest(*(link.said for link in first)))
        before = links[opening.asked - 1]
        return ANSWERED.format(at=first[0].message) if given_to is not None and before not in given_to else None


@dataclass(frozen=True, slots=True)
class _Opening:
    """Numbers of blocks: what was asked first, and what has been said with the model's first message."""

    asked: int
    said: int


def _ask(asked: list[_Line], line: _Line) -> None:
    """A request without any answer in it: it may be a retry, or the first of a new thread."""
    for one in asked:
        if one.links == line.links and one.problem(line) is None:
            one.sent += 1
            return
    asked.append(line)


def _go_on(lines: list[_Line], line: _Line, branches: int) -> str | None:
    """Put `line` in the place of the conversation that it extends, or beside the others if there is room."""
    problem = None
    for index, one in enumerate(lines):
        problem = one.problem(line)
        if problem is None:
            lines[index] = line
            return None
    if len(lines) >= branches:
        return problem
    lines.append(line)
    return None


def _digests(flat: Flat) -> list[Digest]:
    """One digest for every block, each bound to all before it."""
    found: list[Digest] = []
    last = b""
    for link in flat.links:
        last = digest(last, link.role.encode(), link.said)
        found.append(last)
    return found


def _opening(flat: Flat) -> _Opening | None:
    """Where the model's first message lies, if there is one."""
    first = next((at for at, link in enumerate(flat.links) if link.role == "assistant"), None)
    if first is None:
        return None
    message = flat.links[first].message
    return _Opening(first, sum(1 for link in flat.links if link.message <= message))


def _common(left: list[Digest], right: list[Digest]) -> int:
    """How many links at the start both have."""
    for index, (one, other) in enumerate(zip(left, right, strict=False)):
        if one != other:
            return index
    return min(len(left), len(right))
