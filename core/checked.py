"""What of a history need not be looked at again: its front, up to the last words that answer no call.

Rules are about single blocks, about neighbours, and about ids that come once. So if a front was found whole, and what
follows begins with such words, is whole by itself and takes none of the front's ids, then all of it is whole. A front
is known by its messages themselves, not by what they hold: whatever was changed or read anew is checked anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from core.validator_rules import blocks_of

PLAIN = frozenset({"text", "tool_use", "thinking", "redacted_thinking"})
"""Blocks about which no rule counts over the whole request; of results those that are text."""


class Checked:
    """The front of one turn's history."""

    def __init__(self) -> None:
        self._front: Sequence[Mapping[str, Any]] = ()
        self._ids: frozenset[str] = frozenset()

    def found_whole(self, messages: Sequence[Mapping[str, Any]]) -> None:
        """All of these messages were checked, and nothing had to change."""
        self._front = messages[: _last_fresh(messages)]
        self._ids = frozenset(_ids(self._front))

    def unknown(self, messages: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
        """The messages that have to be checked, so that all of them are."""
        front = self._front
        if not front or any(one is not other for one, other in zip(front, messages, strict=False)):
            return messages
        rest = messages[len(front) :]
        return rest if rest and _is_plain(rest) and self._ids.isdisjoint(_ids(rest)) else messages


def _blocks(messages: Iterable[Mapping[str, Any]]) -> Iterable[Mapping[str, Any]]:
    return (block for message in messages for block in blocks_of(message["content"]))


def _ids(messages: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    return (str(block["id"]) for block in _blocks(messages) if block.get("type") == "tool_use")


def _is_plain(messages: Iterable[Mapping[str, Any]]) -> bool:
    return all(
        block.get("type") in PLAIN or (block.get("type") == "tool_result" and isinstance(block.get("content"), str))
        for block in _blocks(messages)
    )


def _last_fresh(messages: Sequence[Mapping[str, Any]]) -> int:
    """Where the last message of the user's side is that answers no call."""
    for at in range(len(messages) - 1, 0, -1):
        message = messages[at]
        if message["role"] == "user" and not any(block["type"] == "tool_result" for block in _blocks([message])):
            return at
    return 0
