"""Two pod templates as a unified diff that a person can decide on, without the values of environment variables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import unified_diff
from typing import Any

from bot.tools.kubernetes_objects import REDACTED, Object
from bot.tools.kubernetes_text import yaml_text
from core.redaction import redact

CHANGED = "[redacted, another value]"
MOST_LINES = 120
Place = tuple[str, ...]


def template_diff(before: Object, after: Object, old: str, new: str) -> str:
    """What differs, with two lines around it; empty when nothing does. `old` and `new` say what the two are."""
    known = dict(_values(before))
    left, right = _shown(before, {}), _shown(after, known)
    lines = list(
        unified_diff(yaml_text(left).splitlines(), yaml_text(right).splitlines(), old, new, n=2, lineterm="")
    )
    more = [f"[{len(lines) - MOST_LINES} more lines not shown]"] if len(lines) > MOST_LINES else []
    return redact("\n".join([*lines[:MOST_LINES], *more]))


def _named(index: int, one: Any) -> str:
    return str(one.get("name", index)) if isinstance(one, dict) else str(index)


def _values(value: Any, place: Place = ()) -> Iterator[tuple[Place, Any]]:
    """The value of each environment variable, by where it stands."""
    if isinstance(value, dict):
        if place[-2:-1] == ("env",) and "value" in value:
            yield place, value["value"]
        for key, inner in value.items():
            yield from _values(inner, (*place, str(key)))
    elif isinstance(value, list):
        for index, one in enumerate(value):
            yield from _values(one, (*place, _named(index, one)))


def _shown(value: Any, known: Mapping[Place, Any], place: Place = ()) -> Any:
    """A copy in which a variable says only whether its value is the one in `known`."""
    if isinstance(value, list):
        return [_shown(one, known, (*place, _named(index, one))) for index, one in enumerate(value)]
    if not isinstance(value, dict):
        return value
    kept = {key: _shown(inner, known, (*place, str(key))) for key, inner in value.items()}
    if place[-2:-1] == ("env",) and "value" in value:
        kept["value"] = REDACTED if known.get(place, value["value"]) == value["value"] else CHANGED
    return kept
