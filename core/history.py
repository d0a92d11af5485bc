"""The history with the model: committed entries, and the request messages that they project to.

The history is append-only. Each request's flattened list of (role, block) is a prefix of the next one's; the last
user message may grow until the model has answered on it. Entries of one role that follow each other are one
message, so results and the words of a steer behind them travel together, results first.

Two kinds of entries hold whole messages instead of blocks, and the projection begins anew with the last of them:
`mended` is what the suture made of the history in front of it, or that history without thinking that can't be sent
any more; `condensed` is a shorter form of it. Nothing is edited, and what was chosen once holds from then on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import count
from typing import Any


class EntryKind(StrEnum):
    """What an entry is. `ladder` is what the remediation ladder says to the model: user-side, and marked."""

    USER = "user"
    ASSISTANT = "assistant"
    RESULTS = "results"
    LADDER = "ladder"
    MENDED = "mended"
    CONDENSED = "condensed"


BEGINNINGS = frozenset({EntryKind.MENDED, EntryKind.CONDENSED})
"""Entries whose body is the whole history up to there, as messages."""
THINKING = frozenset({"thinking", "redacted_thinking"})


@dataclass(frozen=True, slots=True)
class Entry:
    """One committed entry."""

    id: str
    kind: EntryKind
    step: int
    body: Sequence[Mapping[str, Any]]


def role_of(kind: EntryKind) -> str:
    """The role under which the model API sees an entry."""
    return "assistant" if kind is EntryKind.ASSISTANT else "user"


def append(messages: list[dict[str, Any]], kind: EntryKind, body: Sequence[Mapping[str, Any]]) -> None:
    """Append one entry to projected messages, joining it to the last message if that has the same role."""
    role = role_of(kind)
    if messages and messages[-1]["role"] == role:
        messages[-1] = {"role": role, "content": [*messages[-1]["content"], *body]}
    else:
        messages.append({"role": role, "content": list(body)})


def project(entries: Iterable[Entry]) -> list[dict[str, Any]]:
    """The messages of a request, from the entries in order."""
    messages: list[dict[str, Any]] = []
    for entry in entries:
        if entry.kind in BEGINNINGS:
            messages = [dict(message) for message in entry.body]
        else:
            append(messages, entry.kind, entry.body)
    return messages


def has_thinking(messages: Iterable[Mapping[str, Any]]) -> bool:
    """Whether any thinking would be sent."""
    return any(len(said(message["content"])) < len(message["content"]) for message in messages)


def without_thinking(messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The messages without any thinking; one that held nothing else is left out."""
    kept: list[dict[str, Any]] = []
    for message in messages:
        blocks = said(message["content"])
        if blocks:
            kind = EntryKind.ASSISTANT if message["role"] == "assistant" else EntryKind.USER
            append(kept, kind, blocks)
    return kept


def said(content: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """What an answer says and does, without what was thought on the way."""
    return [block for block in content if not (isinstance(block, Mapping) and str(block.get("type")) in THINKING)]


def flatten(messages: Iterable[Mapping[str, Any]]) -> list[tuple[str, Mapping[str, Any]]]:
    """The list of (role, block) that law 1 speaks of."""
    return [(str(message["role"]), block) for message in messages for block in message["content"]]


def text_of(content: Iterable[Mapping[str, Any]]) -> str:
    """What an answer says in words."""
    return "\n\n".join(str(block["text"]) for block in content if block.get("type") == "text").strip()


def calls_of(content: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The tool calls of an answer, in order."""
    return [block for block in content if isinstance(block, Mapping) and block.get("type") == "tool_use"]


def with_own_ids(content: Sequence[Mapping[str, Any]], messages: Iterable[Mapping[str, Any]]) -> Sequence[Any]:
    """`content`, each of whose calls has an id of its own: one that was used before gets a number behind it.

    The API never repeats an id. A repeated one would have to be renamed in front of every later request.
    """
    used = {str(block.get("id")) for message in messages for block in calls_of(message["content"])}
    made: list[Mapping[str, Any]] = []
    for block in content:
        if block.get("type") == "tool_use":
            call_id = str(block["id"])
            numbers = count(2)
            own = call_id
            while own in used:
                own = f"{call_id}_{next(numbers)}"
            used.add(own)
            block = block if own == call_id else {**block, "id": own}
        made.append(block)
    return made


def result_block(call_id: str, text: str, *, is_error: bool) -> dict[str, Any]:
    """One tool result as the API takes it; empty text would be refused, so it says that there was none."""
    block: dict[str, Any] = {
        "type": "tool_result",
        "tool_use_id": call_id,
        "content": text if text.strip() else "(no output)",
    }
    if is_error:
        block["is_error"] = True
    return block


def user_block(text: str) -> dict[str, Any]:
    """A text block of the user's side."""
    return {"type": "text", "text": text if text.strip() else "(empty message)"}
