"""What the scripted model answers, as one value that is put together with `+`.

    think("Let me look.") + say("Looking.") + call("prometheus_query", query="up")
    say("It was the gateway.") + hold_until(event, at=MESSAGE_STOP)
    call("web_page", url="...") + cut_after(6)

Parts of the answer are joined in order; of every other setting the later one wins; holds, cuts and error events
add up. A place in the stream is a number of SSE events already sent (0: before the first byte of the HTTP answer,
1: right after `message_start`), or one of the names below.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any


class Place(StrEnum):
    """Places in a stream that a test cares about, whatever the number of events before them."""

    FIRST_BYTE = "first_byte"
    MIDDLE = "middle"
    MESSAGE_STOP = "message_stop"


FIRST_BYTE = Place.FIRST_BYTE
MIDDLE = Place.MIDDLE
MESSAGE_STOP = Place.MESSAGE_STOP


@dataclass(frozen=True, slots=True)
class Text:
    """A text block."""

    text: str


@dataclass(frozen=True, slots=True)
class Thought:
    """A thinking block; the server signs it unless `signature` is given."""

    thinking: str
    signature: str | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call. `raw_json` is streamed instead of `input`; without `id` the server makes one."""

    name: str
    input: Mapping[str, Any]
    id: str | None = None
    raw_json: str | None = None


@dataclass(frozen=True, slots=True)
class Whole:
    """A block that is sent complete in its `content_block_start`: server tools, kinds of tomorrow."""

    block: Mapping[str, Any]


Part = Text | Thought | Call | Whole


@dataclass(frozen=True, slots=True)
class Hold:
    """Wait for `event` at `at`."""

    at: Place | int
    event: asyncio.Event


@dataclass(frozen=True, slots=True)
class Cut:
    """Close the connection without an end."""

    at: Place | int


@dataclass(frozen=True, slots=True)
class ErrorEvent:
    """An `error` event, after which the stream ends."""

    at: Place | int
    type: str
    message: str


@dataclass(frozen=True, slots=True)
class Insert:
    """Bytes that the stream should not hold, between two events."""

    at: Place | int
    data: bytes


Fault = Hold | Cut | ErrorEvent | Insert


@dataclass(frozen=True, slots=True)
class HttpError:
    """An answer that is no stream at all."""

    status: int
    type: str
    message: str
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer. `stop_reason` None: `tool_use` if there is a call, else `end_turn`. Times in seconds."""

    parts: tuple[Part, ...] = ()
    stop_reason: str | None = None
    usage: Mapping[str, int] | None = None
    before_s: float = 0.0
    per_delta_s: float = 0.0
    chars_per_s: float | None = None
    delta_chars: int = 12
    faults: tuple[Fault, ...] = ()
    without_stop: bool = False
    http: HttpError | None = None
    raw: bytes | None = None

    def __add__(self, other: Reply) -> Reply:
        changed = {
            one.name: getattr(other, one.name)
            for one in fields(self)
            if getattr(other, one.name) != getattr(_PLAIN, one.name)
        }
        joined = {"parts": self.parts + other.parts, "faults": self.faults + other.faults}
        return replace(self, **{**changed, **joined})


_PLAIN = Reply()

Script = Callable[[dict[str, Any], int], Reply] | Sequence[Reply]
"""From the request's body and its number (0 is the first that was accepted) to the reply; or the replies in order."""


def say(text: str) -> Reply:
    """A text block."""
    return Reply((Text(text),))


def think(text: str, signature: str | None = None) -> Reply:
    """A thinking block, signed by the server or with the `signature` given."""
    return Reply((Thought(text, signature),))


def call(name: str, /, **arguments: Any) -> Reply:
    """A tool call."""
    return Reply((Call(name, arguments),))


def call_with(name: str, arguments: Mapping[str, Any], *, id: str | None = None) -> Reply:
    """A tool call with arguments that are no Python names, or with an id of one's own."""
    return Reply((Call(name, arguments, id),))


def broken_call(name: str, raw_json: str, *, id: str | None = None) -> Reply:
    """A tool call whose streamed input is `raw_json`, valid or not."""
    return Reply((Call(name, {}, id, raw_json),))


def block(**content: Any) -> Reply:
    """A block as it is: `block(type="redacted_thinking", data="...")`."""
    return Reply((Whole(content),))


def nothing() -> Reply:
    """An answer without content, as the API gives it now and then."""
    return Reply()


def pace(
    before_s: float = 0.0, *, per_delta_s: float = 0.0, chars_per_s: float | None = None, delta_chars: int = 12
) -> Reply:
    """How fast: a delay before the first byte, then per delta or per character."""
    return Reply(before_s=before_s, per_delta_s=per_delta_s, chars_per_s=chars_per_s, delta_chars=delta_chars)


def stop_reason(reason: str) -> Reply:
    """`max_tokens`, `refusal`, `pause_turn`, ..."""
    return Reply(stop_reason=reason)


def usage(**tokens: int) -> Reply:
    """Token counts as the API names them (`input_tokens`, `output_tokens`, `cache_read_input_tokens`, ...)."""
    return Reply(usage=tokens)


def http_error(status: int, type: str, message: str, headers: Mapping[str, str] | None = None) -> Reply:
    """A refusal with the API's error body."""
    return Reply(http=HttpError(status, type, message, headers or {}))


def raw(data: bytes) -> Reply:
    """Status 200 and these bytes as the body."""
    return Reply(raw=data)


def hold_until(event: asyncio.Event, at: Place | int = FIRST_BYTE) -> Reply:
    """Send nothing more from `at` on until `event` is set."""
    return Reply(faults=(Hold(at, event),))


def cut_after(at: Place | int) -> Reply:
    """The connection breaks."""
    return Reply(faults=(Cut(at),))


def error_event_after(at: Place | int, type: str = "overloaded_error", message: str = "Overloaded") -> Reply:
    """An error in a stream that began with status 200."""
    return Reply(faults=(ErrorEvent(at, type, message),))


def insert_after(at: Place | int, data: bytes) -> Reply:
    """Malformed or unknown events: the bytes are sent between two events."""
    return Reply(faults=(Insert(at, data),))


def no_message_stop() -> Reply:
    """The stream ends in order, but `message_stop` never comes."""
    return Reply(without_stop=True)
