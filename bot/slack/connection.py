"""How events reach us: Socket Mode or HTTP, and the checks before the first of them.

`preflight` fails fast with one sentence for what an operator has to mend: the SDK itself would try a bad token for
ever. The socket client is the SDK's, with three corrections: it never reconnects in a storm, its proxy is the one
that was configured (the SDK reads HTTPS_PROXY and ignores NO_PROXY), and one that has lost its way is replaced: the
SDK can try one dead address for ever. One click is delivered once and to one socket, so a `num_connections` above our
own count is a warning: somebody else is listening with our token.
"""

from __future__ import annotations

import asyncio
import contextlib
import email.utils
import json
import random
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlsplit

import aiohttp
import structlog
from aiohttp import web
from slack_bolt.adapter.aiohttp import to_aiohttp_response, to_bolt_request
from slack_bolt.adapter.socket_mode.async_internals import run_async_bolt_app, send_async_response
from slack_bolt.async_app import AsyncApp
from slack_sdk.errors import SlackApiError
from slack_sdk.socket_mode.aiohttp import SocketModeClient
from slack_sdk.socket_mode.async_client import AsyncBaseSocketModeClient
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.web.async_client import AsyncWebClient

from bot.slack.identity import Me
from bot.slack.verdict import Meaning, read_failure
from core.errors import BadInput

log = structlog.get_logger(__name__)

SKEW_WARNING_S = 60.0
LONGEST_WAIT_S = 60.0
CALM_AFTER_S = 60.0
LOOK_S = 5.0
LOST_AFTER_S = 45.0
LAST_WORDS_S = 1.0
"""How long an envelope that is being taken may keep the socket open at the end."""
REFUSALS = ("too_many_websockets", "link_disabled")
OUR_SOCKETS = 1
THIS_MACHINE = frozenset({"localhost", "127.0.0.1", "::1"})


class Slack(Protocol):
    """What this needs of the settings."""

    @property
    def mode(self) -> str: ...
    @property
    def app_token(self) -> Any: ...
    @property
    def base_url(self) -> str: ...
    @property
    def proxy(self) -> str | None: ...


def proxy_for(address: str, configured: str | None) -> str | None:
    """The proxy for `address`: the configured one, else the environment's.

    Not where NO_PROXY names the host, and never to this machine itself: a demo's Slack is here.
    """
    if configured:
        return configured
    parts = urlsplit(address)
    if parts.hostname in THIS_MACHINE or urllib.request.proxy_bypass(parts.hostname or ""):
        return None
    return urllib.request.getproxies_environment().get(parts.scheme.replace("ws", "http"))


@dataclass(slots=True)
class Heard:
    """What the socket last said, for /healthz. Times are monotonic seconds."""

    hello_at: float | None = None
    connections: int = 0
    reconnects: int = 0


async def preflight(client: AsyncWebClient, slack: Slack) -> Me:
    """Who we are here. Raises `BadInput` with a sentence that says what to do."""
    me = await who_we_are(client, slack)
    if slack.mode == "socket":
        token = slack.app_token.get_secret_value()
        try:
            await client.apps_connections_open(app_token=token)
        except Exception as error:
            hint = "SLACK_APP_TOKEN is not valid ({}); it must start with xapp- and have connections:write."
            raise cannot_begin(error, client, slack, hint) from error
    return me


def cannot_begin(error: Exception, client: AsyncWebClient, slack: Slack, token: str) -> BadInput:
    """The sentence for an operator: about the token only if Slack itself has refused it."""
    verdict = read_failure(error)
    if verdict.meaning in (Meaning.DEAD, Meaning.REFUSED, Meaning.FEATURE):
        return BadInput(token.format(verdict.error))
    proxy = f" through the proxy {client.proxy}" if client.proxy else ""
    if isinstance(error, SlackApiError):
        return BadInput(f"Slack at {slack.base_url}{proxy} does not answer as it should now ({verdict.error}).")
    return BadInput(f"Slack can't be reached at {slack.base_url}{proxy} ({verdict.error}).")


async def who_we_are(client: AsyncWebClient, slack: Slack) -> Me:
    """By `auth.test`. Raises `BadInput`."""
    try:
        response = await client.auth_test()
    except Exception as error:
        hint = "SLACK_BOT_TOKEN is not valid ({}); copy the token that starts with xoxb- again."
        raise cannot_begin(error, client, slack, hint) from error
    data = response.data if isinstance(response.data, dict) else {}
    _check_clock(str(response.headers.get("Date") or response.headers.get("date") or ""))
    return Me(
        user_id=str(data.get("user_id", "")),
        bot_id=str(data.get("bot_id", "")),
        team_id=str(data.get("team_id") or ""),
        enterprise_id=str(data.get("enterprise_id") or ""),
        url=str(data.get("url") or ""),
    )


def _check_clock(date: str) -> None:
    try:
        skew = time.time() - email.utils.parsedate_to_datetime(date).timestamp()
    except (TypeError, ValueError):
        return
    if abs(skew) > SKEW_WARNING_S:
        log.warning(
            "clock_skew",
            skew_s=round(skew, 1),
            hint="this machine's clock differs from Slack's; above 300 s signed requests are refused. Check NTP",
        )


class PacedSocketClient(SocketModeClient):
    """The SDK's client, with waits that grow between connections that don't last. `reason`: why one ended."""

    configured_proxy: str | None = None
    reason: str = ""
    short_lived: int = 0
    issued_at: float = 0.0

    def wait_s(self, now: float) -> float:
        """How long to wait before the next connection: 0 after one that lasted, then 1, 2, 4 ... 60 s.

        One that Slack asked for, or that just broke, is replaced at once the first time.
        """
        lasted = not self.issued_at or now - self.issued_at >= CALM_AFTER_S
        self.short_lived = 0 if lasted else self.short_lived + 1
        tries = max(1, self.short_lived) if self.reason in REFUSALS else self.short_lived - 1
        return float(min(LONGEST_WAIT_S, 2.0 ** min(tries - 1, 10))) if tries > 0 else 0.0

    async def issue_new_wss_url(self) -> str:
        wait_s = self.wait_s(time.monotonic())
        if self.reason in REFUSALS:
            log.error(
                "socket_refused",
                reason=self.reason,
                wait_s=wait_s,
                hint="other processes use this app token, or Socket Mode was switched off in the app's settings",
            )
        self.reason = ""
        await asyncio.sleep(wait_s * (0.75 + random.random() / 2))
        self.issued_at = time.monotonic()
        address: str = await super().issue_new_wss_url()
        self.proxy = proxy_for(address, self.configured_proxy)
        return address


class Connection:
    """The open ear. `open` begins to listen, `close` stops. In HTTP mode `handle` is the route for events."""

    def __init__(self, app: AsyncApp, slack: Slack, now: Callable[[], float]) -> None:
        self._app = app
        self._slack = slack
        self._now = now
        self._client: PacedSocketClient | None = None
        self._watch: asyncio.Task[None] | None = None
        self._under_way = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self.heard = Heard()

    async def open(self) -> None:
        """Connect, in Socket Mode; returns when the first connection stands."""
        if self._slack.mode != "socket":
            return
        self._watch = asyncio.create_task(self._keep_open())
        await self._connect()

    async def close(self) -> None:
        """Stop listening: what is being taken is acknowledged first, and a close frame goes out, so that no ghost of
        us stays registered.
        """
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
            self._watch = None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS_S):
                await self._idle.wait()
        await self._hang_up()

    async def _connect(self) -> None:
        client = PacedSocketClient(
            app_token=self._slack.app_token.get_secret_value(),
            web_client=self._app.client,
            ping_interval=10,
        )
        client.configured_proxy = self._slack.proxy
        client.socket_mode_request_listeners.append(self._envelope)
        client.on_message_listeners.append(self._message)
        if self._client is not None:
            client.short_lived, client.issued_at = self._client.short_lived, self._client.issued_at
        self._client = client
        await client.connect()  # type: ignore[no-untyped-call]

    async def _hang_up(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()  # type: ignore[no-untyped-call]

    async def _keep_open(self) -> None:
        """Replace a client that has not been connected for longer than its own waits explain."""
        lost_since: float | None = None
        while True:
            await asyncio.sleep(LOOK_S)
            client = self._client
            if client is None or await client.is_connected():
                lost_since = None
                continue
            now = self._now()
            lost_since = now if lost_since is None else lost_since
            if now - lost_since < LOST_AFTER_S + LONGEST_WAIT_S * (client.short_lived > 1):
                continue
            log.error("socket_lost", for_s=round(now - lost_since), hint="the connection to Slack is built anew")
            lost_since = None
            await client.close()  # type: ignore[no-untyped-call]
            self.heard.reconnects += 1
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOST_AFTER_S):
                    await self._connect()

    async def handle(self, request: web.Request) -> web.Response:
        """One request of Slack in HTTP mode."""
        response = await self._app.async_dispatch(await to_bolt_request(request))
        return await to_aiohttp_response(response)

    async def _envelope(self, client: AsyncBaseSocketModeClient, request: SocketModeRequest) -> None:
        began = time.time()
        self._under_way += 1
        self._idle.clear()
        try:
            response = await run_async_bolt_app(self._app, request)
            await send_async_response(client, request, response, began)
        except (aiohttp.ClientError, ConnectionError) as error:
            log.info("not_acknowledged", error=repr(error), hint="the socket has closed; Slack sends an event again")
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._idle.set()

    async def _message(self, message: aiohttp.WSMessage) -> None:
        text = message.data if isinstance(message.data, str) else ""
        head = text[:400]
        if '"hello"' not in head and '"disconnect"' not in head:
            return
        frame = json.loads(text)
        if frame.get("type") == "hello":
            self._hello(int(frame.get("num_connections") or 0))
        elif frame.get("type") == "disconnect":
            self._disconnect(str(frame.get("reason", "")))

    def _hello(self, connections: int) -> None:
        self.heard.hello_at = self._now()
        self.heard.connections = connections
        if connections > OUR_SOCKETS:
            log.warning(
                "strange_connections",
                connections=connections,
                ours=OUR_SOCKETS,
                hint="other processes or ghosts listen with this app token and get some of the clicks; "
                "stop words and the native Stop still arrive. HTTP mode avoids this",
            )

    def _disconnect(self, reason: str) -> None:
        self.heard.reconnects += 1
        if self._client is not None:
            self._client.reason = reason
        if reason not in REFUSALS:
            log.info("socket_refresh", reason=reason)
