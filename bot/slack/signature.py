"""Who may post events in HTTP mode: only Slack, and only now.

Bolt checks signatures too, but it trusts the headers to be well formed: a timestamp that is no number, or a signature
that is not ASCII, ends in a 500, and Slack would send the same again. So this stands in front of it, strictly:

    401   the signature or the timestamp is missing, given twice, malformed, wrong, or more than 300 s off
    400   Slack signed it, but the body is not what Slack sends: no UTF-8, broken JSON
    408   the body did not arrive in time
    413   the body is larger than the application takes
    503   more events are under way than can be answered in time: Slack sends this one again. Clicks always pass,
          because nobody sends those again

The signature is over the raw bytes and compared in constant time, also when the timestamp is off: a right signature
with a wrong time means that a clock is wrong, or that somebody repeats an old request, and the log can say so. What
Slack sends again passes like everything else: the first delivery may be lost, and the mailbox knows what it has.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import re
import time
from collections.abc import Awaitable, Callable
from urllib.parse import parse_qsl

import structlog
from aiohttp import web

from core.card_words import span
from core.errors import BadInput

log = structlog.get_logger(__name__)

WINDOW_S = 300
BODY_S = 5.0
"""How long a body may take to arrive. Slack gives up after 3 s."""
TIMESTAMP = "X-Slack-Request-Timestamp"
SIGNATURE = "X-Slack-Signature"
MOST_AT_ONCE = 200
"""Requests of Slack that are under way. Each is a transaction before its answer, and Slack waits 3 s for that."""
EVENT = "application/json"
_TIMESTAMP = re.compile(r"[0-9]{1,12}")
_SIGNATURE = re.compile(r"v0=[0-9a-f]{64}")
_UTF_8 = (None, "utf-8", "utf8")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def verified(
    secret: str,
    handle: Handler,
    now: Callable[[], float] = time.time,
    *,
    body_s: float = BODY_S,
    most: int = MOST_AT_ONCE,
) -> Handler:
    """`handle` for requests that Slack signed with `secret`, and for no others; at most `most` at once.

    `now`: seconds since the epoch.
    """
    if not secret.strip():
        raise BadInput(
            "HTTP mode needs SLACK_SIGNING_SECRET; copy the Signing Secret from the app's Basic Information."
        )
    key = secret.encode()
    under_way = 0

    async def admitted(request: web.Request) -> web.StreamResponse:
        nonlocal under_way
        if under_way >= most and request.content_type == EVENT:
            return _refused(503, f"{most} requests of Slack are under way already; Slack sends this one again")
        under_way += 1
        try:
            return await handle(request)
        finally:
            under_way -= 1

    async def handler(request: web.Request) -> web.StreamResponse:
        headers = _headers(request)
        if headers is None:
            return _refused(401, f"{TIMESTAMP} or {SIGNATURE} is missing, given twice or malformed")
        timestamp, signature = headers
        try:
            async with asyncio.timeout(body_s):
                body = await request.read()
        except TimeoutError:
            return _refused(408, f"the body did not arrive within {body_s:g} s")
        except web.RequestPayloadError as error:
            return _refused(400, f"the body can't be read: {error}")
        signed = hmac.compare_digest(sign(key, timestamp, body), signature)
        off_s = now() - int(timestamp)
        if abs(off_s) > WINDOW_S:
            return _out_of_time(off_s, signed=signed)
        if not signed:
            return _refused(
                401, "the signature is wrong: it is not from Slack, or SLACK_SIGNING_SECRET is another app's"
            )
        wrong = unreadable(body, request.content_type, request.charset)
        return _refused(400, wrong) if wrong is not None else await admitted(request)

    return handler


def sign(key: bytes, timestamp: str, body: bytes) -> str:
    """What Slack puts into the header for this body at this time."""
    return "v0=" + hmac.new(key, f"v0:{timestamp}:".encode() + body, hashlib.sha256).hexdigest()


def unreadable(body: bytes, content_type: str, charset: str | None) -> str | None:
    """Why a body can't be one of Slack's, or None. Events are JSON; clicks and commands are forms."""
    if charset is not None and charset.lower() not in _UTF_8:
        return f"the charset is {charset} and not utf-8"
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        return "the body is not UTF-8"
    if content_type == "application/json" or text.startswith("{"):
        return _not_an_object(text, "the body")
    payload = dict(parse_qsl(text, keep_blank_values=True)).get("payload")
    return None if payload is None else _not_an_object(payload, "the payload")


def _not_an_object(text: str, what: str) -> str | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return f"{what} is not JSON"
    return None if isinstance(found, dict) else f"{what} is JSON but no object"


def _headers(request: web.Request) -> tuple[str, str] | None:
    timestamps, signatures = request.headers.getall(TIMESTAMP, []), request.headers.getall(SIGNATURE, [])
    if len(timestamps) != 1 or len(signatures) != 1:
        return None
    if not _TIMESTAMP.fullmatch(timestamps[0]) or not _SIGNATURE.fullmatch(signatures[0]):
        return None
    return timestamps[0], signatures[0]


def _out_of_time(off_s: float, *, signed: bool) -> web.Response:
    """The clock is off by more than the window; who signed it decides how loudly that is said."""
    says = f"the timestamp is {span(abs(off_s))} {'older' if off_s > 0 else 'newer'} than this machine's clock"
    if signed:
        log.error(
            "slack_request_out_of_time",
            says=says,
            off_s=round(off_s, 1),
            hint="the signature is right: either this machine's clock is wrong (check NTP), and then nothing that "
            "Slack sends arrives, or somebody repeats an old request",
        )
        return _answer(401)
    return _refused(401, f"{says}, and the signature is wrong too")


def _refused(status: int, why: str) -> web.Response:
    log.warning("slack_request_refused", status=status, why=why)
    return _answer(status)


def _answer(status: int) -> web.Response:
    """Whoever asks learns no more than Bolt says: the reason is in our log."""
    return web.json_response({"error": "invalid request"}, status=status)
