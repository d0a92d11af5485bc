"""The arguments that the Kubernetes tools share."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from bot.tools.kubernetes_objects import KINDS

NAME_PATTERN = "^[a-z0-9][-a-z0-9.]{0,251}$"


def name(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description, "pattern": NAME_PATTERN}


def namespace(open_ones: Collection[str], description: str = "Namespace") -> dict[str, Any]:
    """Any namespace, or one of those that are open to the bot."""
    if open_ones:
        return {"type": "string", "description": description, "enum": sorted(open_ones)}
    return name(description)


def kind(among: Sequence[str] = tuple(KINDS)) -> dict[str, Any]:
    return {"type": "string", "description": f"One of {', '.join(among)}", "minLength": 1, "maxLength": 60}
