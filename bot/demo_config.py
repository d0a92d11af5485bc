"""The demo's configuration as a file: with it every other command, the doctor too, looks at the running demo.

The key of a real model is not in it: that stays in the environment, where it came from.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from bot.settings import Settings

NAME = "pilothouse.toml"


def write_config(settings: Settings, data: Path, *, real_model: bool) -> Path:
    """Write what is not a default into `data`, readable for its owner only; the path of the file."""
    kept = settings.model_dump(exclude_defaults=True, exclude={"model": {"api_key"}} if real_model else None)
    kept["storage"] = {"data_dir": data.absolute()}
    path = data / NAME
    path.touch(mode=0o600)
    path.write_text("\n".join(_lines(kept)) + "\n", encoding="utf-8")
    return path


def _lines(table: Mapping[str, Any], name: str = "") -> Iterator[str]:
    """A table as TOML: its values, then the tables in it."""
    if name:
        yield f"[{name}]"
    yield from (f"{key} = {_value(value)}" for key, value in table.items() if not isinstance(value, Mapping))
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _lines(value, f"{name}.{_value(key)}" if name else _value(key))


def _value(value: Any) -> str:
    """A string of JSON is one of TOML too."""
    match value:
        case SecretStr():
            return _value(value.get_secret_value())
        case Enum():
            return _value(value.value)
        case bool() | int() | float():
            return json.dumps(value)
        case frozenset() | tuple() | list():
            return f"[{', '.join(sorted(map(_value, value)))}]"
    return json.dumps(str(value), ensure_ascii=False)
