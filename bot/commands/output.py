"""What the command line prints: JSON for programs, lines for people, one sentence for what went wrong.

Whatever comes from outside (people's words, tool output) is printed without control characters: nothing in it can
move the cursor, colour the screen or turn the direction of the text.
"""

from __future__ import annotations

import json
import sys
import unicodedata
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]

_UNPRINTABLE = frozenset({"Cc", "Cs", "Zl", "Zp"})
_TURNS_THE_TEXT = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def printable(value: object) -> str:
    """One line of text that can't do anything to a terminal; "-" for nothing."""
    text = "" if value is None else str(value)
    return " ".join(harmless(text).split()) or "-"


def harmless(line: str) -> str:
    """A line of text as it is, with a blank for whatever could act on a terminal."""
    if line.isascii() and line.isprintable():
        return line
    return "".join(character if _harmless(character) else " " for character in line)


def _harmless(character: str) -> bool:
    return unicodedata.category(character) not in _UNPRINTABLE and character not in _TURNS_THE_TEXT


class NobodyReads(Exception):
    """Whoever read our stdout has gone away."""


def write(text: str) -> None:
    """Write to stdout, whatever its encoding can hold. Raises NobodyReads."""
    encoding = sys.stdout.encoding or "utf-8"
    try:
        sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
        sys.stdout.flush()
    except BrokenPipeError:
        raise NobodyReads from None


def write_json(value: Any, *, indent: int | None = 2) -> None:
    """One JSON value. ASCII only where its text can't be encoded otherwise, so that it is JSON in any case."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(value, indent=indent)
    write(f"{text}\n")


def complain(sentence: str) -> None:
    """One sentence for a person, on stderr."""
    encoding = sys.stderr.encoding or "utf-8"
    sys.stderr.write(f"pilothouse: {printable(sentence)}\n".encode(encoding, "replace").decode(encoding))


def shorten(text: object, most: int) -> str:
    """The beginning of a text, on one line."""
    line = printable(text)
    return line if len(line) <= most else f"{line[: most - 1]}…"


def moment(at: float | None) -> str:
    """Seconds since the epoch as people read them, in UTC."""
    return "" if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")


def clock(at: float) -> str:
    """The time of day, in UTC, to the millisecond."""
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S.%f")[:-3]
