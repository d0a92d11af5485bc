"""A reply as the Messages API streams it: `message_start`, blocks in deltas, `message_delta`, `message_stop`.

The details that clients stumble over are there: a `ping` after the first block has started, an empty first piece
of a call's input, pieces that end in the middle of a string or of an escape, the signature as a delta of its own,
token counts at the start and again, final, at the end.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from bot.playground.model.chain import Binding
from bot.playground.model.reply import MESSAGE_STOP, MIDDLE, Call, Part, Place, Reply, Text, Thought
from core.messages import Block
from core.validator_rules import SURROGATE

CHARS_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class Frame:
    """One SSE event. `chars` is how much of the answer it brings; `delta` says whether it is one."""

    data: bytes
    chars: int = 0
    delta: bool = False


@dataclass(slots=True)
class Stream:
    """All events of one reply, and the message that they make."""

    id: str
    model: str
    content: list[Block]
    stop_reason: str
    usage: dict[str, int]
    frames: list[Frame] = field(default_factory=list)

    def place(self, at: Place | int) -> int:
        """`at` as a number of events already sent; beyond the end it is the end."""
        if at is MESSAGE_STOP:
            return len(self.frames) - 1
        if at is MIDDLE:
            deltas = [number for number, frame in enumerate(self.frames) if frame.delta]
            return deltas[len(deltas) // 2] if deltas else 1
        return 0 if isinstance(at, Place) else min(at, len(self.frames))

    def message(self) -> dict[str, Any]:
        """The same answer as one object, for a client that does not stream."""
        return _message(self) | {"content": self.content, "stop_reason": self.stop_reason, "usage": self.usage}


def event(kind: str, **fields: Any) -> bytes:
    """One SSE event as bytes."""
    value = {"type": kind, **fields}
    data = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if SURROGATE.search(data):
        data = json.dumps(value, separators=(",", ":"))
    return f"event: {kind}\ndata: {data}\n\n".encode()


def new_id(prefix: str) -> str:
    """An id as the API makes them."""
    return f"{prefix}_01{secrets.token_hex(11)}"


def stream_of(reply: Reply, model: str, input_usage: Mapping[str, int], binding: Binding) -> Stream:
    """The stream for `reply`. Thinking is signed by `binding`, which must stand at the end of the request."""
    content = [_block(part, binding) for part in reply.parts]
    called = any(isinstance(part, Call) for part in reply.parts)
    chars = sum(_size(part) for part in reply.parts)
    counted = {**input_usage, "output_tokens": max(1, chars // CHARS_PER_TOKEN), **(reply.usage or {})}
    reason = reply.stop_reason or ("tool_use" if called else "end_turn")
    stream = Stream(new_id("msg"), model, content, reason, counted)
    stream.frames = list(_frames(reply, stream))
    return stream


def _frames(reply: Reply, stream: Stream) -> Iterator[Frame]:
    yield Frame(event("message_start", message=_message(stream)))
    for index, (part, block) in enumerate(zip(reply.parts, stream.content, strict=True)):
        yield Frame(event("content_block_start", index=index, content_block=_empty(part, block)))
        if index == 0:
            yield Frame(event("ping"))
        for delta, chars in _deltas(part, block, reply.delta_chars):
            yield Frame(event("content_block_delta", index=index, delta=delta), chars, delta=chars > 0)
        yield Frame(event("content_block_stop", index=index))
    delta = {"stop_reason": stream.stop_reason, "stop_sequence": None}
    yield Frame(event("message_delta", delta=delta, usage=stream.usage))
    if not reply.without_stop:
        yield Frame(event("message_stop"))


def _message(stream: Stream) -> dict[str, Any]:
    return {
        "id": stream.id,
        "type": "message",
        "role": "assistant",
        "model": stream.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": stream.usage | {"output_tokens": 1},
    }


def _block(part: Part, binding: Binding) -> Block:
    """The finished block of `part`, which is from here on part of what the next signature is bound to."""
    match part:
        case Text(text):
            block: Block = {"type": "text", "text": text}
        case Thought(thinking, signature):
            block = {"type": "thinking", "thinking": thinking, "signature": signature or binding.sign(thinking)}
        case Call(name, arguments, id):
            block = {"type": "tool_use", "id": id or new_id("toolu"), "name": name, "input": dict(arguments)}
        case _:
            block = dict(part.block)
    binding.answer(block)
    return block


def _empty(part: Part, block: Block) -> Block:
    """`block` as it starts: without what the deltas will bring."""
    match part:
        case Text():
            return block | {"text": ""}
        case Thought():
            return block | {"thinking": "", "signature": ""}
        case Call():
            return block | {"input": {}}
        case _:
            return block


def _deltas(part: Part, block: Block, size: int) -> Iterator[tuple[Block, int]]:
    match part:
        case Text(text):
            for piece in _pieces(text, size):
                yield {"type": "text_delta", "text": piece}, len(piece)
        case Thought(thinking):
            for piece in _pieces(thinking, size):
                yield {"type": "thinking_delta", "thinking": piece}, len(piece)
            yield {"type": "signature_delta", "signature": block["signature"]}, 0
        case Call():
            yield {"type": "input_json_delta", "partial_json": ""}, 0
            for piece in _pieces(_json(part), size):
                yield {"type": "input_json_delta", "partial_json": piece}, len(piece)


def _json(part: Call) -> str:
    if part.raw_json is not None:
        return part.raw_json
    return json.dumps(part.input, ensure_ascii=False) if part.input else ""


def _pieces(text: str, size: int) -> Iterator[str]:
    return (text[at : at + size] for at in range(0, len(text), size))


def _size(part: Part) -> int:
    match part:
        case Text(text):
            return len(text)
        case Thought(thinking):
            return len(thinking)
        case Call():
            return len(part.name) + len(_json(part))
        case _:
            return len(str(part.block))
