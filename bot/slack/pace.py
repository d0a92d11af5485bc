"""Slack's limits, kept in memory by the one writer of a workspace: buckets per method, one per channel, pauses.

Tiers count per method, app and workspace: about 50 updates a minute for all cards together. `now` is monotonic.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

PER_MINUTE = {
    "chat.update": 45.0,
    "chat.postMessage": 240.0,
    "chat.postEphemeral": 90.0,
    "reactions.add": 45.0,
    "chat.delete": 45.0,
    "conversations.replies": 45.0,
    "agents.sessions.setStatus": 45.0,
    "files.getUploadURLExternal": 90.0,
    "files.completeUploadExternal": 90.0,
}
POSTS = frozenset({"chat.postMessage", "files.completeUploadExternal"})
BURST = {"chat.update": 12.0, "reactions.add": 12.0, "agents.sessions.setStatus": 12.0}
DEFAULT_PER_MINUTE = 45.0
POSTS_A_SECOND_IN_A_CHANNEL = 0.95
CHANNEL_BURST = 3.0
"""Slack speaks of about one post a second and of short bursts: a little below both."""
RESERVED_FOR_URGENT = 4.0


@dataclass(slots=True)
class Bucket:
    """Tokens that come back at `rate` a second, up to `size`."""

    rate: float
    size: float
    level: float
    at: float

    def has(self, now: float, amount: float = 1.0) -> bool:
        self.level = min(self.size, self.level + (now - self.at) * self.rate)
        self.at = now
        return self.level >= amount

    def take(self) -> None:
        self.level -= 1.0


class Pace:
    """Whether a call may go out now. Progress leaves the last tokens to what is urgent."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._methods: dict[str, Bucket] = {}
        self._channels: dict[str, Bucket] = {}
        self._paused: dict[str, float] = {}

    def may(self, method: str, channel: str, *, urgent: bool) -> bool:
        """Take the tokens for one call, if they are there."""
        now = self._now()
        if self._paused.get(method, 0.0) > now:
            return False
        bucket = self._method(method, now)
        if not bucket.has(now, 1.0 if urgent else 1.0 + RESERVED_FOR_URGENT):
            return False
        if method in POSTS:
            own = self._channel(channel, now)
            if not own.has(now):
                return False
            own.take()
        bucket.take()
        return True

    def pause(self, method: str, seconds: float) -> None:
        """Slack said 429: the method pauses for the whole workspace."""
        self._paused[method] = max(self._paused.get(method, 0.0), self._now() + seconds)

    def _method(self, method: str, now: float) -> Bucket:
        if method not in self._methods:
            rate = PER_MINUTE.get(method, DEFAULT_PER_MINUTE) / 60.0
            size = BURST.get(method, 20.0)
            self._methods[method] = Bucket(rate, size, size, now)
        return self._methods[method]

    def _channel(self, channel: str, now: float) -> Bucket:
        if channel not in self._channels:
            self._channels[channel] = Bucket(POSTS_A_SECOND_IN_A_CHANNEL, CHANNEL_BURST, CHANNEL_BURST, now)
        return self._channels[channel]
