"""The files host: uploads by ticket, private downloads by token. Without one it answers 200 with a login page."""

from __future__ import annotations

from aiohttp import web

from bot.playground.slack.desk import Desk

SIGN_IN = "<!doctype html><html><head><title>Sign in | Slack</title></head><body>Sign in to Slack</body></html>"


async def download(desk: Desk, request: web.Request) -> web.Response:
    file = desk.state.files.get(request.match_info["file"])
    token = request.headers.get("Authorization", "").removeprefix("Bearer ").strip()
    workspace = desk.workspace
    if token != workspace.bot_token or "files:read" not in workspace.scopes:
        return web.Response(text=SIGN_IN, content_type="text/html")
    if file is None:
        return web.Response(text="File not found", status=404)
    return web.Response(body=file.content, content_type=file.mimetype)


async def upload(desk: Desk, request: web.Request) -> web.Response:
    file = desk.state.files.get(request.match_info["file"])
    if file is None or file.complete:
        return web.Response(text="Not found", status=404)
    if request.content_type.startswith("multipart/"):
        form = await request.post()
        parts = [part for part in form.values() if isinstance(part, web.FileField)]
        file.content = parts[0].file.read() if parts else b""
    else:
        file.content = await request.read()
    return web.Response(text=f"OK - {len(file.content)}")
