"""One streamed answer put together: events in, content blocks out, exactly as the API sent them.

Blocks are plain dicts; deltas are joined onto the block that they belong to, and unknown kinds of events,
deltas and blocks pass through, because the API grows. Three things are not kept as they came:

* NUL and lone surrogates become U+FFFD: neither PostgreSQL nor the API itself takes them back.
* A call whose input is not a JSON object (or is nested beyond `MAX_DEPTH`) gets `{}` and is named in
  `broken_calls`: the history stays valid, and the loop can tell the model.
* A number that Python can't hold (too many digits, or beyond all floats) stays the string of its digits.

`message_stop` alone makes an answer; everything before it is only progress.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Any, NoReturn

from bot.claude_errors import from_error_event
from core.errors import ModelStreamBroken
from core.messages import Block
from core.ports import ModelAnswer, StreamProgress, Usage

MAX_DEPTH = 64
"""How deep a call's input may be nested; beyond it neither we nor a database can walk it safely."""

MAX_INT_DIGITS = 4_000

TEXT_DELTAS = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
}
"""Deltas that append to a string of the block, with the field's name (the same in the delta and the block)."""

USAGE_FIELDS = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
"""The API's names, in the order of the fields of `core.ports.Usage`."""


class _TooDeep(ValueError):
    """A JSON value is nested deeper than `MAX_DEPTH`."""


def _integer(digits: str) -> int | str:
    return int(digits) if len(digits) <= MAX_INT_DIGITS else digits


def _number(digits: str) -> float | str:
    value = float(digits)
    return value if math.isfinite(value) else digits


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_decode = json.JSONDecoder(parse_int=_integer, parse_float=_number, parse_constant=_no_constant).decode


def clean_text(text: str) -> str:
    """`text` without NUL and without lone surrogates; surrogate pairs become the character they mean."""
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def clean(value: Any, depth: int = MAX_DEPTH) -> Any:
    """`value` with every string cleaned. Raises ValueError when it is nested too deep."""
    if isinstance(value, str):
        return clean_text(value)
    if not isinstance(value, dict | list):
        return value
    if depth == 0:
        raise _TooDeep(f"nested deeper than {MAX_DEPTH}")
    if isinstance(value, dict):
        return {clean_text(key): clean(item, depth - 1) for key, item in value.items()}
    return [clean(item, depth - 1) for item in value]


@dataclass(slots=True)
class _OpenBlock:
    block: Block
    strings: dict[str, list[str]] = field(default_factory=dict)
    input_json: list[str] | None = None


class Assembly:
    """Takes the events of one stream in order; `done` once `message_stop` has arrived."""

    def __init__(self, progress: StreamProgress) -> None:
        self.done = False
        self._progress = progress
        self._model = ""
        self._stop_reason: str | None = None
        self._usage = dict.fromkeys(USAGE_FIELDS, 0)
        self._blocks: dict[int, _OpenBlock] = {}

    def take(self, name: str, data: str) -> None:
        """One event. Raises a `ModelError` for an `error` event and for what is not an event at all."""
        try:
            event = _decode(data)
            kind = event.get("type") or name
            handler = _HANDLERS.get(kind)
            if handler is not None:
                handler(self, event)
        except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
            reason = f"{type(error).__name__} in event {name or '(unnamed)'}: {data[:120]!r}"
            raise ModelStreamBroken(f"The model sent an event that can't be read: {reason}") from error

    def answer(self) -> ModelAnswer:
        """The whole answer. Raises `ModelStreamBroken` when the stream ended before it was whole."""
        if not self.done:
            raise ModelStreamBroken("The model's stream ended without message_stop.")
        if self._stop_reason is None:
            raise ModelStreamBroken("The model's stream ended without a stop reason.")
        broken: set[str] = set()
        content = [_close(self._blocks[index], broken) for index in sorted(self._blocks)]
        read, written, cached, stored = (self._usage[name] for name in USAGE_FIELDS)
        usage = Usage(read, written, cached, stored)
        return ModelAnswer(content, self._stop_reason, usage, self._model, frozenset(broken))

    def _message_start(self, event: dict[str, Any]) -> None:
        message = event["message"]
        self._model = message["model"]
        self._count(message.get("usage"))
        self._progress.started = True

    def _block_start(self, event: dict[str, Any]) -> None:
        block = event["content_block"]
        if block["type"] == "tool_use" and not (block["id"] and block["name"]):
            raise ValueError("a call without id or name")
        self._blocks[event["index"]] = _OpenBlock(block)

    def _block_delta(self, event: dict[str, Any]) -> None:
        opened = self._blocks[event["index"]]
        delta = event["delta"]
        kind = delta["type"]
        if kind == "input_json_delta":
            piece = delta["partial_json"]
            opened.input_json = [] if opened.input_json is None else opened.input_json
            opened.input_json.append(piece)
            self._progress.output_chars += len(piece)
        elif (name := TEXT_DELTAS.get(kind)) is not None:
            piece = delta[name]
            opened.strings.setdefault(name, []).append(piece)
            self._progress.output_chars += len(piece) if name != "signature" else 0
        elif kind == "citations_delta":
            opened.block["citations"] = [*(opened.block.get("citations") or ()), delta["citation"]]

    def _message_delta(self, event: dict[str, Any]) -> None:
        self._stop_reason = event["delta"].get("stop_reason") or self._stop_reason
        self._count(event.get("usage"))

    def _message_stop(self, event: dict[str, Any]) -> None:
        self.done = True

    def _error(self, event: dict[str, Any]) -> None:
        error = event.get("error") or {}
        raise from_error_event(str(error.get("type", "")), str(error.get("message", "")))

    def _count(self, usage: dict[str, Any] | None) -> None:
        """Counts are totals so far: a later one replaces an earlier one, a missing one changes nothing."""
        for name in USAGE_FIELDS:
            value = (usage or {}).get(name)
            if isinstance(value, int):
                self._usage[name] = value
        self._progress.input_tokens = self._usage["input_tokens"]
        self._progress.cache_read_tokens = self._usage["cache_read_input_tokens"]
        self._progress.cache_write_tokens = self._usage["cache_creation_input_tokens"]


_HANDLERS = {
    "message_start": Assembly._message_start,
    "content_block_start": Assembly._block_start,
    "content_block_delta": Assembly._block_delta,
    "message_delta": Assembly._message_delta,
    "message_stop": Assembly._message_stop,
    "error": Assembly._error,
}
"""`ping`, `content_block_stop` and events that the API will have one day need nothing."""


def _clean_block(block: Block) -> Block:
    return {name: clean(value) for name, value in block.items()}


def _close(opened: _OpenBlock, broken: set[str]) -> Block:
    block = opened.block
    for name, pieces in opened.strings.items():
        block[name] = (block.get(name) or "") + "".join(pieces)
    if opened.input_json is None and block["type"] != "tool_use":
        return _clean_block(block)
    given = block.pop("input", {})
    closed = _clean_block(block)
    try:
        text = "".join(opened.input_json or ())
        found = clean(_decode(text) if text.strip() else given)
        if not isinstance(found, dict):
            raise ValueError("the input is not an object")
    except (ValueError, RecursionError):
        found = {}
        broken.add(str(closed.get("id", "")))
    return closed | {"input": found}
