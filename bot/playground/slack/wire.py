"""How payloads reach the app: over an open socket, or as signed HTTP requests; and again if nobody acknowledged.

* Events that are not acknowledged in `ack_timeout_s` come again on the schedule, with their attempt and reason.
  Interactions and slash commands never do.
* Each payload goes to one socket, chosen at random among all that are registered, ghosts included: a ghost is a
  half-open connection that Slack still believes in. What goes there is lost.
* Any socket may acknowledge any envelope: what Slack does with one over another socket nobody knows.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import random
import time
import uuid
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

import aiohttp
from aiohttp import web

from bot.playground.slack.people import Json

MOST_SOCKETS = 10
APPROXIMATE_LIFE_S = 18_060


@dataclass(slots=True)
class Delivery:
    """What became of one payload: `response` is what the app sent with its acknowledgement."""

    envelope_id: str
    acknowledged: bool = False
    response: Any = None
    attempts: int = 1
    took_s: float = 0.0
    status: int | None = None
    reason: str = ""
    final: bool = False


@dataclass(slots=True, eq=False)
class Socket:
    """One registered connection. `connection` None is a ghost; `leaving` gets nothing any more."""

    connection: web.WebSocketResponse | None
    leaving: bool = False


@dataclass(slots=True)
class HttpMode:
    """Where and how to send payloads when the app has no socket. `skew_s` shifts the signed time."""

    events_url: str
    interactivity_url: str
    skew_s: float = 0.0


@dataclass(slots=True)
class Wire:
    """All deliveries of one workspace to one app."""

    signing_secret: str = field(repr=False)
    app_id: str
    clock: Callable[[], float]
    schedule_s: Sequence[float]
    speed: float
    ack_timeout_s: float
    rng: random.Random
    http: HttpMode | None = None
    duplicates: int = 0
    reorder: bool = False
    sockets: list[Socket] = field(default_factory=list)
    log: list[tuple[Json, Delivery]] = field(default_factory=list)
    on_delivery: Callable[[], None] = lambda: None
    _waiting: dict[str, asyncio.Future[Any]] = field(default_factory=dict)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _session: aiohttp.ClientSession | None = None

    # -- sockets ------------------------------------------------------------------------------------------------

    async def serve(self, connection: web.WebSocketResponse) -> None:
        """Hold one socket until its other side goes: greet, then take acknowledgements."""
        if len(self.sockets) >= MOST_SOCKETS:
            await connection.send_json({"type": "disconnect", "reason": "too_many_websockets"})
            return
        socket = Socket(connection)
        self.sockets.append(socket)
        try:
            await connection.send_json(self.hello())
            self.on_delivery()
            async for frame in connection:
                if frame.type is aiohttp.WSMsgType.TEXT:
                    self._acknowledge(frame.data)
        finally:
            self.sockets.remove(socket)
            self.on_delivery()

    def hello(self) -> Json:
        return {
            "type": "hello",
            "num_connections": len(self.sockets),
            "connection_info": {"app_id": self.app_id},
            "debug_info": {
                "host": "local-slack",
                "build_number": 1,
                "approximate_connection_time": APPROXIMATE_LIFE_S,
            },
        }

    def add_ghosts(self, count: int) -> None:
        self.sockets.extend(Socket(None) for _ in range(count))

    async def control(self, frame: Json) -> None:
        """A raw frame to every open socket. After a disconnect other than a warning they get nothing more."""
        for socket in list(self.sockets):
            if frame.get("type") == "disconnect" and frame.get("reason") != "warning":
                socket.leaving = True
            if socket.connection is not None and not socket.connection.closed:
                await socket.connection.send_json(frame)

    async def drop(self) -> None:
        """Close every socket."""
        for socket in list(self.sockets):
            if socket.connection is not None:
                await socket.connection.close(code=aiohttp.WSCloseCode.GOING_AWAY)

    def _acknowledge(self, text: str) -> None:
        try:
            frame = json.loads(text)
        except ValueError:
            return
        waiting = self._waiting.get(str(frame.get("envelope_id"))) if isinstance(frame, dict) else None
        if waiting is not None and not waiting.done():
            waiting.set_result(frame.get("payload"))

    # -- one delivery -------------------------------------------------------------------------------------------

    async def once(self, envelope: Json) -> Delivery:
        """Send it once and wait for its acknowledgement or the time-out."""
        started = time.monotonic()
        delivery = Delivery(str(envelope["envelope_id"]))
        if self.http is not None:
            await self._over_http(self.http, envelope, delivery)
        else:
            await self._over_socket(envelope, delivery)
        delivery.took_s = time.monotonic() - started
        self.log.append((envelope, delivery))
        self.on_delivery()
        return delivery

    async def _over_socket(self, envelope: Json, delivery: Delivery) -> None:
        open_sockets = [socket for socket in self.sockets if not socket.leaving]
        delivery.reason = "timeout"
        if not open_sockets:
            return
        socket = self.rng.choice(open_sockets)
        acknowledged: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[delivery.envelope_id] = acknowledged
        try:
            if socket.connection is not None:
                await socket.connection.send_json(envelope)
            async with asyncio.timeout(self.ack_timeout_s):
                delivery.response = await acknowledged
            delivery.acknowledged, delivery.reason = True, ""
        except (TimeoutError, ConnectionError):
            pass
        finally:
            del self._waiting[delivery.envelope_id]

    async def _over_http(self, mode: HttpMode, envelope: Json, delivery: Delivery) -> None:
        url, kind, body = _http_body(mode, envelope)
        stamp = str(int(self.clock() + mode.skew_s))
        headers = {
            "Content-Type": kind,
            "X-Slack-Request-Timestamp": stamp,
            "X-Slack-Signature": sign(self.signing_secret, stamp, body),
        }
        if envelope.get("retry_attempt"):
            headers["X-Slack-Retry-Num"] = str(envelope["retry_attempt"])
            headers["X-Slack-Retry-Reason"] = str(envelope["retry_reason"])
        session = self._session = self._session or aiohttp.ClientSession()
        try:
            async with asyncio.timeout(self.ack_timeout_s), session.post(url, data=body, headers=headers) as answer:
                text = await answer.text()
        except TimeoutError:
            delivery.reason = "http_timeout"
            return
        except aiohttp.ClientError:
            delivery.reason = "connection_failed"
            return
        delivery.status = answer.status
        delivery.acknowledged = 200 <= answer.status < 300
        delivery.response = json.loads(text) if answer.content_type == "application/json" and text else text
        if not delivery.acknowledged:
            delivery.reason = "http_error"
            delivery.final = answer.headers.get("X-Slack-No-Retry") == "1"

    # -- events and interactions --------------------------------------------------------------------------------

    async def interaction(self, payload: Json, kind: str = "interactive") -> Delivery:
        """A click, a submission or a command: sent once, never again."""
        return await self.once(_envelope(kind, payload, accepts=True))

    async def event(self, payload: Json) -> None:
        """An event, with its redeliveries."""
        reason = ""
        for attempt, delay_s in enumerate((0.0, *self.schedule_s)):
            if delay_s:
                await asyncio.sleep(delay_s / self.speed)
            delivery = await self.once(_envelope("events_api", payload, attempt=attempt, reason=reason))
            delivery.attempts = attempt + 1
            if delivery.acknowledged or delivery.final:
                return
            reason = delivery.reason

    def post_event(self, payload: Json) -> None:
        """Send an event in the background, as often and in whatever order the switches say."""
        for copy_number in range(1 + self.duplicates):
            twin = payload if copy_number % 2 == 0 else payload | {"event_id": f"{payload['event_id']}x{copy_number}"}
            self.spawn(self._jittered(twin) if self.reorder else self.event(twin))

    async def _jittered(self, payload: Json) -> None:
        await asyncio.sleep(self.rng.random() * 0.05)
        await self.event(payload)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @property
    def busy(self) -> bool:
        """Whether a delivery or one of its retries is still to come."""
        return bool(self._tasks)

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.drop()
        if self._session is not None:
            await self._session.close()


def _envelope(kind: str, payload: Json, *, accepts: bool = False, attempt: int = 0, reason: str = "") -> Json:
    return {
        "type": kind,
        "envelope_id": str(uuid.uuid4()),
        "payload": payload,
        "accepts_response_payload": accepts,
        "retry_attempt": attempt,
        "retry_reason": reason,
    }


def _http_body(mode: HttpMode, envelope: Json) -> tuple[str, str, bytes]:
    payload = envelope["payload"]
    if envelope["type"] == "events_api":
        return mode.events_url, "application/json", json.dumps(payload).encode()
    form = {"payload": json.dumps(payload)} if envelope["type"] == "interactive" else payload
    return mode.interactivity_url, "application/x-www-form-urlencoded", urlencode(form).encode()


def sign(secret: str, stamp: str, body: bytes) -> str:
    """Slack's request signature, version 0."""
    digest = hmac.new(secret.encode(), f"v0:{stamp}:".encode() + body, hashlib.sha256).hexdigest()
    return f"v0={digest}"
