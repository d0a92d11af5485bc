"""Web API arguments: read from JSON, forms, multipart or the query, and taken apart with Slack's leniency."""

from __future__ import annotations

import json
from typing import Any

from aiohttp import web

from bot.playground.slack.people import Json
from bot.playground.slack.refusal import Refused

STRUCTURED = frozenset({"blocks", "attachments", "metadata", "view", "files", "chunks", "unfurls"})


async def read_arguments(request: web.Request) -> Json:
    """All arguments of a call, structured ones decoded. Raises Refused for a body that can't be read."""
    args: Json = dict(request.query)
    if request.content_type == "application/json":
        args |= await _json_body(request)
    elif request.can_read_body:
        form = await request.post()
        args |= {key: value for key, value in form.items() if isinstance(value, str)}
    return {key: _decoded(key, value) for key, value in args.items()}


async def _json_body(request: web.Request) -> Json:
    raw = await request.text()
    if not raw:
        return {}
    try:
        body = json.loads(raw)
    except ValueError:
        raise Refused("invalid_arguments", "the body is not JSON") from None
    if not isinstance(body, dict):
        raise Refused("invalid_arguments", "the body is not a JSON object")
    return body


def _decoded(key: str, value: Any) -> Any:
    if key not in STRUCTURED or not isinstance(value, str) or not value:
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value


def flag(args: Json, name: str, default: bool = False) -> bool:
    """Slack takes 1, "1", true and "true" for true."""
    value = args.get(name)
    return default if value is None else str(value).lower() in ("1", "true")


def number(args: Json, name: str, default: int, most: int) -> int:
    """A positive count, capped like Slack caps it."""
    value = args.get(name)
    if value in (None, "", 0, "0"):
        return default
    if not str(value).isdigit():
        raise Refused("invalid_arguments", f"must be a number [json-pointer:/{name}]")
    return min(int(value), most)
