"""Alertmanager's HTTP API v2 over the alerts of the playground, with its JSON shapes and its errors.

Silences are kept as long as the world runs. The world has one receiver and inhibits nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from aiohttp import web

from bot.playground.world.alerts import Firing, alerts
from bot.playground.world.incident import Incident, mix

RECEIVER = "incident-checkout"
RESOLVE_S = 240.0
FILTER = re.compile(r'\s*([a-zA-Z_]\w*)\s*(=~|!~|!=|=)\s*(?:"((?:\\.|[^"\\])*)"|([^"]*?))\s*', re.DOTALL)
ESCAPED = {"\\n": "\n", '\\"': '"', "\\\\": "\\"}
Parameters = Mapping[str, Sequence[str]]
Test = Callable[[Mapping[str, str]], bool]


class Refused(Exception):
    """An error as JSON with its status."""

    def __init__(self, status: int, said: Any) -> None:
        super().__init__(str(said))
        self.status, self.said = status, said


@dataclass(slots=True)
class Silence:
    """One silence; it can end earlier than it was asked to."""

    id: str
    matchers: list[dict[str, Any]]
    test: Test
    begins: float
    ends: float
    created_by: str
    comment: str
    updated: float

    def state(self, now: float) -> str:
        return "pending" if now < self.begins else "active" if now < self.ends else "expired"


@dataclass(slots=True)
class Silences:
    """The silences of one world, by id, oldest first."""

    kept: dict[str, Silence] = field(default_factory=dict)

    def of(self, labels: Mapping[str, str], now: float) -> list[str]:
        """The ids of the silences that hide an alert now."""
        return [one.id for one in self.kept.values() if one.state(now) == "active" and one.test(labels)]


def answer(
    method: str, path: str, given: Parameters, body: bytes, incident: Incident, silences: Silences, now: float
) -> web.Response:
    """Answer one request; `path` is what follows the prefix."""
    if path in ("/-/healthy", "/-/ready"):
        return web.Response(text="OK")
    try:
        found = _answered(method, path, given, body, incident, silences, now)
    except Refused as error:
        return web.Response(status=error.status) if error.said is None else _json(error.said, error.status)
    return web.Response() if found is None else _json(found)


def _json(value: Any, status: int = 200) -> web.Response:
    return web.json_response(value, status=status)


def _answered(
    method: str, path: str, given: Parameters, body: bytes, incident: Incident, silences: Silences, now: float
) -> Any:
    match [method, *path.removeprefix("/api/v2").split("/")[1:]]:
        case ["GET", "status"]:
            return {
                "cluster": {"status": "disabled"},
                "config": {"original": f"route:\n  receiver: {RECEIVER}\n"},
                "uptime": _text(incident.day),
                "versionInfo": {"version": "0.28.1", "branch": "HEAD", "revision": "playground"},
            }
        case ["GET", "receivers"]:
            return [{"name": RECEIVER}]
        case ["GET", "alerts"]:
            return _alerts(given, alerts(incident), silences, now)
        case ["GET", "silences"]:
            return [_shown(one, now) for one in reversed(silences.kept.values())]
        case ["POST", "silences"]:
            return {"silenceID": _made(body, silences, now).id}
        case ["GET", "silence", silence_id]:
            return _shown(_found(silence_id, silences, Refused(404, None)), now)
        case ["DELETE", "silence", silence_id]:
            one = _found(silence_id, silences, Refused(404, "silence not found"))
            if one.state(now) == "expired":
                raise Refused(500, f"silence {silence_id} already expired")
            one.begins, one.ends, one.updated = min(one.begins, now), now, now
            return None
        case [_, "alerts" | "silences" | "silence" | "status" | "receivers", *_]:
            raise Refused(405, {"code": 405, "message": f"method {method} is not allowed"})
        case _:
            raise Refused(404, {"code": 404, "message": f"path {path} was not found"})


def _alerts(given: Parameters, firing: Sequence[Firing], silences: Silences, now: float) -> list[dict[str, Any]]:
    tests = [_filter(text) for text in given.get("filter", [])]
    wanted = {name: given.get(name, ["true"])[0] != "false" for name in ("active", "silenced")}
    receiver = given.get("receiver", [""])[0]
    if receiver and _pattern(receiver, "failed to parse receiver param: ").fullmatch(RECEIVER) is None:
        return []
    found = []
    for one in firing:
        by = silences.of(one.labels, now)
        alive = one.since <= now < one.until and wanted["silenced" if by else "active"]
        if alive and all(test(one.labels) for test in tests):
            found.append(
                {
                    "labels": one.labels,
                    "annotations": {"summary": one.summary},
                    "fingerprint": f"{mix(one.labels, one.since):016x}",
                    "receivers": [{"name": RECEIVER}],
                    "startsAt": _text(one.since),
                    "updatedAt": _text(now),
                    "endsAt": _text(now + RESOLVE_S),
                    "generatorURL": "http://prometheus.shop.example/graph",
                    "status": {
                        "state": "suppressed" if by else "active",
                        "silencedBy": by,
                        "inhibitedBy": [],
                        "mutedBy": [],
                    },
                }
            )
    return found


def _found(silence_id: str, silences: Silences, missing: Refused) -> Silence:
    try:
        UUID(silence_id)
    except ValueError:
        raise Refused(
            422, {"code": 601, "message": f'silenceID in path must be of type uuid: "{silence_id}"'}
        ) from None
    if silence_id not in silences.kept:
        raise missing
    return silences.kept[silence_id]


def _made(body: bytes, silences: Silences, now: float) -> Silence:
    try:
        asked = json.loads(body)
        matchers: list[dict[str, Any]] = [
            {
                "name": str(one["name"]),
                "value": str(one["value"]),
                "isRegex": bool(one["isRegex"]),
                "isEqual": bool(one.get("isEqual", True)),
            }
            for one in asked["matchers"]
        ]
        begins, ends = (datetime.fromisoformat(asked[name]).timestamp() for name in ("startsAt", "endsAt"))
        made_by, comment = str(asked["createdBy"]), str(asked["comment"])
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise Refused(400, {"code": 400, "message": f"parsing silence body failed: {error}"}) from None
    if asked.get("id"):
        raise Refused(404, f"silence {asked['id']} not found")
    if ends <= now:
        raise Refused(400, "Failed to create silence: end time can't be in the past")
    if begins > ends:
        raise Refused(400, "Failed to create silence: start time must be before end time")
    tests = [_test(one["name"], one["value"], one["isRegex"], one["isEqual"]) for one in matchers]
    if all(test({}) for test in tests):
        raise Refused(400, "silence invalid: at least one matcher must not match the empty string")
    number = len(silences.kept)
    silence_id = str(UUID(int=mix("silence", number) << 64 | mix(number, "silence"), version=4))
    one = Silence(silence_id, matchers, _all(tests), max(begins, now), ends, made_by, comment, now)
    silences.kept[silence_id] = one
    return one


def _shown(one: Silence, now: float) -> dict[str, Any]:
    return {
        "id": one.id,
        "status": {"state": one.state(now)},
        "matchers": one.matchers,
        "startsAt": _text(one.begins),
        "endsAt": _text(one.ends),
        "updatedAt": _text(one.updated),
        "createdBy": one.created_by,
        "comment": one.comment,
    }


def _filter(text: str) -> Test:
    found = FILTER.fullmatch(text)
    if found is None:
        raise Refused(400, f"bad matcher format: {text}")
    name, operator, quoted, plain = found.groups()
    value = plain if quoted is None else re.sub(r'\\[n"\\]', lambda part: ESCAPED[part.group()], quoted)
    return _test(name, value, operator.endswith("~"), operator.startswith("="))


def _test(name: str, value: str, is_regex: bool, is_equal: bool) -> Test:
    if not is_regex:
        return lambda labels: (labels.get(name, "") == value) == is_equal
    pattern = _pattern(value, "")
    return lambda labels: (pattern.fullmatch(labels.get(name, "")) is not None) == is_equal


def _pattern(text: str, before: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise Refused(400, f"{before}error parsing regexp: {error}: `^(?:{text})$`") from None


def _all(tests: Sequence[Test]) -> Test:
    return lambda labels: all(test(labels) for test in tests)


def _text(t: float) -> str:
    return datetime.fromtimestamp(t, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
