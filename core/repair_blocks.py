"""Blocks that stand in the wrong message or can't be sent at all.

place      R25             what only the other role may say becomes a message of that role
unusable   R40 R41 R42     half thinking goes
           R10 R11         blank texts go; a result whose output was blank says so
pictures   R60 to R63      a picture that can't be read is replaced by a sentence that says why
empty      R08             messages without blocks go, except where the place itself is needed
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from core.messages import Block
from core.repair_lines import Line, Scene, text_block
from core.repair_words import EMPTY_FIRST, NO_OUTPUT, as_text, foreign_block, picture_removed
from core.validator_images import Picture, base64_image, look_at
from core.validator_rules import IMAGE_TYPES, SHAPES, THINKING, Limits

MANY: Final = "too large for a request with many images"
REFUSED: Final = "the model API could not process it"


def place(lines: list[Line], scene: Scene) -> list[Line]:
    """R25: split each line where the right of its role to speak ends."""
    placed: list[Line] = []
    for line in lines:
        if all(line.role in SHAPES[block["type"]].roles for block in line.blocks):
            placed.append(line)
        else:
            placed.extend(_split_by_role(line, scene))
    return placed


def _split_by_role(line: Line, scene: Scene) -> list[Line]:
    parts: list[Line] = []
    for block in line.blocks:
        roles = SHAPES[block["type"]].roles
        role = line.role if line.role in roles else min(roles)
        if role != line.role:
            scene.note("R25", line.path, f"a {block['type']} block belongs to a message of the {role}")
            if block["type"] in THINKING:
                continue
        if parts and parts[-1].role == role:
            parts[-1].blocks.append(block)
        else:
            parts.append(Line(line.at, role, [block], None, line.fields if role == line.role else {}))
    return parts


def unusable(lines: list[Line], scene: Scene) -> list[Line]:
    """R10, R11, R40, R41: what carries nothing or can't be verified is taken out."""
    return [_filtered(line, scene) for line in lines]


def _filtered(line: Line, scene: Scene) -> Line:
    blocks: list[Block] = []
    for block in line.blocks:
        rule = _reason_to_drop(block)
        if rule is not None:
            scene.note(rule, line.path, f"a {block['type']} block that can't be sent was taken out")
        elif block["type"] == "tool_result" and isinstance(block.get("content"), list):
            blocks.append(_filtered_result(block, line, scene))
        else:
            blocks.append(block)
    return Line(line.at, line.role, blocks, line.raw, line.fields)


def _reason_to_drop(block: Mapping[str, Any]) -> str | None:
    match block["type"]:
        case "text":
            return _blank(block)
        case "thinking":
            if not isinstance(block.get("thinking"), str) or "signature" not in block:
                return "R40"
            return None if isinstance(block["signature"], str) and block["signature"] else "R41"
        case "redacted_thinking":
            return None if isinstance(block.get("data"), str) and block["data"] else "R40"
        case _:
            return None


def _blank(block: Mapping[str, Any]) -> str | None:
    if not block["text"]:
        return "R10"
    return None if block["text"].strip() else "R11"


def _filtered_result(block: Block, line: Line, scene: Scene) -> Block:
    content: list[Block] = block["content"]
    kept = [part for part in content if part["type"] != "text" or _blank(part) is None]
    if len(kept) == len(content):
        return block
    scene.note("R10", line.path, "a blank text in a result was taken out")
    return {**block, "content": kept or NO_OUTPUT}


def empty(lines: list[Line], scene: Scene) -> list[Line]:
    """R08. The first message is kept as a note when the model's words follow: somebody must speak first."""
    kept: list[Line] = []
    if all(line.blocks for line in lines):
        return lines
    for index, line in enumerate(lines):
        following = next((each for each in lines[index + 1 : index + 2]), None)
        if line.blocks:
            kept.append(line)
        elif not kept and line.role == "user" and following is not None and following.role == "assistant":
            scene.note("R08", line.path, "the empty first message says that it was empty")
            kept.append(Line(line.at, "user", [text_block(EMPTY_FIRST)]))
        else:
            scene.note("R08", line.path, "a message without content was taken out")
    return kept


Look = Callable[[Block], Block]


def _each_picture(lines: list[Line], look: Look) -> list[Line]:
    """The lines with every image block, in results too, replaced by what `look` makes of it."""

    def seen(block: Block) -> Block:
        if block["type"] == "image":
            return look(block)
        content = block.get("content")
        if block["type"] != "tool_result" or not isinstance(content, list):
            return block
        parts = [look(part) if part["type"] == "image" else part for part in content]
        changed = any(new is not old for new, old in zip(parts, content, strict=True))
        return {**block, "content": parts} if changed else block

    return [Line(each.at, each.role, [seen(b) for b in each.blocks], each.raw, each.fields) for each in lines]


def pictures(lines: list[Line], scene: Scene) -> list[Line]:
    """R60 to R63, each picture by itself and then all of them together."""

    def alone(block: Block) -> Block:
        found = base64_image(block)
        return block if found is None else _readable(block, *found, scene)

    return _fewer(_each_picture(lines, alone), scene)


def no_pictures(lines: list[Line], scene: Scene) -> list[Line]:
    """R62: every picture goes, for an API that refuses one and doesn't say which."""

    def gone(_block: Block) -> Block:
        scene.note("R62", "messages", f"an image was removed: {REFUSED}")
        return text_block(picture_removed(REFUSED))

    return _each_picture(lines, gone)


def _readable(block: Block, media_type: Any, data: Any, scene: Scene) -> Block:
    if isinstance(data, str) and data.startswith("data:") and ";base64," in data[:200]:
        data = data.split(";base64,", 1)[1]
    compact = "".join(data.split()) if isinstance(data, str) else ""
    picture = look_at(compact)
    why, rule = _fault(picture, media_type, len(compact), scene.limits)
    if why:
        scene.note(rule, "messages", f"an image was removed: {why}")
        return text_block(picture_removed(why))
    if picture.media_type == media_type and compact == data:
        return block
    scene.note("R61", "messages", f"an image is called what its bytes are: {picture.media_type}")
    return {**block, "source": {"type": "base64", "media_type": picture.media_type, "data": compact}}


def _fault(picture: Picture, media_type: Any, size: int, limits: Limits) -> tuple[str, str]:
    """(why, rule) of a picture that can't be sent, ("", "") when it can."""
    if picture.media_type is None and media_type not in IMAGE_TYPES:
        return f"type {as_text(media_type)} is not supported", "R60"
    if picture.media_type is None:
        return "its data is not a readable image", "R62"
    if size > limits.image_bytes:
        return f"{size} bytes are more than {limits.image_bytes}", "R63"
    if picture.longest > limits.image_pixels:
        return f"{picture.longest} pixels are more than {limits.image_pixels}", "R63"
    return "", ""


def _fewer(lines: list[Line], scene: Scene) -> list[Line]:
    """R63: with many pictures in one request the large ones go, the oldest first, until they are few."""
    limits = scene.limits
    sizes: list[int] = []

    def measure(block: Block) -> Block:
        found = base64_image(block)
        sizes.append(look_at(found[1]).longest if found else 0)
        return block

    _each_picture(lines, measure)
    surplus = len(sizes) - limits.many_images
    large = [at for at, longest in enumerate(sizes) if longest > limits.many_image_pixels]
    doomed = set(large[: max(0, surplus)])
    if not doomed:
        return lines
    place_of = iter(range(len(sizes)))

    def thin_out(block: Block) -> Block:
        if next(place_of) not in doomed:
            return block
        scene.note("R63", "messages", f"an image was removed: {MANY}")
        return text_block(picture_removed(MANY))

    return _each_picture(lines, thin_out)


def errors_hold_text(lines: list[Line], scene: Scene) -> list[Line]:
    """R30: what a failed tool sent along moves behind the results; the error flag stays."""
    return [_without_error_parts(line, scene) if line.role == "user" else line for line in lines]


def _without_error_parts(line: Line, scene: Scene) -> Line:
    moved: list[Block] = []
    blocks: list[Block] = []
    for block in line.blocks:
        content = block.get("content")
        parts = content if block["type"] == "tool_result" and isinstance(content, list) else []
        foreign = [part for part in parts if part["type"] != "text"]
        if not block.get("is_error") or not foreign:
            blocks.append(block)
            continue
        scene.note("R30", line.path, "what was no text moved from an error result to behind the results")
        texts = [part for part in parts if part["type"] == "text"]
        blocks.append({**block, "content": texts or "[suture] The tool reported an error without a text."})
        moved.extend(_standing_alone(part) for part in foreign)
    if not moved:
        return line
    at = sum(1 for block in blocks if block["type"] == "tool_result")
    return Line(line.at, line.role, [*blocks[:at], *moved, *blocks[at:]], line.raw, line.fields)


def _standing_alone(part: Block) -> Block:
    if part["type"] == "tool_reference":
        return text_block(foreign_block("tool_reference", {"tool_name": part.get("tool_name")}))
    return part
