"""`/playground/...`: a person's side over HTTP, what the page shows, and the page itself.

A request that can't be done is answered 400 with `{"error": "one sentence"}`. Requests that a page of another
origin makes are refused: whoever is at the keyboard would not know that they write here.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from aiohttp import web

from bot.playground.slack import views
from bot.playground.slack.admin import Admin
from bot.playground.slack.people import Json
from bot.playground.slack.refusal import Impossible
from bot.playground.slack.wire import Delivery

HEARTBEAT_S = 10.0
DRAWN = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
Ledger = Callable[[str, str], Awaitable[Json]]
Action = Callable[[Admin, Json], Awaitable[Any]]

ACTIONS: Mapping[str, tuple[Action, tuple[str, ...], tuple[str, ...]]] = {
    "message": (lambda who, a: who.say(**a), ("channel", "user", "text"), ("thread_ts", "broadcast")),
    "action": (lambda who, a: who.press(**a), ("channel", "message_ts", "action_id", "user"), ("value",)),
    "edit": (lambda who, a: who.edit(**a), ("channel", "ts", "user", "text"), ()),
    "delete": (lambda who, a: who.delete(**a), ("channel", "ts", "user"), ()),
    "react": (lambda who, a: who.react(**a), ("channel", "ts", "user", "name"), ()),
    "unreact": (lambda who, a: who.unreact(**a), ("channel", "ts", "user", "name"), ()),
    "native_stop": (lambda who, a: who.native_stop(**a), ("channel", "thread_ts", "user"), ()),
    "alert": (lambda who, a: who.post_alert(**a), ("channel",), ("title",)),
    "home": (lambda who, a: who.open_home(**a), ("user",), ()),
    "submit": (lambda who, a: who.submit(**a), ("view_id", "user"), ("values",)),
}
NOT_TEXT: Mapping[str, type] = {"broadcast": bool, "values": dict}


def _checked(name: str, body: Any, required: tuple[str, ...], optional: tuple[str, ...]) -> Json:
    if not isinstance(body, dict):
        raise Impossible(f"/playground/{name} wants a JSON object with {', '.join(required)}.")
    missing = [key for key in required if body.get(key) is None]
    if missing:
        raise Impossible(f"/playground/{name} needs {missing[0]!r}.")
    unknown = sorted(set(body) - set(required) - set(optional))
    if unknown:
        raise Impossible(f"/playground/{name} does not know {unknown[0]!r}.")
    given = {key: value for key, value in body.items() if value is not None}
    for key, value in given.items():
        kind = NOT_TEXT.get(key, str)
        if not isinstance(value, kind):
            raise Impossible(f"{key!r} must be {'a text' if kind is str else f'a {kind.__name__}'}.")
    return given


def _told(result: Any) -> Json:
    if isinstance(result, str):
        return {"ok": True, "ts": result}
    if isinstance(result, Delivery):
        return {"ok": True, "acknowledged": result.acknowledged, "response": result.response}
    return {"ok": True}


class Page:
    """The routes for people."""

    def __init__(self, who: Admin, messages: Callable[..., list[Json]], ledger: Ledger | None, scene: Json) -> None:
        self.who = who
        self.messages = messages
        self.ledger = ledger
        self.scene = scene
        self._closed = False

    def routes(self, page_dir: Path) -> list[web.AbstractRouteDef]:
        routes: list[web.AbstractRouteDef] = [
            web.post("/playground/{action}", self.act),
            web.get("/playground/messages", self.get_messages),
            web.get("/playground/scene", self.get_scene),
            web.get("/playground/ledger", self.get_ledger),
            web.get("/playground/status", self.get_status),
            web.get("/playground/views", self.get_views),
            web.get("/playground/feed", self.feed),
            web.get("/playground/pictures/{file}", self.picture),
            web.get("/archives/{channel}/{message}", self.permalink),
        ]
        if page_dir.is_dir():
            routes.append(web.get("/", partial(_file, page_dir / "index.html")))
            routes.append(web.static("/", page_dir))
        return routes

    async def act(self, request: web.Request) -> web.Response:
        name = request.match_info["action"]
        origin = request.headers.get("Origin")
        if origin is not None and urlsplit(origin).netloc != request.host:
            return web.json_response({"error": "Only the page of this server may write here."}, status=403)
        if name not in ACTIONS:
            return web.json_response({"error": f"There is no /playground/{name}."}, status=404)
        action, required, optional = ACTIONS[name]
        try:
            body = json.loads(await request.text() or "null")
            return web.json_response(_told(await action(self.who, _checked(name, body, required, optional))))
        except json.JSONDecodeError:
            return web.json_response({"error": f"/playground/{name} wants JSON."}, status=400)
        except Impossible as no:
            return web.json_response({"error": str(no)}, status=400)

    def _asked(self, request: web.Request, need_thread: bool) -> tuple[str, str]:
        channel, thread_ts = request.query.get("channel", ""), request.query.get("thread_ts", "")
        self.who.channel(channel)
        if need_thread and not thread_ts:
            raise Impossible("'thread_ts' is missing.")
        return channel, thread_ts

    async def _reading(
        self, request: web.Request, need_thread: bool, read: Callable[[str, str], Awaitable[Json]]
    ) -> web.Response:
        try:
            return web.json_response(await read(*self._asked(request, need_thread)))
        except Impossible as no:
            return web.json_response({"error": str(no)}, status=400)

    async def get_messages(self, request: web.Request) -> web.Response:
        async def read(channel: str, thread_ts: str) -> Json:
            return {"messages": self.messages(channel, thread_ts or None)}

        return await self._reading(request, False, read)

    async def get_ledger(self, request: web.Request) -> web.Response:
        async def read(channel: str, thread_ts: str) -> Json:
            return {"turns": []} if self.ledger is None else await self.ledger(channel, thread_ts)

        return await self._reading(request, True, read)

    async def get_status(self, request: web.Request) -> web.Response:
        async def read(channel: str, thread_ts: str) -> Json:
            statuses = self.who.state.statuses.get((channel, thread_ts), [])
            return {"status": statuses[-1] if statuses else None, "native_stop": self.who.desk.workspace.native_stop}

        return await self._reading(request, True, read)

    async def get_views(self, request: web.Request) -> web.Response:
        """The open modals of a person, the one on top last, and the home tab."""
        user = request.query.get("user", "")
        home = self.who.state.homes.get(user)
        stack = [views.shown(self.who.desk, view) for view in views.stack_of(self.who.desk, user)]
        return web.json_response({"modals": stack, "home": views.shown(self.who.desk, home) if home else None})

    async def get_scene(self, request: web.Request) -> web.Response:
        workspace = self.who.desk.workspace
        people = [
            {
                "id": p.id,
                "name": p.name,
                "real_name": p.real_name,
                "role": p.role,
                "title": p.title,
                "is_bot": p.is_bot,
            }
            for p in workspace.people
        ]
        channels = [
            {"id": c.id, "name": c.name, "is_im": c.is_im, "user": c.user, "is_archived": c.is_archived}
            for c in workspace.channels
        ]
        bot = {"id": workspace.bot_user_id, "name": workspace.bot_name, "real_name": workspace.bot_real_name}
        team = {"id": workspace.team_id, "name": workspace.team_name, "domain": workspace.domain}
        scene = {"team": team, "channels": channels, "people": people, "bot": bot, "model": None, "note": ""}
        return web.json_response(scene | {"native_stop": workspace.native_stop} | self.scene)

    async def feed(self, request: web.Request) -> web.StreamResponse:
        """Server-sent events: what changed, and a heartbeat that keeps proxies and browsers from giving up."""
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
        changes: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        self.who.state.watchers.add(changes)
        try:
            await response.prepare(request)
            await _send(response, {"type": "hello"})
            while not self._closed:
                await self._tell(response, changes)
        except ConnectionError:
            pass
        finally:
            self.who.state.watchers.discard(changes)
        return response

    async def _tell(self, response: web.StreamResponse, changes: asyncio.Queue[tuple[str, str]]) -> None:
        try:
            async with asyncio.timeout(HEARTBEAT_S):
                channel, thread_ts = await changes.get()
        except TimeoutError:
            await response.write(b": heartbeat\n\n")
            return
        await _send(response, {"type": "changed", "channel": channel, "thread_ts": thread_ts})

    def close(self) -> None:
        """End every feed."""
        self._closed = True
        self.who.state.changed("", "")

    async def picture(self, request: web.Request) -> web.Response:
        """A shared picture, for the page. People have no token; only what a browser draws as a picture is sent."""
        file = self.who.state.files.get(request.match_info["file"])
        if file is None or not file.complete or file.mimetype not in DRAWN:
            return web.Response(text="There is no such picture.", status=404)
        return web.Response(
            body=file.content, content_type=file.mimetype, headers={"X-Content-Type-Options": "nosniff"}
        )

    async def permalink(self, request: web.Request) -> web.Response:
        """A permalink leads to the page."""
        digits = request.match_info["message"].removeprefix("p")
        ts = f"{digits[:-6]}.{digits[-6:]}"
        thread_ts = request.query.get("thread_ts", ts)
        raise web.HTTPFound(f"/?channel={request.match_info['channel']}&thread_ts={thread_ts}")


async def _send(response: web.StreamResponse, data: Json) -> None:
    await response.write(f"data: {json.dumps(data)}\n\n".encode())


async def _file(path: Path, _: web.Request) -> web.StreamResponse:
    return web.FileResponse(path)
