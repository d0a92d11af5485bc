"""The tables behind the validator: which blocks exist, what each may carry, and how large things may be.

A rule has the code that the facts about the Messages API give it (R01 to R80); a `Problem` carries the API's
own words, so that whatever classifies a refusal by its text sees the same text from the scripted model.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple


class Profile(StrEnum):
    """Who has to accept the request: every endpoint that speaks the Messages API, or Anthropic's own."""

    EVERYWHERE = "everywhere"
    FIRST_PARTY = "first-party"


@dataclass(frozen=True, slots=True)
class Problem:
    """One reason for a refusal. `path` as the API writes it; `problem` is the API's own error text."""

    rule: str
    path: str
    problem: str


@dataclass(frozen=True, slots=True)
class Shape:
    """What one type of block must and may carry, and which roles may say it."""

    required: tuple[str, ...]
    optional: frozenset[str]
    roles: frozenset[str]


USER: Final = frozenset({"user"})
ASSISTANT: Final = frozenset({"assistant"})
BOTH: Final = frozenset({"user", "assistant", "system"})
NESTED: Final[frozenset[str]] = frozenset()


def _shape(roles: frozenset[str], required: str, optional: str = "cache_control") -> Shape:
    return Shape(tuple(required.split()), frozenset(optional.split()), roles)


SERVER_RESULT_OF: Final[Mapping[str, str]] = {
    "web_search": "web_search_tool_result",
    "web_fetch": "web_fetch_tool_result",
    "code_execution": "code_execution_tool_result",
    "bash_code_execution": "bash_code_execution_tool_result",
    "text_editor_code_execution": "text_editor_code_execution_tool_result",
    "tool_search_tool_regex": "tool_search_tool_result",
    "tool_search_tool_bm25": "tool_search_tool_result",
    "advisor": "advisor_tool_result",
}
"""The tools that the API runs itself, and the block that answers each."""

SERVER_CALLS: Final = frozenset({"server_tool_use", "mcp_tool_use"})
SERVER_RESULTS: Final = frozenset({*SERVER_RESULT_OF.values(), "mcp_tool_result"})
THINKING: Final = frozenset({"thinking", "redacted_thinking"})

SHAPES: Final[Mapping[str, Shape]] = {
    "text": _shape(BOTH, "text", "cache_control citations"),
    "image": _shape(USER, "source"),
    "document": _shape(USER, "source", "cache_control citations context title"),
    "search_result": _shape(USER, "content source title", "cache_control citations"),
    "container_upload": _shape(USER, "file_id"),
    "tool_result": _shape(USER, "tool_use_id", "cache_control content is_error"),
    "tool_reference": _shape(NESTED, "tool_name"),
    "tool_use": _shape(ASSISTANT, "id name input", "cache_control caller"),
    "thinking": _shape(ASSISTANT, "thinking signature", ""),
    "redacted_thinking": _shape(ASSISTANT, "data", ""),
    "compaction": _shape(ASSISTANT, "content", "cache_control encrypted_content"),
    "server_tool_use": _shape(ASSISTANT, "id name input", "cache_control caller"),
    "mcp_tool_use": _shape(ASSISTANT, "id name input server_name"),
    "mcp_tool_result": _shape(ASSISTANT, "tool_use_id", "cache_control content is_error"),
    **{
        kind: _shape(ASSISTANT, "tool_use_id content", "cache_control caller")
        for kind in sorted(set(SERVER_RESULT_OF.values()))
    },
}

RESULT_PARTS: Final = frozenset({"text", "image", "document", "search_result", "tool_reference"})
IMAGE_SOURCES: Final[Mapping[str, str]] = {"base64": "data", "url": "url", "file": "file_id"}
"""The kinds of sources of a picture, and the field that each needs."""
IMAGE_TYPES: Final = ("image/jpeg", "image/png", "image/gif", "image/webp")

CALL_ID: Final = re.compile(r"[a-zA-Z0-9_-]+")
SERVER_ID: Final = re.compile(r"srvtoolu_[a-zA-Z0-9_]+")
TOOL_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,128}")
NARROW_TOOL_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
SURROGATE: Final = re.compile("[\ud800-\udfff]")
UNWRITABLE: Final = re.compile("[\x00\ud800-\udfff]")

MAX_CACHE_MARKS: Final = 4
MAX_DEPTH: Final = 200
"""Deeper values are nobody's arguments, and recursion over them ends in the interpreter's own limit."""
MAX_INT_BITS: Final = 14_000
"""About 4,200 decimal digits: above, Python refuses to write the number out."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The API's sizes. A request may carry smaller ones under `limits`, which is how tests stay small."""

    max_messages: int = 100_000
    max_bytes: int = 32 * 1024 * 1024
    many_images: int = 20
    image_bytes: int = 5 * 1024 * 1024
    image_pixels: int = 8000
    many_image_pixels: int = 2000


ALIASES: Final[Mapping[str, str]] = {
    "max_image_bytes": "image_bytes",
    "max_image_pixels": "image_pixels",
    "max_image_px": "image_pixels",
    "image_px": "image_pixels",
    "max_dimension": "image_pixels",
    "max_image_dimension": "image_pixels",
    "many_images_pixels": "many_image_pixels",
    "many_images_px": "many_image_pixels",
    "many_image_px": "many_image_pixels",
    "max_many_image_pixels": "many_image_pixels",
    "max_images": "many_images",
}
"""Other names under which a request may carry smaller limits."""


def limits_of(request: Mapping[str, Any]) -> Limits:
    """The limits that hold for `request`; what it doesn't name keeps the API's value."""
    given = request.get("limits")
    if not isinstance(given, Mapping):
        return Limits()
    named = {ALIASES.get(str(name), str(name)): value for name, value in given.items()}
    known = {name: value for name, value in named.items() if name in Limits.__slots__ and type(value) is int}
    return Limits(**{name: value for name, value in known.items() if value > 0})


class Spot(NamedTuple):
    """One block and where it stands. A tuple, because there is one for every block of a long history."""

    message: int
    number: int
    kind: str
    block: Mapping[str, Any]

    @property
    def path(self) -> str:
        return f"messages.{self.message}.content.{self.number}"


@dataclass(frozen=True, slots=True)
class Group:
    """What the API sees as one message: with the profile first-party, neighbours of one role together."""

    message: int
    role: str
    spots: list[Spot]


def blocks_of(content: Any) -> list[Mapping[str, Any]]:
    """The content as blocks: a string is one text block, an empty one none; what is not a block is left out."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    if isinstance(content, list):
        return [block for block in content if isinstance(block, dict)]
    return []


def spots_of(message: Any, at: int) -> list[Spot]:
    """Every block of a message with its place."""
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, str):
        return [Spot(at, 0, "text", block) for block in blocks_of(content)]
    if not isinstance(content, list):
        return []
    return [Spot(at, index, kind_of(block), block) for index, block in enumerate(content) if isinstance(block, dict)]


def kind_of(block: Mapping[str, Any]) -> str:
    """The type of a block, empty when it names none."""
    kind = block.get("type")
    return kind if isinstance(kind, str) else ""


def all_spots(messages: list[Any]) -> list[list[Spot]]:
    """The blocks of every message."""
    return [spots_of(message, at) for at, message in enumerate(messages)]


def groups_of(messages: list[Any], profile: Profile, spots_by_message: list[list[Spot]] | None = None) -> list[Group]:
    """The messages as `profile` pairs them; what is no message is left out."""
    groups: list[Group] = []
    for at, spots in enumerate(spots_by_message or all_spots(messages)):
        message = messages[at]
        if not isinstance(message, dict):
            continue
        role = str(message.get("role"))
        if profile is Profile.FIRST_PARTY and groups and groups[-1].role == role:
            groups[-1].spots.extend(spots)
        else:
            groups.append(Group(at, role, list(spots)))
    return groups
