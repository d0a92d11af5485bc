"""What all tools share: checked arguments, results short enough for a model, and one way to run a read.

A tool's text goes into the model's context and stays there for the whole session, so it is small, says what was
left out, and holds nothing that a database or the API would choke on (NUL, lone surrogates). What is long all the
same the gateway cuts for the model, and keeps as evidence.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

from core.errors import ToolError
from core.evidence import MOST_KEPT
from core.ports import ToolOutput, ToolSpec

MOST_CHARS = MOST_KEPT
MOST_ERROR_CHARS = 2_000
MOST_CELL_CHARS = 400

Arguments = Mapping[str, Any]


def cleaned(text: str) -> str:
    """`text` with NUL and lone surrogates replaced by U+FFFD."""
    return text.replace("\0", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def capped(text: str, limit: int = MOST_CHARS) -> str:
    """`text`, or as much of its beginning as leaves room to say how much is missing."""
    if len(text) <= limit:
        return text
    note = f"\n[cut here: {len(text)} characters in all; narrow the question to see the rest]"
    return text[: limit - len(note)] + note


def one_line(text: str, limit: int = MOST_CELL_CHARS) -> str:
    """`text` without line breaks, and at most `limit` characters of it."""
    text = " ".join(text.split())
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table that costs few tokens: one line a row, cells parted by ` | `."""
    return "\n".join(" | ".join(one_line(cell) or "-" for cell in row) for row in [head, *rows])


def number(value: float) -> str:
    """Five significant digits, without an exponent where one can do without."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    if value == int(value) and abs(value) < 1e15:
        return str(int(value))
    return f"{value:.5g}" if abs(value) < 100_000 else f"{value:.0f}"


def moment(t: float) -> str:
    """Seconds since the epoch as RFC 3339, or the number itself where no calendar goes."""
    try:
        return datetime.fromtimestamp(t, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return number(t)


def clock(t: float) -> str:
    """The time of day of `moment`."""
    return moment(t)[11:19] or moment(t)


def age(seconds: float) -> str:
    """`3d4h`, `2h5m`, `40s`: the two largest units."""
    if not 0 <= seconds < 1e11:
        return "-"
    parts: list[str] = []
    rest = int(seconds)
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        amount, rest = divmod(rest, size)
        if amount or (unit == "s" and not parts):
            parts.append(f"{amount}{unit}")
    return "".join(parts[:2])


def parsed_moment(text: str) -> float:
    """Seconds since the epoch of an RFC 3339 time. Raises ToolError."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise ToolError(f"{one_line(text, 60)!r} is not a time: write RFC 3339 such as 2026-01-31T14:05:00Z.")
    return found.timestamp()


def left_out(shown: int, total: int, what: str, advice: str) -> str:
    """The line that says what was cut, empty when nothing was."""
    return f"\n[{total - shown} more {what} not shown: {advice}]" if total > shown else ""


def object_schema(required: Sequence[str], **properties: Mapping[str, Any]) -> dict[str, Any]:
    """The input schema of a tool: these arguments and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def text_argument(description: str, limit: int = 2_000) -> dict[str, Any]:
    return {"type": "string", "description": description, "minLength": 1, "maxLength": limit}


def whole_argument(description: str, default: int, low: int, high: int) -> dict[str, Any]:
    return {"type": "integer", "description": description, "default": default, "minimum": low, "maximum": high}


def count_argument(description: str, default: int, most: int) -> dict[str, Any]:
    """How much of something: more than `most` is no error, the tool gives `most` and says that there is more."""
    return {"type": "integer", "description": f"{description}, up to {most}", "default": default, "minimum": 1}


def checked(spec: ToolSpec, arguments: Arguments) -> dict[str, Any]:
    """The arguments with defaults filled in. Raises ToolError that names the argument and what it must be."""
    error = best_match(Draft202012Validator(spec.input_schema).iter_errors(dict(arguments)))
    if error is not None:
        where = ".".join(str(part) for part in error.absolute_path)
        raise ToolError(f"{spec.name}: {f'argument {where}: ' if where else ''}{one_line(error.message, 300)}.")
    defaults = {
        name: schema["default"]
        for name, schema in spec.input_schema.get("properties", {}).items()
        if "default" in schema
    }
    return {**defaults, **arguments}


@dataclass(frozen=True, slots=True)
class ReadTool:
    """A tool that looks and changes nothing. `look` gets checked arguments; `check` asks the far end how it is."""

    spec: ToolSpec
    look: Callable[[Arguments], Awaitable[ToolOutput]]
    check: Callable[[], Awaitable[object]]

    async def run(self, arguments: Arguments) -> ToolOutput:
        """Look. The text is clean; how much of it the model reads is the gateway's to say. Raises only ToolError."""
        try:
            found = await self.look(checked(self.spec, arguments))
        except ToolError as error:
            raise ToolError(capped(cleaned(str(error)), MOST_ERROR_CHARS)) from error
        return replace(found, text=capped(cleaned(found.text)))

    async def health(self) -> str | None:
        """None, or one sentence that says what is wrong."""
        try:
            await self.check()
        except ToolError as error:
            return one_line(cleaned(str(error)), MOST_ERROR_CHARS)
        return None
