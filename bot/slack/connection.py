"""How events reach us: Socket Mode or HTTP, and the checks before the first of them.

`preflight` fails fast with one sentence for what an operator has to mend: the SDK itself would try a bad token for
ever. The socket client is the SDK's, with two corrections: it never reconnects in a storm, and its proxy is the one
that was configured (the SDK reads HTTPS_PROXY and ignores NO_PROXY). One click is delivered once and to one socket,
so a `num_connections` above our own count is a warning: somebody else is listening with our token.
"""

from __future__ import annotations

import asyncio
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
from bot.slack.verdict import read_failure
from core.errors import BadInput

log = structlog.get_logger(__name__)

SKEW_WARNING_S = 60.0
SHORTEST_WAIT_S = 1.0
LONGEST_WAIT_S = 60.0
CALM_AFTER_S = 120.0
OUR_SOCKETS = 1


class Slack(Protocol):
    """What this needs of the settings."""

    @property
    def mode(self) -> str: ...
    @property
    def app_token(self) -> Any: ...
    @property
    def base_url(self) -> str: ...


def proxy_for(address: str, configured: str | None) -> str | None:
    """The proxy for `address`: the configured one, else the environment's unless NO_PROXY names the host."""
    if configured:
        return configured
    parts = urlsplit(address)
    if urllib.request.proxy_bypass(parts.hostname or ""):
        return None
    return urllib.request.getproxies_environment().get(parts.scheme)


@dataclass(slots=True)
class Heard:
    """What the socket last said, for /healthz. Times are monotonic seconds."""

    hello_at: float | None = None
    connections: int = 0
    reconnects: int = 0


async def preflight(client: AsyncWebClient, slack: Slack) -> Me:
    """Who we are here. Raises `BadInput` with a sentence that says what to do."""
    me = await _auth_test(client, slack)
    if slack.mode == "socket":
        token = slack.app_token.get_secret_value()
        try:
            await client.apps_connections_open(app_token=token)
        except Exception as error:
            reason = read_failure(error).error
            raise BadInput(
                f"SLACK_APP_TOKEN is not valid ({reason}); it must start with xapp- and have connections:write."
            ) from error
    return me


async def _auth_test(client: AsyncWebClient, slack: Slack) -> Me:
    try:
        response = await client.auth_test()
    except Exception as error:
        proxy = f" through the proxy {client.proxy}" if client.proxy else ""
        reason = read_failure(error).error
        if isinstance(error, SlackApiError):
            raise BadInput(
                f"SLACK_BOT_TOKEN is not valid ({reason}); copy the token that starts with xoxb- again."
            ) from error
        raise BadInput(f"Slack can't be reached at {slack.base_url}{proxy} ({reason}).") from error
    data = response.data if isinstance(response.data, dict) else {}
    _check_clock(str(response.headers.get("Date") or response.headers.get("date") or ""))
    return Me(
        user_id=str(data.get("user_id", "")),
        bot_id=str(data.get("bot_id", "")),
        team_id=str(data.get("team_id") or ""),
        enterprise_id=str(data.get("enterprise_id") or ""),
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
    """The SDK's client, with waits that grow between connections that don't last."""

    last_issue: float = 0.0
    wait_s: float = 0.0

    async def issue_new_wss_url(self) -> str:
        now = time.monotonic()
        if self.last_issue and now - self.last_issue < CALM_AFTER_S and self.wait_s > 0:
            await asyncio.sleep(self.wait_s * (0.75 + random.random() / 2))
        self.last_issue = time.monotonic()
        address: str = await super().issue_new_wss_url()
        return address


class Connection:
    """The open ear. `open` begins to listen, `close` stops. In HTTP mode `handle` is the route for events."""

    def __init__(self, app: AsyncApp, slack: Slack, now: Callable[[], float]) -> None:
        self._app = app
        self._slack = slack
        self._now = now
        self._client: PacedSocketClient | None = None
        self.heard = Heard()

    async def open(self) -> None:
        """Connect, in Socket Mode."""
        if self._slack.mode != "socket":
            return
        client = PacedSocketClient(
            app_token=self._slack.app_token.get_secret_value(),
            web_client=self._app.client,
            ping_interval=10,
        )
        client.proxy = self._app.client.proxy
        client.socket_mode_request_listeners.append(self._envelope)
        client.on_message_listeners.append(self._message)
        self._client = client
        await client.connect()  # type: ignore[no-untyped-call]

    async def close(self) -> None:
        """Stop listening; a close frame goes out, so that no ghost of us stays registered."""
        if self._client is not None:
            await self._client.close()  # type: ignore[no-untyped-call]
            self._client = None

    async def handle(self, request: web.Request) -> web.Response:
        """One request of Slack in HTTP mode."""
        response = await self._app.async_dispatch(await to_bolt_request(request))
        return await to_aiohttp_response(response)

    async def _envelope(self, client: AsyncBaseSocketModeClient, request: SocketModeRequest) -> None:
        began = time.time()
        response = await run_async_bolt_app(self._app, request)
        await send_async_response(client, request, response, began)

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
        client = self._client
        if client is None:
            return
        if reason in ("too_many_websockets", "link_disabled"):
            client.wait_s = min(LONGEST_WAIT_S, max(SHORTEST_WAIT_S, client.wait_s * 2))
            log.error(
                "socket_refused",
                reason=reason,
                wait_s=client.wait_s,
                hint="other processes use this app token, or Socket Mode was switched off in the app's settings",
            )
        else:
            client.wait_s = 0.0
            log.info("socket_refresh", reason=reason)
