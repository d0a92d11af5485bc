"""Rules that look at one message or one block alone: fields, types, ids, names, texts, pictures.

R02 R08 R09 R07      roles, content, block types, required and unknown fields
R10 R11              empty and blank texts, nested ones too
R25 R26 R27 R28 R37  who may say what; ids, inputs, names
R29 R30              what a result may hold
R40 R41              thinking that can't be sent
R60 R61 R62 R63      pictures
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from core.validator_images import base64_image, look_at
from core.validator_rules import (
    CALL_ID,
    IMAGE_SOURCES,
    IMAGE_TYPES,
    NARROW_TOOL_NAME,
    RESULT_PARTS,
    SERVER_ID,
    SERVER_RESULT_OF,
    SERVER_RESULTS,
    SHAPES,
    THINKING,
    Limits,
    Problem,
    Profile,
    Spot,
)

ROLES: Final = frozenset({"user", "assistant"})
MESSAGE_FIELDS: Final = frozenset({"role", "content"})
EXTRA: Final = "Extra inputs are not permitted"
REQUIRED: Final = "Field required"


def _at(rule: str, path: str, text: str) -> Problem:
    return Problem(rule, path, f"{path}: {text}")


def message_problems(
    message: Any, at: int, spots: Sequence[Spot], profile: Profile, *, system_allowed: bool, last: bool
) -> Iterator[Problem]:
    """Everything that is wrong with one message by itself. `spots` are its blocks."""
    path = f"messages.{at}"
    if not isinstance(message, dict):
        yield _at("R09", path, "Input should be a valid dictionary or object to extract fields from")
        return
    role = message.get("role")
    yield from _role_problems(role, at, system_allowed)
    for field in message:
        if field == "clear_at":
            yield from _clear_at_problems(message, path, system_allowed)
        elif field not in MESSAGE_FIELDS:
            yield _at("R07", f"{path}.{field}", EXTRA)
    yield from _content_problems(message, path, profile, last)
    for spot in spots:
        if not _is_plain_text(spot.block):
            yield from _block_problems(spot, role, profile)


def _is_plain_text(block: Mapping[str, Any]) -> bool:
    """The most frequent block by far, without anything that could be wrong with it."""
    text = block.get("text")
    return (
        len(block) == 2
        and block.get("type") == "text"
        and isinstance(text, str)
        and text != ""
        and not text.isspace()
    )


def _role_problems(role: Any, at: int, system_allowed: bool) -> Iterator[Problem]:
    path = f"messages.{at}"
    if isinstance(role, str) and (role in ROLES or (role == "system" and system_allowed and at > 0)):
        return
    if role == "system":
        yield _at("R02", path, "use the top-level 'system' parameter for the initial system prompt")
    elif role is None:
        yield _at("R02", f"{path}.role", REQUIRED)
    else:
        yield _at("R02", f"{path}.role", "Input should be 'user' or 'assistant'")


def _clear_at_problems(message: Mapping[str, Any], path: str, system_allowed: bool) -> Iterator[Problem]:
    if message.get("role") != "system":
        yield _at("R80", f"{path}.clear_at", "clear_at is only permitted on role 'system' messages")
    elif not system_allowed:
        yield _at("R80", f"{path}.clear_at", EXTRA)


def _content_problems(message: Mapping[str, Any], path: str, profile: Profile, last: bool) -> Iterator[Problem]:
    if "content" not in message:
        yield _at("R09", f"{path}.content", REQUIRED)
        return
    content = message["content"]
    if not isinstance(content, str | list):
        yield _at("R09", f"{path}.content", "Input should be a valid list")
        return
    if isinstance(content, list):
        for index, block in enumerate(content):
            if not isinstance(block, dict):
                yield _at("R09", f"{path}.content.{index}", "Input should be a valid dictionary")
    if content in ("", []):
        yield from _empty_problems(message.get("role"), path, profile, last)


def _empty_problems(role: Any, path: str, profile: Profile, last: bool) -> Iterator[Problem]:
    if role != "assistant":
        yield Problem("R08", path, f"{path}: user messages must have non-empty content")
    elif profile is Profile.EVERYWHERE and not last:
        text = "all messages must have non-empty content except for the optional final assistant message"
        yield Problem("R08", path, f"{path}: {text}")


def _block_problems(spot: Spot, role: Any, profile: Profile) -> Iterator[Problem]:
    shape = SHAPES.get(spot.kind)
    if shape is None or not shape.roles:
        yield _unknown_type(spot.block, spot.path)
        return
    if isinstance(role, str) and role in ROLES and role not in shape.roles:
        other = "user" if role == "assistant" else "assistant"
        path = f"messages.{spot.message}"
        yield Problem("R25", spot.path, f"{path}: `{spot.kind}` blocks can only be in `{other}` messages")
    yield from field_problems(spot.block, spot.path)
    yield from _kind_problems(spot, profile)


def _unknown_type(block: Mapping[str, Any], path: str) -> Problem:
    kind = block.get("type")
    if kind is None:
        return _at("R09", f"{path}.type", REQUIRED)
    text = f"Input tag '{kind}' found using 'type' does not match any of the expected tags"
    return _at("R09", path, text)


def field_problems(block: Mapping[str, Any], path: str) -> Iterator[Problem]:
    """Missing and unknown fields of a block of a known type."""
    kind = block["type"]
    shape = SHAPES[kind]
    for field in shape.required:
        if field not in block:
            yield _at("R40" if kind in THINKING else "R09", f"{path}.{kind}.{field}", REQUIRED)
    for field in block:
        if field != "type" and field not in shape.required and field not in shape.optional:
            yield _at("R07", f"{path}.{kind}.{field}", EXTRA)


def _kind_problems(spot: Spot, profile: Profile) -> Iterator[Problem]:
    block, path = spot.block, spot.path
    match spot.kind:
        case "text":
            yield from text_problems(block, path)
        case "tool_use":
            yield from _id_problems(block, path, "id")
            yield from _name_problems(block, path, profile)
            yield from _input_problems(block, path)
        case "tool_result":
            yield from _id_problems(block, path, "tool_use_id")
            yield from _result_problems(block, path)
        case "thinking" | "redacted_thinking":
            yield from _thinking_problems(block, path)
        case "image":
            yield from _source_problems(block, path)
        case "server_tool_use":
            yield from _server_call_problems(block, path)
            yield from _input_problems(block, path)
        case "mcp_tool_use":
            yield from _input_problems(block, path)
        case kind if kind in SERVER_RESULTS:
            yield from _server_result_problems(block, path)
        case _:
            pass


def text_problems(block: Mapping[str, Any], path: str) -> Iterator[Problem]:
    """R10, R11 and R53 for one text block."""
    text = block.get("text")
    if not isinstance(text, str):
        if "text" in block:
            yield _at("R09", f"{path}.text.text", "Input should be a valid string")
    elif not text:
        if block.get("cache_control"):
            yield _at("R53", f"{path}.text", "cache_control cannot be set for empty text blocks")
        yield Problem("R10", path, "messages: text content blocks must be non-empty")
    elif not text.strip():
        yield Problem("R11", path, "messages: text content blocks must contain non-whitespace text")


def _id_problems(block: Mapping[str, Any], path: str, field: str) -> Iterator[Problem]:
    if field not in block:
        return
    value, where = block[field], f"{path}.{block['type']}.{field}"
    if not isinstance(value, str):
        yield _at("R26", where, "Input should be a valid string")
    elif not CALL_ID.fullmatch(value):
        yield _at("R26", where, "String should match pattern '^[a-zA-Z0-9_-]+$'")


def _name_problems(block: Mapping[str, Any], path: str, profile: Profile) -> Iterator[Problem]:
    if "name" not in block:
        return
    name, where = block["name"], f"{path}.tool_use.name"
    if not isinstance(name, str):
        yield _at("R28", where, "Input should be a valid string")
    elif not name:
        yield _at("R28", where, "String should have at least 1 character")
    elif len(name) > 200:
        yield _at("R28", where, "String should have at most 200 characters")
    elif profile is Profile.EVERYWHERE and not NARROW_TOOL_NAME.fullmatch(name):
        yield _at("R28", where, "String should match pattern '^[a-zA-Z0-9_-]{1,64}$'")


def _input_problems(block: Mapping[str, Any], path: str) -> Iterator[Problem]:
    if "input" in block and not isinstance(block["input"], dict):
        yield _at("R27", f"{path}.{block['type']}.input", "Input should be a valid dictionary")


def _result_problems(block: Mapping[str, Any], path: str) -> Iterator[Problem]:
    content = block.get("content", "")
    where = f"{path}.tool_result.content"
    if isinstance(content, str):
        return
    if not isinstance(content, list):
        yield _at("R29", where, "Input should be a valid string")
        return
    for index, part in enumerate(content):
        yield from _part_problems(part, f"{where}.{index}")
    if block.get("is_error") and any(_kind(part) != "text" for part in content):
        yield _at("R30", path, "all content must be type `text` if `is_error` is true")


def _kind(part: Any) -> Any:
    return part.get("type") if isinstance(part, dict) else None


def _part_problems(part: Any, path: str) -> Iterator[Problem]:
    if not isinstance(part, dict):
        yield _at("R29", path, "Input should be a valid dictionary")
    elif str(part.get("type")) not in RESULT_PARTS:
        yield Problem("R29", path, _unknown_type(part, path).problem)
    else:
        yield from field_problems(part, path)
        if part["type"] == "text":
            yield from text_problems(part, path)
        elif part["type"] == "image":
            yield from _source_problems(part, path)


def _thinking_problems(block: Mapping[str, Any], path: str) -> Iterator[Problem]:
    if block["type"] == "redacted_thinking":
        if "data" in block and not (isinstance(block["data"], str) and block["data"]):
            yield Problem("R42", path, f"{path}: Invalid `data` in `redacted_thinking` block")
    elif "signature" in block and not (isinstance(block["signature"], str) and block["signature"]):
        yield _at("R41", f"{path}.thinking", "each thinking block must contain thinking")
    elif "thinking" in block and not isinstance(block["thinking"], str):
        yield _at("R40", f"{path}.thinking.thinking", "Input should be a valid string")


def _source_problems(block: Mapping[str, Any], path: str) -> Iterator[Problem]:
    source = block.get("source")
    if "source" in block and not isinstance(source, dict):
        yield _at("R09", f"{path}.image.source", "Input should be a valid dictionary")
    elif isinstance(source, dict):
        field = IMAGE_SOURCES.get(str(source.get("type")))
        if field is None:
            yield _at("R09", f"{path}.image.source", "Input should be 'base64', 'url' or 'file'")
        elif not isinstance(source.get(field), str):
            yield _at("R09", f"{path}.image.source.{source['type']}.{field}", REQUIRED)


def image_problems(block: Mapping[str, Any], path: str, limits: Limits, *, many: bool) -> Iterator[Problem]:
    """R60 to R63 for one picture that carries its bytes. `many`: the request holds more than 20."""
    found = base64_image(block)
    if found is None:
        return
    media_type, data = found
    where = f"{path}.image.source.base64"
    if media_type not in IMAGE_TYPES:
        allowed = "Input should be 'image/jpeg', 'image/png', 'image/gif' or 'image/webp'"
        yield _at("R60", f"{where}.media_type", allowed)
        return
    picture = look_at(data) if isinstance(data, str) else None
    if picture is None or picture.media_type is None:
        yield Problem("R62", path, "Could not process image")
    elif picture.media_type != media_type:
        text = f"Image does not match the provided media type {media_type}"
        yield _at("R61", f"{where}.data", text)
    else:
        yield from _size_problems(len(data), picture.longest, path, limits, many)


def _size_problems(size: int, longest: int, path: str, limits: Limits, many: bool) -> Iterator[Problem]:
    if size > limits.image_bytes:
        text = f"image exceeds {limits.image_bytes // 1024 // 1024} MB maximum"
        yield _at("R63", path, f"{text}: {size} bytes > {limits.image_bytes} bytes")
    over = "At least one of the image dimensions exceed max allowed size"
    if longest > limits.image_pixels:
        yield _at("R63", path, f"{over}: {limits.image_pixels} pixels")
    elif many and longest > limits.many_image_pixels:
        yield _at("R63", path, f"{over} for many-image requests: {limits.many_image_pixels} pixels")


def _server_call_problems(block: Mapping[str, Any], path: str) -> Iterator[Problem]:
    where = f"{path}.server_tool_use"
    value = block.get("id", "srvtoolu_0")
    if not isinstance(value, str) or not SERVER_ID.fullmatch(value):
        yield _at("R37", f"{where}.id", "String should match pattern '^srvtoolu_[a-zA-Z0-9_]+$'")
    name = block.get("name", "web_search")
    if not isinstance(name, str) or name not in SERVER_RESULT_OF:
        known = ", ".join(f"'{each}'" for each in SERVER_RESULT_OF)
        yield _at("R37", f"{where}.name", f"Input should be {known}")


def _server_result_problems(block: Mapping[str, Any], path: str) -> Iterator[Problem]:
    content = block.get("content")
    if block["type"] != "web_search_tool_result" or not isinstance(content, list):
        return
    for index, item in enumerate(content):
        where = f"{path}.web_search_tool_result.content.{index}.encrypted_content"
        if not isinstance(item, dict) or "encrypted_content" not in item:
            yield _at("R09", where, REQUIRED)
        elif not isinstance(item["encrypted_content"], str) or not item["encrypted_content"]:
            yield Problem("R09", where, f"{path}: Invalid `encrypted_content` in `search_result` block")
