"""What stands in front of Bolt in HTTP mode: real requests to a real server, with the real Bolt behind it."""

from __future__ import annotations

import asyncio
import io
import json
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

import aiohttp
import pytest
from aiohttp import web
from slack_bolt.adapter.aiohttp import to_aiohttp_response, to_bolt_request
from slack_bolt.async_app import AsyncAck, AsyncApp
from slack_bolt.authorization import AuthorizeResult
from structlog.testing import capture_logs

from bot.http import serving
from bot.slack.signature import SIGNATURE, TIMESTAMP, sign, verified
from core.errors import BadInput

SECRET = "8f742231b10e8888abcd99yyyzzz85a5"
EVENT = {
    "type": "event_callback",
    "team_id": "T0HOME",
    "event_id": "Ev1",
    "event_time": 1790000000,
    "event": {"type": "app_mention", "channel": "C0INC", "user": "U0ANN", "text": "why?", "ts": "1790000000.000100"},
}
BODY = json.dumps(EVENT).encode()
CLICK = {
    "type": "block_actions",
    "team": {"id": "T0HOME"},
    "user": {"id": "U0ANN"},
    "actions": [{"type": "button", "action_id": "stop_step", "block_id": "b", "action_ts": "1790000001.000100"}],
}
JSON = {"Content-Type": "application/json"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


async def _nobody_asks(**_: Any) -> AuthorizeResult:
    return AuthorizeResult(enterprise_id=None, team_id="T0HOME", bot_user_id="U0PILOT", bot_token="xoxb-test")


@dataclass
class Door:
    """The server, and what Bolt behind it heard."""

    http: aiohttp.ClientSession
    address: str = ""
    heard: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.bolt = AsyncApp(
            signing_secret=SECRET,
            authorize=_nobody_asks,
            process_before_response=True,
            raise_error_for_unhandled_request=False,
        )
        self.bolt.event("app_mention")(self._event)
        self.bolt.action("stop_step")(self._click)

    async def _event(self, body: dict[str, Any]) -> None:
        self.heard.append(body)

    async def _click(self, ack: AsyncAck, body: dict[str, Any]) -> None:
        self.heard.append(body)
        await ack()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        return await to_aiohttp_response(await self.bolt.async_dispatch(await to_bolt_request(request)))

    async def post(self, body: bytes, headers: Mapping[str, str]) -> int:
        """The status of one request with exactly these headers."""
        async with self.http.post(self.address, data=io.BytesIO(body), headers=headers) as response:
            text = await response.text()
            assert "secret" not in text.lower() and SECRET not in text
            return response.status

    async def signed(self, body: bytes = BODY, off_s: float = 0, more: Mapping[str, str] | None = None) -> int:
        """The status of one request that Slack would have signed `off_s` from now."""
        return await self.post(body, headers_for(body, off_s) | JSON | dict(more or {}))


def headers_for(body: bytes, off_s: float = 0) -> dict[str, str]:
    timestamp = str(int(time.time() + off_s))
    return {TIMESTAMP: timestamp, SIGNATURE: sign(SECRET.encode(), timestamp, body)}


@pytest.fixture
async def door() -> AsyncIterator[Door]:
    async with aiohttp.ClientSession() as http:
        door = Door(http)
        app = web.Application()
        app.router.add_post("/slack/events", verified(SECRET, door.handle))
        async with serving(app, "127.0.0.1", 0) as port:
            door.address = f"http://127.0.0.1:{port}/slack/events"
            yield door


# -- what Slack sends


async def test_a_signed_event_reaches_its_listener(door: Door) -> None:
    assert await door.signed() == 200
    assert [body["event_id"] for body in door.heard] == ["Ev1"]


async def test_a_timestamp_within_five_minutes_is_taken_in_both_directions(door: Door) -> None:
    assert await door.signed(off_s=-290) == 200
    assert await door.signed(off_s=290) == 200


async def test_the_same_request_twice_passes_twice_because_the_mailbox_knows_what_it_has(door: Door) -> None:
    headers = headers_for(BODY) | JSON
    assert [await door.post(BODY, headers), await door.post(BODY, headers)] == [200, 200]
    assert len(door.heard) == 2


async def test_a_retry_passes_because_its_first_delivery_may_have_been_lost(door: Door) -> None:
    assert await door.signed(more={"X-Slack-Retry-Num": "1", "X-Slack-Retry-Reason": "http_timeout"}) == 200
    assert len(door.heard) == 1


async def test_words_of_every_language_are_verified_as_the_bytes_that_they_are(door: Door) -> None:
    body = json.dumps(EVENT | {"words": "刹车，先停一下 🛑"}, ensure_ascii=False).encode()
    assert await door.signed(body) == 200
    assert door.heard[0]["words"] == "刹车，先停一下 🛑"


async def test_the_handshake_of_the_events_api_is_answered(door: Door) -> None:
    body = json.dumps({"type": "url_verification", "challenge": "ch1"}).encode()
    async with door.http.post(door.address, data=body, headers=headers_for(body) | JSON) as response:
        assert response.status == 200
        assert "ch1" in await response.text()


async def test_a_click_comes_as_a_form_and_reaches_bolt(door: Door) -> None:
    body = urlencode({"payload": json.dumps(CLICK)}).encode()
    assert await door.post(body, headers_for(body) | FORM) == 200
    assert [body["type"] for body in door.heard] == ["block_actions"]


# -- what anybody can send


WRONG_SIGNATURES = {
    "empty": "",
    "only a version": "v0=",
    "another version": "v1=" + "a" * 64,
    "a capital version": "V0=" + "a" * 64,
    "too short": "v0=" + "a" * 63,
    "too long": "v0=" + "a" * 65,
    "no hex digits": "v0=" + "g" * 64,
    "not ASCII": "v0=" + "é" * 64,
    "full-width digits": "v0=" + "１" * 64,
    "somebody else's": "v0=" + "a" * 64,
}


@pytest.mark.parametrize("signature", WRONG_SIGNATURES.values(), ids=WRONG_SIGNATURES.keys())
async def test_a_signature_that_is_not_slacks_is_refused(door: Door, signature: str) -> None:
    assert await door.post(BODY, headers_for(BODY) | JSON | {SIGNATURE: signature}) == 401
    assert door.heard == []


async def test_the_right_signature_in_capitals_is_refused(door: Door) -> None:
    headers = headers_for(BODY)
    digest = headers[SIGNATURE].removeprefix("v0=")
    assert await door.post(BODY, headers | JSON | {SIGNATURE: f"v0={digest.upper()}"}) == 401
    assert await door.post(BODY, headers | JSON | {SIGNATURE: f"v1={digest}"}) == 401
    assert door.heard == []


@pytest.mark.parametrize("missing", [TIMESTAMP, SIGNATURE])
async def test_without_one_of_the_headers_a_request_is_refused(door: Door, missing: str) -> None:
    headers = headers_for(BODY) | JSON
    del headers[missing]
    assert await door.post(BODY, headers) == 401
    assert await door.post(BODY, JSON) == 401


WRONG_TIMESTAMPS = {
    "a word": "abc",
    "an exponent": "1e9",
    "a fraction": "1790000000.5",
    "a sign": "+1790000000",
    "negative": "-1",
    "an underscore": "1_790_000_000",
    "hexadecimal": "0x6ab13b80",
    "full-width digits": "１７９００００００００",
    "infinity": "inf",
    "more digits than a number may have": "1" * 5000,
    "empty": "",
}


@pytest.mark.parametrize("timestamp", WRONG_TIMESTAMPS.values(), ids=WRONG_TIMESTAMPS.keys())
async def test_a_timestamp_that_is_no_plain_number_is_refused_even_if_it_was_signed(
    door: Door, timestamp: str
) -> None:
    signed = {TIMESTAMP: timestamp, SIGNATURE: sign(SECRET.encode(), timestamp, BODY)}
    assert await door.post(BODY, signed | JSON) == 401
    assert door.heard == []


async def test_a_header_given_twice_is_refused(door: Door) -> None:
    headers = [*headers_for(BODY).items(), *JSON.items()]
    for name, value in headers[:2]:
        async with door.http.post(door.address, data=BODY, headers=[*headers, (name, value)]) as response:
            assert response.status == 401
    assert door.heard == []


async def test_a_body_that_was_changed_on_its_way_is_refused(door: Door) -> None:
    assert await door.post(BODY + b" ", headers_for(BODY) | JSON) == 401
    assert door.heard == []


async def test_a_right_signature_with_a_later_timestamp_is_refused(door: Door) -> None:
    old = headers_for(BODY, -400)
    assert await door.post(BODY, old | {TIMESTAMP: str(int(time.time()))} | JSON) == 401


async def test_what_is_posted_elsewhere_or_not_posted_is_not_found(door: Door) -> None:
    async with door.http.get(door.address) as response:
        assert response.status == 405


# -- clocks


@pytest.mark.parametrize(
    ("off_s", "says"),
    [(-312, "5 min 12 s older than this machine's clock"), (7200, "newer than this machine's clock")],
)
async def test_a_request_out_of_time_is_refused_and_the_log_says_how_far_off_the_clock_is(
    door: Door, off_s: float, says: str
) -> None:
    with capture_logs() as logs:
        assert await door.signed(off_s=off_s) == 401
    assert door.heard == []
    entry = next(entry for entry in logs if entry["event"] == "slack_request_out_of_time")
    assert entry["log_level"] == "error"
    assert says.removeprefix("5 min 12 s") in entry["says"]
    assert abs(entry["off_s"] + off_s) < 5
    assert "check NTP" in entry["hint"]


async def test_the_skew_is_said_in_words_of_minutes_and_seconds() -> None:
    now = 1_790_000_312.0
    door = verified(SECRET, _never, lambda: now)
    app = web.Application()
    app.router.add_post("/", door)
    headers = {TIMESTAMP: "1790000000", SIGNATURE: sign(SECRET.encode(), "1790000000", BODY)}
    with capture_logs() as logs:
        async with (
            serving(app, "127.0.0.1", 0) as port,
            aiohttp.ClientSession() as http,
            http.post(f"http://127.0.0.1:{port}/", data=BODY, headers=headers) as response,
        ):
            assert response.status == 401
    assert [entry["says"] for entry in logs] == ["the timestamp is 5 min 12 s older than this machine's clock"]


async def _never(request: web.Request) -> web.StreamResponse:
    raise AssertionError("nothing may come through")


async def test_an_old_request_that_nobody_signed_does_not_blame_the_clock(door: Door) -> None:
    with capture_logs() as logs:
        stale = {TIMESTAMP: "1000000000", SIGNATURE: "v0=" + "a" * 64}
        assert await door.post(BODY, stale | JSON) == 401
    assert [entry["event"] for entry in logs] == ["slack_request_refused"]
    assert "signature is wrong too" in logs[0]["why"]


# -- what is signed, but no request of Slack


NOT_SLACKS = {
    "bytes that are no UTF-8": (b'{"type": "event_callback", "x": "\xff\xfe"}', JSON),
    "half a JSON": (b'{"type": "event_callback"', JSON),
    "a word": (b"hello", JSON),
    "a list": (b"[1, 2]", JSON),
    "a string": (b'"event_callback"', JSON),
    "a byte order mark": (b"\xef\xbb\xbf{}", JSON),
    "a nesting without end": (b'{"a":' * 100_000, JSON),
    "a number without end": (b'{"a":' + b"9" * 5000 + b"}", JSON),
    "a form with half a payload": (urlencode({"payload": '{"type": '}).encode(), FORM),
    "a form whose payload is a list": (urlencode({"payload": "[]"}).encode(), FORM),
    "JSON in another charset": (
        json.dumps(EVENT).encode("utf-16"),
        {"Content-Type": "application/json; charset=utf-16"},
    ),
    "JSON in a charset that nobody knows": (BODY, {"Content-Type": "application/json; charset=klingon"}),
}


@pytest.mark.parametrize(("body", "kind"), NOT_SLACKS.values(), ids=NOT_SLACKS.keys())
async def test_a_signed_body_that_can_not_be_read_is_a_bad_request_and_never_an_error_of_ours(
    door: Door, body: bytes, kind: dict[str, str]
) -> None:
    assert await door.post(body, headers_for(body) | kind) == 400
    assert door.heard == []


async def test_a_body_that_claims_to_be_compressed_and_is_not_is_a_bad_request(door: Door) -> None:
    assert await door.signed(more={"Content-Encoding": "gzip"}) == 400


async def test_a_body_without_end_is_cut_off(door: Door) -> None:
    body = b'{"a": "' + b"x" * 2_000_000 + b'"}'
    assert await door.signed(body) == 413


async def test_a_body_that_does_not_come_is_not_waited_for_long() -> None:
    app = web.Application()
    app.router.add_post("/", verified(SECRET, _never, body_s=0.05))
    lines = {"Host": "x", "Content-Length": "100"} | headers_for(BODY) | JSON
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    async with serving(app, "127.0.0.1", 0) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"POST / HTTP/1.1\r\n{head}\r\n".encode())
        async with asyncio.timeout(10):
            assert b" 408 " in await reader.readline()
        writer.close()
        await writer.wait_closed()


def test_without_a_signing_secret_there_is_no_http_mode() -> None:
    with pytest.raises(BadInput, match="SLACK_SIGNING_SECRET"):
        verified(" ", _never)


async def test_more_events_than_can_be_answered_in_time_are_left_to_slack_to_send_again() -> None:
    under_way, let = asyncio.Semaphore(0), asyncio.Event()

    async def slow(_request: web.Request) -> web.StreamResponse:
        under_way.release()
        await let.wait()
        return web.Response()

    app = web.Application()
    app.router.add_post("/slack/events", verified(SECRET, slow, most=3))
    async with serving(app, "127.0.0.1", 0) as port, aiohttp.ClientSession() as http:
        door = Door(http)
        door.address = f"http://127.0.0.1:{port}/slack/events"
        first = [asyncio.ensure_future(door.signed()) for _ in range(3)]
        for _ in first:
            await under_way.acquire()
        assert await door.signed() == 503
        body = urlencode({"payload": json.dumps({"type": "block_actions"})}).encode()
        click = asyncio.ensure_future(door.post(body, headers_for(body) | FORM))
        await under_way.acquire()
        let.set()
        assert await asyncio.gather(*first, click) == [200] * 4
        assert await door.signed() == 200
