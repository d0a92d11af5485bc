"""Server-sent events, as the WHATWG standard reads them, from bytes that arrive in any pieces.

A line ends with CR LF, LF or CR. One byte order mark at the very start is skipped. A line that begins with a
colon is a comment; several `data` lines are one value joined by LF; a blank line dispatches. What has not been
dispatched when the stream ends is dropped: an event is whole or it is nothing.

The parser works on bytes and decodes whole lines, so a character that was cut between two chunks stays whole.
"""

from __future__ import annotations

from typing import NamedTuple

BOM = b"\xef\xbb\xbf"


class Event(NamedTuple):
    """One dispatched event. `name` is empty when the stream gave none."""

    name: str
    data: str


class SseParser:
    """Feed it chunks, get the events that they complete."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._skip_lf = False
        self._first_line = True
        self._name = ""
        self._data: list[str] = []

    def feed(self, chunk: bytes) -> list[Event]:
        """The events that `chunk` completes, in order."""
        *lines, rest = self._unify(chunk).split(b"\n")
        if not lines:
            self._pieces.append(rest)
            return []
        lines[0] = b"".join([*self._pieces, lines[0]])
        self._pieces = [rest]
        return [event for line in lines if (event := self._line(line)) is not None]

    def _unify(self, chunk: bytes) -> bytes:
        """All line ends become LF. A CR at the end of a chunk ends its line now; its LF may still follow."""
        if self._skip_lf and chunk:
            chunk = chunk.removeprefix(b"\n")
            self._skip_lf = False
        if b"\r" not in chunk:
            return chunk
        self._skip_lf = chunk.endswith(b"\r")
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _line(self, line: bytes) -> Event | None:
        if self._first_line:
            self._first_line = False
            line = line.removeprefix(BOM)
        if not line:
            return self._dispatch()
        field, _, value = line.partition(b":")
        if field == b"data":
            self._data.append(value.removeprefix(b" ").decode("utf-8", "replace"))
        elif field == b"event":
            self._name = value.removeprefix(b" ").decode("utf-8", "replace")
        return None

    def _dispatch(self) -> Event | None:
        name, data = self._name, self._data
        self._name, self._data = "", []
        return Event(name, "\n".join(data)) if data else None
