"""What can go wrong on purpose: scripted answers, delays, and Slack's rate limits.

A scripted response is one of
    {"status": 502, "headers": {...}, "body": "<html>..."}   answered instead of doing it
    "timeout"              never answered, not done
    "reset"                the connection is cut, not done
    "commit_then_reset"    done, then the connection is cut: the ambiguous post
    "commit_then_timeout"  done, never answered
    "pass"                 done and answered as usual
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bot.playground.slack.people import Json
from bot.playground.slack.reference import REFERENCE

Response = Mapping[str, Any] | str
WORDS = frozenset({"timeout", "reset", "commit_then_reset", "commit_then_timeout", "pass"})
PER_MINUTE = {"t1": 1.0, "t2": 20.0, "t3": 50.0, "t4": 100.0}
POST_BURST = 3.0
POSTS_PER_S = 1.0
POSTING = frozenset({"chat.postMessage", "chat.startStream"})


@dataclass(slots=True)
class Script:
    """Responses for the next matching calls of one method."""

    method: str
    responses: list[Response]
    when: Callable[[Json], bool] | None = None


@dataclass(slots=True)
class Bucket:
    """A token bucket: `level` tokens at `at`, never more than `size`."""

    size: float
    per_s: float
    level: float
    at: float

    def take(self, now: float) -> float:
        """Take one token and return 0, or return the seconds until there is one."""
        self.level = min(self.size, self.level + (now - self.at) * self.per_s)
        self.at = now
        if self.level >= 1.0:
            self.level -= 1.0
            return 0.0
        return (1.0 - self.level) / self.per_s


@dataclass(slots=True)
class Chaos:
    """The switches of one local Slack."""

    clock: Callable[[], float]
    limits: bool = False
    scripts: list[Script] = field(default_factory=list)
    delays: dict[str, float] = field(default_factory=dict)
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    _buckets: dict[tuple[str, str], Bucket] = field(default_factory=dict)

    def script(
        self, method: str, responses: Sequence[Response], when: Callable[[Json], bool] | None = None
    ) -> Script:
        """Answer the next calls of `method` (those that `when` accepts) with these, one after another."""
        wrong = [item for item in responses if isinstance(item, str) and item not in WORDS]
        if wrong:
            raise ValueError(f"unknown scripted response {wrong[0]!r}; known are {', '.join(sorted(WORDS))}")
        script = Script(method, list(responses), when)
        self.scripts.append(script)
        return script

    def next_response(self, method: str, args: Json) -> Response:
        """What the scripts say to this call; "pass" if nothing."""
        for script in self.scripts:
            if script.method == method and script.responses and (script.when is None or script.when(args)):
                return script.responses.pop(0)
        return "pass"

    async def wait(self, method: str) -> None:
        """The delay of this method, ended early when the server closes."""
        await self.hold(self.delays.get(method, 0.0))

    async def hold(self, seconds: float | None) -> None:
        """Wait; None means until the server closes."""
        if seconds == 0.0:
            return
        try:
            async with asyncio.timeout(seconds):
                await self.closing.wait()
        except TimeoutError:
            pass

    def retry_after_s(self, method: str, args: Json) -> int:
        """0 if the limits let this call through, else the whole seconds of `Retry-After`."""
        if not self.limits:
            return 0
        waits = [self._take(method, "", PER_MINUTE.get(REFERENCE[method].tier))]
        if method in POSTING:
            waits.append(self._take("post", str(args.get("channel")), None))
        return math.ceil(max(waits))

    def _take(self, kind: str, key: str, per_minute: float | None) -> float:
        if kind != "post" and per_minute is None:
            return 0.0
        now = self.clock()
        size, per_s = (POST_BURST, POSTS_PER_S) if per_minute is None else (per_minute, per_minute / 60)
        bucket = self._buckets.setdefault((kind, key), Bucket(size, per_s, size, now))
        return bucket.take(now)
