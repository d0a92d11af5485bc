"""R70, R71, R75: values that can't be written as JSON for everybody, replaced by ones that can.

Half characters and NUL become U+FFFD; numbers that JSON lacks, bytes and foreign objects become text. Each
changed text carries our mark, ids, names and types excepted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from core.repair_lines import NotRepairable, Scene
from core.repair_words import MARK, marked
from core.validator_request import BODY_FIELDS, writable_problems
from core.validator_rules import MAX_DEPTH, MAX_INT_BITS, SURROGATE, UNWRITABLE

UNWRITABLE_RULES: Final = frozenset({"R70", "R71", "R75"})
UNMARKED: Final = frozenset({"type", "id", "tool_use_id", "name", "role", "media_type", "signature"})
PIECE_DIGITS: Final = 4_000
PIECE: Final = 10**PIECE_DIGITS
BLOCK_DEPTH: Final = 3
"""How deep a block's own fields lie under `messages`; deeper, `name` and `id` are somebody's arguments."""


def writable(request: Mapping[str, Any], scene: Scene) -> list[Any]:
    """The messages, writable; the other parts of the request go to the scene's changes when they need it."""
    found = list(writable_problems(request)) if UNWRITABLE_RULES & scene.broken else []
    for problem in found:
        scene.note(problem.rule, problem.path, "replaced by a marked text that can be written")
    if not found:
        return list(request["messages"])
    for name in BODY_FIELDS:
        if name != "messages" and any(problem.path.split(".")[0] == name for problem in found):
            scene.changes[name] = _clean(request[name], 0, mark=False)
    cleaned = _clean(list(request["messages"]), 0, mark=True)
    return list(cleaned)


def _clean(value: Any, depth: int, *, mark: bool) -> Any:
    if depth > MAX_DEPTH:
        raise NotRepairable(f"A value is nested deeper than {MAX_DEPTH} levels: shorten it where it came in.")
    if isinstance(value, str):
        return _clean_text(value, mark=mark)
    if isinstance(value, Mapping):
        return _clean_mapping(value, depth, mark=mark)
    if isinstance(value, list | tuple):
        return [_clean(each, depth + 1, mark=mark) for each in value]
    if isinstance(value, set | frozenset):
        return [_clean(each, depth + 1, mark=mark) for each in sorted(value, key=repr)]
    return _clean_scalar(value)


def _clean_mapping(value: Mapping[Any, Any], depth: int, *, mark: bool) -> dict[str, Any]:
    cleaned: dict[str, Any] = {}
    for key, each in value.items():
        name = _clean_text(key if isinstance(key, str) else str(key), mark=mark and depth > BLOCK_DEPTH)
        while name in cleaned:
            name += "_2"
        own = mark and not (depth <= BLOCK_DEPTH and name in UNMARKED)
        cleaned[name] = _clean(each, depth + 1, mark=own)
    return cleaned


def _clean_text(text: str, *, mark: bool) -> str:
    """Two halves that belong together become the character that they are."""
    if not UNWRITABLE.search(text):
        return text
    if SURROGATE.search(text):
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    text = text.replace("\x00", "\ufffd")
    return marked(text) if mark else text


def _clean_scalar(value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if value.bit_length() <= MAX_INT_BITS else f"{MARK} {digits_of(value)}"
    if isinstance(value, float):
        return value if math.isfinite(value) else f"{MARK} {value}"
    if isinstance(value, bytes | bytearray):
        return _clean_text(f"{MARK} " + bytes(value).decode("utf-8", "replace"), mark=True)
    text = str(value)
    if " at 0x" in text:
        text = f"a value of the type {type(value).__name__}"
    return _clean_text(f"{MARK} {text}", mark=True)


def digits_of(value: int) -> str:
    """The decimal digits of a number that Python refuses to write in one piece."""
    rest, pieces = abs(value), []
    while rest >= PIECE:
        rest, piece = divmod(rest, PIECE)
        pieces.append(f"{piece:0{PIECE_DIGITS}d}")
    return ("-" if value < 0 else "") + str(rest) + "".join(reversed(pieces))
