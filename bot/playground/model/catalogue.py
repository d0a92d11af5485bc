"""`/v1/models`: which models there are, the newest first, as the Models API tells it.

GET /v1/models?limit=&after_id=&before_id=&lifecycle[]=     a page; retired models only when they are asked for
GET /v1/models/{id}                                         one model, or 404 `model: <id>`
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from aiohttp import web
from multidict import MultiMapping

from bot.playground.model.reply import HttpError

DEFAULT_LIMIT = 20
MOST = 1000
SHOWN = ("active", "deprecated")
RELEASED_UNKNOWN = "1970-01-01T00:00:00Z"
LINES = ("haiku", "sonnet", "opus", "fable", "mythos")
_NUMBERED = re.compile(r"(?<=\d) (?=\d)")


class Catalogue:
    """The models of one scripted API. `stages` names those that are deprecated or retired."""

    def __init__(self, models: Sequence[str], stages: Mapping[str, str] | None = None) -> None:
        self._models = {name: _info(name, (stages or {}).get(name, "active")) for name in models}

    def callable(self, name: str) -> bool:
        """Whether the Messages API knows the model: retired ones fail."""
        return name in self._models and self._models[name]["lifecycle"] != "retired"

    def one(self, name: str) -> dict[str, Any] | HttpError:
        """One model by its id."""
        return self._models.get(name) or HttpError(404, "not_found_error", f"model: {name}")

    def page(self, query: MultiMapping[str]) -> dict[str, Any] | HttpError:
        """One page of the list."""
        given = query.get("limit", str(DEFAULT_LIMIT))
        if not given.isdecimal() or not 1 <= int(given) <= MOST:
            return _invalid(f"limit: Input should be a number between 1 and {MOST}")
        stages = query.getall("lifecycle[]", None) or query.getall("lifecycle", None) or SHOWN
        listed = [info for info in self._models.values() if info["lifecycle"] in stages]
        ids = [info["id"] for info in listed]
        for cursor in ("after_id", "before_id"):
            if cursor in query and query[cursor] not in ids:
                return _invalid(f"{cursor}: no such model")
        first = ids.index(query["after_id"]) + 1 if "after_id" in query else 0
        last = ids.index(query["before_id"]) if "before_id" in query else len(ids)
        limit = int(given)
        page = listed[first:last][-limit:] if "before_id" in query else listed[first:last][:limit]
        return {
            "data": page,
            "has_more": len(page) < last - first,
            "first_id": page[0]["id"] if page else None,
            "last_id": page[-1]["id"] if page else None,
        }


def unversioned(request: web.Request) -> HttpError | None:
    """Every request must name the API's version."""
    return None if request.headers.get("anthropic-version") else _invalid("anthropic-version: header is required")


def _info(name: str, lifecycle: str) -> dict[str, Any]:
    words = name.replace("-", " ").title()
    return {
        "type": "model",
        "id": name,
        "display_name": _NUMBERED.sub(".", words),
        "created_at": RELEASED_UNKNOWN,
        "lifecycle": lifecycle,
        "deprecated_at": None if lifecycle == "active" else RELEASED_UNKNOWN,
        "retires_at": None,
        "line": next((line for line in LINES if line in name.split("-")), None),
        "max_input_tokens": None,
        "max_tokens": None,
        "capabilities": None,
    }


def _invalid(text: str) -> HttpError:
    return HttpError(400, "invalid_request_error", text)
