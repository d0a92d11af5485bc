"""One page in the browser: opened, waited for, read, and closed again.

What a page shows is read by a script in a world of its own (`browser_reading.js`), so that nothing the page has
replaced is used. A page is closed as soon as it has been read: nothing of it runs while the model thinks.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.async_api import BrowserContext, CDPSession, Page, Request, Response, WebSocket
from playwright.async_api import Error as BrowserError
from playwright.async_api import TimeoutError as BrowserTimeout

from bot.browser_door import REFUSED, UNREACHED, Door, origin
from bot.web_page import beginning, markdown_of
from bot.web_proxy import PAGE_CHARS, Refused, WebProxy
from core.errors import ToolError
from core.evidence import MOST_KEPT

READING = Path(__file__).with_name("browser_reading.js").read_text(encoding="utf-8")
WIDTH, HEIGHT = 1280, 800
CLOSE_S = 5.0
BLANK = "about:blank"
OWN_SCHEMES = ("data", "blob", "about")
"""What a page has in itself: no request leaves for it."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one page may take. `load_s` counts from the call, the start of Chromium included; then what is there is
    read, until `call_s` at the latest. `settle_s` is how long a loaded page may go on to ask for things.
    """

    load_s: float = 8.0
    call_s: float = 9.5
    settle_s: float = 2.0
    load_bytes: int = 20_000_000
    picture_bytes: int = 4_000_000


@dataclass(frozen=True, slots=True)
class Seen:
    """What was on a page. `status` is HTTP's; `blocked` counts requests by host that were not let out.

    `markdown` is what the model reads of `whole`, and `digest` is that of what was there, as HTML.
    `controls` are (kind, name, address); `cut` says why the page is not whole.
    """

    url: str
    title: str
    markdown: str
    whole: str
    digest: str
    status: int | None
    controls: tuple[tuple[str, str, str], ...] = ()
    blocked: Mapping[str, int] = field(default_factory=dict)
    cut: str | None = None
    png: bytes = b""


class Visitor:
    """Opens one page in a context, and reads it. `until` is the loop's time."""

    def __init__(self, context: BrowserContext, door: Door, guard: WebProxy, bounds: Bounds, until: float) -> None:
        self._context = context
        self._door = door
        self._guard = guard
        self._bounds = bounds
        self._loop = asyncio.get_running_loop()
        self._load_until = until - bounds.call_s + bounds.load_s
        self._blocked: Counter[str] = Counter()
        self._went: list[str] = []
        self._astray = asyncio.Event()
        self._page: Page | None = None
        self._bytes = 0
        self._cut: str | None = None

    async def look(self, url: str, *, picture: bool) -> Seen:
        """What is on the page at `url`. Raises `Refused` and `ToolError`. `close` is the caller's."""
        try:
            self._page = page = await self._context.new_page()
            return await self._read(page, url, picture)
        except BrowserError as error:
            raise ToolError(f"The browser could not show this page ({_first_line(error)}).") from error

    async def close(self) -> None:
        """Close the page. Never raises; a page that can't be closed goes with its context."""
        if self._page is not None:
            with contextlib.suppress(BrowserError, TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    await self._page.close()

    async def _read(self, page: Page, url: str, picture: bool) -> Seen:
        self._watch(page)
        cdp = await self._context.new_cdp_session(page)
        cdp.on("Network.dataReceived", self._count)
        await cdp.send("Network.enable")
        response = await self._open(page, url)
        status = response.status if response is not None else None
        self._check(page.url, url, by_us=status in (None, REFUSED, UNREACHED))
        found = await self._evaluate(cdp)
        png = await page.screenshot(animations="disabled") if picture else b""
        if len(png) > self._bounds.picture_bytes:
            raise ToolError(f"The picture would have {len(png)} bytes, more than may be posted.")
        self._check(page.url, url)
        html = str(found.get("html", "")).encode("utf-8", "replace")
        whole = await asyncio.to_thread(markdown_of, html, "utf-8", html=True, limit=MOST_KEPT)
        return Seen(
            url=page.url,
            title=str(found.get("title", "")),
            markdown=beginning(whole, PAGE_CHARS),
            whole=whole,
            digest=hashlib.sha256(html).hexdigest(),
            status=status,
            controls=tuple((str(kind), str(name), str(link)) for kind, name, link in found.get("controls", ())),
            blocked=dict(self._blocked),
            cut=self._cut or (self._too_large() if self._door.full else None),
            png=png,
        )

    def _watch(self, page: Page) -> None:
        def asks(request: Request) -> None:
            self._count_unlisted(request.url)
            if _is_navigation(request, page):
                self._went.append(request.url)

        def fails(request: Request) -> None:
            self._count_refused(request.url)
            if _is_navigation(request, page) and page.url != BLANK:
                self._astray.set()

        def answers(response: Response) -> None:
            if response.status == REFUSED:
                self._count_refused(response.url)

        def connects(socket: WebSocket) -> None:
            self._count_unlisted(socket.url)
            socket.on("socketerror", lambda _error: self._count_refused(socket.url))

        page.on("request", asks)
        page.on("requestfailed", fails)
        page.on("response", answers)
        page.on("websocket", connects)
        page.on("popup", close_popup)

    def _count_unlisted(self, url: str) -> None:
        """Count a request that is refused for what its address says; a page asks itself without any."""
        if url.partition(":")[0].lower() not in OWN_SCHEMES and self._place(url) is None:
            self._blocked[(urlsplit(url).hostname or url)[:100]] += 1

    def _count_refused(self, url: str) -> None:
        """Count a request that the door refused for where its name leads."""
        place = self._place(url)
        refused = self._door.refused.get(place) if place is not None else None
        if place is not None and refused is not None and refused.why == "ip-not-global":
            self._blocked[place[0]] += 1

    def _place(self, url: str) -> tuple[str, int] | None:
        """The host and port of an address that may be asked."""
        try:
            target = self._guard.check(origin(url), "url")
        except Refused:
            return None
        return target.host, target.port

    async def _open(self, page: Page, url: str) -> Response | None:
        """Load until it is there, or until the time is up. None when the answer is not known or not whole."""
        try:
            response = await self._go(page, url)
        except BrowserTimeout:
            if page.url == BLANK:
                raise Refused("timeout", f"nothing came within {self._bounds.load_s:g} s") from None
            self._cut = self._cut or f"it was still loading after {self._bounds.load_s:g} s"
            return None
        except BrowserError as error:
            if not self._readable(page.url):
                raise self._why_not(url, error) from error
            return None
        if response is not None:
            with contextlib.suppress(BrowserTimeout):
                settle_ms = min(self._left_ms(), self._bounds.settle_s * 1000)
                await page.wait_for_load_state("networkidle", timeout=settle_ms)
        return response

    async def _go(self, page: Page, url: str) -> Response | None:
        """Wait until it is loaded; a page that wants to go on to where it may not is never loaded, so it is None."""
        going = asyncio.ensure_future(page.goto(url, wait_until="load", timeout=self._left_ms()))
        astray = asyncio.ensure_future(self._astray.wait())
        try:
            await asyncio.wait({going, astray}, return_when=asyncio.FIRST_COMPLETED)
            return going.result() if going.done() else None
        finally:
            going.cancel()
            astray.cancel()

    def _left_ms(self) -> float:
        return max(self._load_until - self._loop.time(), 0.1) * 1000

    def _count(self, event: Mapping[str, Any]) -> None:
        """Unpacked bytes: what is small on the wire may be large in the browser."""
        self._bytes += int(event.get("dataLength", 0))
        if self._cut is None and self._bytes > self._bounds.load_bytes:
            self._cut = self._too_large()
            self._door.allow(0)
            self._door.cut()

    def _too_large(self) -> str:
        return f"it has more than {self._bounds.load_bytes // 1_000_000} MB"

    def _why_not(self, url: str, error: BrowserError) -> Refused:
        """Why a page could not be opened: the last address on the way to it says it."""
        try:
            self._check(self._went[-1] if self._went else url, url, by_us=True)
        except Refused as refused:
            return refused
        if "Download is starting" in error.message:
            return Refused("content-type", "that is a download, and none is taken")
        return Refused("unreadable", f"the browser could not open it ({_first_line(error)})")

    def _check(self, here: str, url: str, *, by_us: bool = False) -> None:
        """Raises `Refused` if `here`, where `url` led, is not a page that may be read.

        `by_us`: the answer may be the door's own.
        """
        target = self._guard.check(here, "url" if here == url else "redirect")
        refused = self._door.refused.get((target.host, target.port))
        if by_us and refused is not None:
            raise refused

    def _readable(self, here: str) -> bool:
        try:
            self._check(here, here, by_us=True)
        except Refused:
            return False
        return True

    async def _evaluate(self, cdp: CDPSession) -> Mapping[str, Any]:
        """The value of the reading script; a page that moves on meanwhile is read once more."""
        for _ in range(2):
            tree = await cdp.send("Page.getFrameTree")
            frame = tree["frameTree"]["frame"]["id"]
            try:
                world = await cdp.send("Page.createIsolatedWorld", {"frameId": frame, "worldName": "pilothouse"})
                got = await cdp.send(
                    "Runtime.evaluate",
                    {"expression": READING, "contextId": world["executionContextId"], "returnByValue": True},
                )
            except BrowserError:
                continue
            value = got.get("result", {}).get("value")
            if isinstance(value, dict):
                return value
        return {}


def _is_navigation(request: Request, page: Page) -> bool:
    return request.is_navigation_request() and request.frame == page.main_frame


async def close_popup(popup: Page) -> None:
    """Close what a page opens beside itself."""
    popup.on("popup", close_popup)
    with contextlib.suppress(BrowserError):
        await popup.close()


def _first_line(error: BrowserError) -> str:
    return error.message.partition("\n")[0][:200]
