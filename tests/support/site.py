"""Sites of several names on one loopback server, a reader's rules for them, and all that reached the server."""

from __future__ import annotations

import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from bot.web_proxy import WebProxy
from tests.support.processes import until

DOCS, EVIL, REBOUND = "docs.shop.test", "evil.test", "rebound.shop.test"
LISTED = (DOCS, REBOUND)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Sites:
    """`pages` are what is served by path; {docs} and {evil} in a text stand for the sites. `heard` is every request,
    as host and path with query, in order. `addresses` is what names mean now, `looked_up` what was asked of them."""

    pages: dict[str, str | Handler] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=lambda: {DOCS: "127.0.0.1", EVIL: "127.0.0.1"})
    heard: list[tuple[str, str]] = field(default_factory=list)
    looked_up: list[str] = field(default_factory=list)
    agents: list[str] = field(default_factory=list)
    port: int = 0

    def url(self, path: str, host: str = DOCS) -> str:
        return f"http://{host}:{self.port}{path}"

    def count(self, path: str) -> int:
        """How many requests for `path` came, whatever their query."""
        return sum(found.partition("?")[0] == path for _, found in self.heard)

    def hosts(self) -> set[str]:
        return {host for host, _ in self.heard}

    async def asked(self, path: str, count: int = 1) -> None:
        """Wait until `path` was asked for so often."""
        await until(lambda: self.count(path) >= count, timeout_s=60)

    def guard(self) -> WebProxy:
        """The rules: the listed names, the loopback network, this port."""
        return WebProxy(
            LISTED,
            now=time.time,
            clock=time.monotonic,
            networks=("127.0.0.0/8",),
            ports=frozenset({80, 443, self.port}),
            getaddrinfo=self._look_up,
        )

    def _look_up(self, host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        self.looked_up.append(host)
        if host not in self.addresses:
            raise socket.gaierror("no such name")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (self.addresses[host], port))]

    async def serve(self, request: web.Request) -> web.StreamResponse:
        self.heard.append((str(request.host).partition(":")[0], request.path_qs))
        self.agents.append(request.headers.get("User-Agent", ""))
        page = self.pages.get(request.path, "")
        if not isinstance(page, str):
            return await page(request)
        for name, host in (("{docs}", DOCS), ("{evil}", EVIL)):
            page = page.replace(name, f"{host}:{self.port}")
        return web.Response(text=page, content_type="text/html")


@asynccontextmanager
async def sites() -> AsyncIterator[Sites]:
    """They answer as long as the context lasts."""
    made = Sites()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", made.serve)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.port = runner.addresses[0][1]
    try:
        yield made
    finally:
        await runner.cleanup()
