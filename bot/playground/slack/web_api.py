"""`/api/<method>`: tokens, scopes, arguments, limits and scripts in front of the handlers, a record behind them."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Any

from aiohttp import web

from bot.playground.slack import agents, chat, looking, uploads, views
from bot.playground.slack.arguments import read_arguments
from bot.playground.slack.chaos import Chaos
from bot.playground.slack.desk import Desk
from bot.playground.slack.people import Json
from bot.playground.slack.reference import check_arguments, check_scopes, confirm
from bot.playground.slack.refusal import Refused

Handler = Callable[[Desk, Json], Awaitable[Json]]
OPEN_SOCKET = "apps.connections.open"


async def open_socket(desk: Desk, args: Json) -> Json:
    ticket = desk.issue_socket_ticket()
    return {
        "ok": True,
        "url": f"{desk.url.replace('http', 'ws', 1)}/link?ticket={ticket}&app_id={desk.workspace.app_id}",
    }


METHODS: Mapping[str, Handler] = {
    OPEN_SOCKET: open_socket,
    **chat.METHODS,
    **agents.METHODS,
    **looking.METHODS,
    **views.METHODS,
    **uploads.METHODS,
}


@dataclass(frozen=True, slots=True)
class Call:
    """One Web API call. `status` 0 means that it was never answered; `response` is a dict, or a text."""

    method: str
    args: Json
    status: int
    response: Any
    at: float

    @property
    def ok(self) -> bool:
        return isinstance(self.response, dict) and self.response.get("ok") is True


@dataclass(slots=True)
class WebApi:
    """The door for programs."""

    desk: Desk
    chaos: Chaos
    calls: list[Call] = field(default_factory=list)
    on_call: Callable[[], None] = lambda: None

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Answer one call, or do to it what the scripts say."""
        method = request.match_info["method"]
        try:
            args = await read_arguments(request)
        except Refused as refusal:
            return self._answer(method, {}, _no(refusal))
        token = request.headers.get("Authorization", "").removeprefix("Bearer ").strip() or args.get("token")
        args.pop("token", None)
        await self.chaos.wait(method)
        scripted = self.chaos.next_response(method, args)
        if isinstance(scripted, Mapping):
            return self._scripted(method, args, scripted)
        if scripted in ("timeout", "reset"):
            return await self._silence(request, method, args, scripted)
        wait_s = self.chaos.retry_after_s(method, args) if method in METHODS else 0
        scopes = self._scopes_header(token)
        if wait_s:
            limited = {"ok": False, "error": "ratelimited"}
            return self._answer(method, args, limited, 429, {"Retry-After": str(wait_s), **scopes})
        answer = await self._do(method, token, args)
        if scripted != "pass":
            return await self._silence(request, method, args, scripted.removeprefix("commit_then_"))
        return self._answer(method, args, answer, headers=scopes)

    async def _do(self, method: str, token: Any, args: Json) -> Json:
        try:
            self._authorise(method, token)
            check_arguments(method, args)
            return await METHODS[method](self.desk, args)
        except Refused as refusal:
            if method in METHODS:
                confirm(method, refusal.error)
            return _no(refusal)

    def _authorise(self, method: str, token: Any) -> None:
        workspace = self.desk.workspace
        if method not in METHODS:
            raise Refused("unknown_method", req_method=method)
        if not token:
            raise Refused("not_authed")
        if workspace.token_error is not None and token == workspace.bot_token:
            raise Refused(workspace.token_error)
        if token not in (workspace.bot_token, workspace.app_token):
            raise Refused("invalid_auth")
        if (method == OPEN_SOCKET) != (token == workspace.app_token):
            raise Refused("not_allowed_token_type" if method != OPEN_SOCKET else "invalid_auth")
        check_scopes(method, workspace.app_scopes if method == OPEN_SOCKET else workspace.scopes)

    def _scopes_header(self, token: Any) -> dict[str, str]:
        """What a token was granted; Slack says it of those that it knows."""
        workspace = self.desk.workspace
        known = {workspace.bot_token: workspace.scopes, workspace.app_token: workspace.app_scopes}
        granted = known.get(token)
        if granted is None or (workspace.token_error is not None and token == workspace.bot_token):
            return {}
        return {"x-oauth-scopes": ",".join(sorted(granted))}

    async def _silence(self, request: web.Request, method: str, args: Json, how: str) -> web.StreamResponse:
        self._record(method, args, 0, how)
        if how == "timeout":
            await self.chaos.hold(None)
        if request.transport is not None:
            request.transport.abort()
        return web.Response(status=503)

    def _scripted(self, method: str, args: Json, response: Mapping[str, Any]) -> web.Response:
        body = response.get("body", {"ok": True})
        status = int(response.get("status", 200))
        return self._answer(method, args, body, status, dict(response.get("headers") or {}))

    def _answer(
        self, method: str, args: Json, body: Any, status: int = 200, headers: dict[str, str] | None = None
    ) -> web.Response:
        self._record(method, args, status, body)
        sent = {
            "Content-Type": "text/html" if isinstance(body, str) else "application/json; charset=utf-8",
            "Date": formatdate(self.desk.clock(), usegmt=True),
        }
        text = body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)
        return web.Response(body=text.encode(), status=status, headers=sent | (headers or {}))

    def _record(self, method: str, args: Json, status: int, response: Any) -> None:
        self.calls.append(Call(method, args, status, response, self.desk.clock()))
        self.on_call()


def _no(refusal: Refused) -> Json:
    return {"ok": False, "error": refusal.error, **refusal.extra}
