"""A small server behind the page: the same endpoints as the local Slack, an incident that a test can change."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from aiohttp import web

from tests.e2e.page_scene import CHANNEL, PILOT, SCENE, Canvas, Json, incident, ledger

PAGE = Path(__file__).parents[2] / "bot" / "playground" / "page"


class PageServer:
    """Serves the page, keeps messages, and records what the page asked for in `heard`.

    `hold` is an event that actions wait for, so that a test can look while a click is under way.
    """

    def __init__(self) -> None:
        self.canvas = Canvas()
        self.messages: dict[str, list[Json]] = {CHANNEL: incident(self.canvas), "C0RANDOM": []}
        self.ledger = ledger()
        self.status: str | None = "processing"
        self.heard: list[tuple[str, Json]] = []
        self.refusal: str | None = None
        self.hold = asyncio.Event()
        self.hold.set()
        self.url = ""
        self._bells: set[asyncio.Queue[Json | None]] = set()
        self._runner: web.AppRunner | None = None

    @property
    def root(self) -> str:
        """The ts of the message that began the thread."""
        return self.canvas.ts(60)

    async def start(self, port: int = 0) -> None:
        app = web.Application()
        app.router.add_get("/", self._index)
        app.router.add_get("/playground/scene", self._scene)
        app.router.add_get("/playground/feed", self._feed)
        app.router.add_get("/playground/messages", self._messages)
        app.router.add_get("/playground/status", self._status)
        app.router.add_get("/playground/ledger", self._ledger)
        app.router.add_post("/playground/{what}", self._act)
        app.router.add_static("/", PAGE)
        self._runner = web.AppRunner(app, shutdown_timeout=0.5)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", port)
        await site.start()
        bound_port = self._runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{bound_port}/"

    async def stop(self) -> None:
        for bell in self._bells:
            bell.put_nowait(None)
        if self._runner is not None:
            await self._runner.cleanup()

    def drop_feeds(self) -> None:
        for bell in list(self._bells):
            bell.put_nowait(None)

    def ring(self, channel: str = CHANNEL, thread_ts: str | None = None) -> None:
        for bell in self._bells:
            bell.put_nowait({"type": "changed", "channel": channel, "thread_ts": thread_ts})

    def find(self, ts: str) -> Json:
        return next(message for message in self.messages[CHANNEL] if message["ts"] == ts)

    def change(self, ts: str, **fields: Any) -> None:
        self.find(ts).update(fields)
        self.ring()

    def say(self, **fields: Any) -> str:
        """Add a message to the incident; it is the newest one."""
        newest = max(float(message["ts"]) for message in self.messages[CHANNEL])
        ts = f"{int(newest) + 5}.000100"
        self.messages[CHANNEL].append({"ts": ts, **fields})
        self.ring()
        return ts

    async def _index(self, _: web.Request) -> web.FileResponse:
        return web.FileResponse(PAGE / "index.html")

    async def _scene(self, _: web.Request) -> web.Response:
        return web.json_response(SCENE)

    async def _feed(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream", "cache-control": "no-store"})
        await response.prepare(request)
        await response.write(b": hello\n\n")
        bell: asyncio.Queue[Json | None] = asyncio.Queue()
        self._bells.add(bell)
        try:
            while (event := await bell.get()) is not None:
                await response.write(f"data: {json.dumps(event)}\n\n".encode())
        except ConnectionError:
            pass
        finally:
            self._bells.discard(bell)
        return response

    async def _messages(self, request: web.Request) -> web.Response:
        everything = self.messages.get(request.query["channel"], [])
        root = request.query.get("thread_ts")
        if root:
            return web.json_response({"messages": [m for m in everything if root in (m["ts"], m.get("thread_ts"))]})
        return web.json_response(
            {"messages": [self._top(m) for m in everything if m.get("thread_ts", m["ts"]) == m["ts"]]}
        )

    def _top(self, message: Json) -> Json:
        replies = [m for m in self.messages[CHANNEL] if m.get("thread_ts") == message["ts"] != m["ts"]]
        shown = [m for m in replies if not m.get("ephemeral")]
        if not shown:
            return message
        users = list(dict.fromkeys(m["user"] for m in shown))
        return message | {"reply_count": len(shown), "reply_users": users, "latest_reply": shown[-1]["ts"]}

    async def _status(self, _: web.Request) -> web.Response:
        return web.json_response({"status": self.status, "native_stop": True})

    async def _ledger(self, _: web.Request) -> web.Response:
        return web.json_response(self.ledger)

    async def _act(self, request: web.Request) -> web.Response:
        what, body = request.match_info["what"], await request.json()
        self.heard.append((what, body))
        if self.refusal:
            return web.json_response({"error": self.refusal}, status=400)
        await self.hold.wait()
        return web.json_response(self._do(what, body))

    def _do(self, what: str, body: Json) -> Json:
        if what == "message":
            fields = {"user": body["user"], "text": body["text"]}
            return {"ts": self.say(**fields, **({"thread_ts": body["thread_ts"]} if "thread_ts" in body else {}))}
        if what == "edit":
            self.change(body["ts"], text=body["text"], edited={"user": body["user"], "ts": body["ts"]})
        elif what == "delete":
            self.messages[CHANNEL].remove(self.find(body["ts"]))
        elif what == "react":
            pills = self.find(body["ts"]).setdefault("reactions", [])
            pills.append({"name": body["name"], "count": 1, "users": [body["user"]]})
        elif what == "unreact":
            kept = [pill for pill in self.find(body["ts"])["reactions"] if pill["name"] != body["name"]]
            self.change(body["ts"], reactions=kept)
        elif what == "native_stop":
            self.status = "active"
        self.ring()
        return {}


__all__ = ["CHANNEL", "PILOT", "PageServer"]
