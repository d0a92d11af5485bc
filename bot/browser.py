"""A Chromium for pages that need a browser, started when it is first needed and ended with the process.

    Chromium   one process for all turns; its own requests lead nowhere, it resolves no names
    Visit      what one turn has of it: a context of its own, behind a door of its own (`browser_door`)

A context shares nothing with another one: no cookies, no storage, no cache. It is made at the first call of a turn.
When a call is cancelled its page is closed, and when no other call runs the door is shut before anything is awaited,
so that no request leaves any more; then the context is closed. Chromium's sandbox stays on unless we are root.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import Coroutine
from typing import Any
from weakref import WeakKeyDictionary

from playwright.async_api import Browser, BrowserContext, Playwright, Route, ViewportSize, async_playwright
from playwright.async_api import Error as BrowserError

from bot.browser_door import Door, origin
from bot.browser_page import CLOSE_S, HEIGHT, OWN_SCHEMES, WIDTH, Bounds, Seen, Visitor
from bot.web_proxy import Refused, WebProxy
from core.errors import ToolError

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
NOWHERE = "http://nowhere.invalid:9"
FLAGS = (
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--dns-prefetch-disable",
    "--disable-quic",
    "--disable-sync",
    "--disable-gpu",
    "--disable-crash-reporter",
    "--no-pings",
)
ENVIRONMENT = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "TZ", "XDG_RUNTIME_DIR", "FONTCONFIG_PATH")
"""What Chromium gets of our environment: no secrets."""
NOT_ON_A_PAGE = """
for (const name of ["RTCPeerConnection", "webkitRTCPeerConnection", "WebTransport"]) delete self[name];
self.open = () => null;
"""
START_S = 30.0

Opened = tuple[BrowserContext, Door]


def executable() -> str | None:
    """The Chromium of this machine."""
    return next((found for name in NAMES if (found := shutil.which(name)) is not None), None)


class Chromium:
    """The one browser of a process. `guard` says what may be opened, `visiting` are the visits with a context."""

    def __init__(self, guard: WebProxy, bounds: Bounds | None = None) -> None:
        self.guard = guard
        self.bounds = bounds or Bounds()
        self._playwright: Playwright | None = None
        self._starting: asyncio.Task[Browser] | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._visits: WeakKeyDictionary[object, Visit] = WeakKeyDictionary()
        self.visiting: set[Visit] = set()

    def visit(self, turn: object) -> Visit:
        """What `turn` has of the browser, always the same for the same one."""
        found = self._visits.get(turn)
        if found is None:
            found = self._visits[turn] = Visit(self)
        return found

    async def running(self) -> Browser:
        """The browser, started if it is not there. Raises `ToolError`."""
        starting = self._starting
        if starting is None or (starting.done() and not _usable(starting)):
            starting = self._starting = asyncio.ensure_future(self._start())
            starting.add_done_callback(_hear)
        return await asyncio.shield(starting)

    async def _start(self) -> Browser:
        await self._end()
        found = executable()
        if found is None:
            raise ToolError("There is no Chromium on this machine any more.")
        try:
            async with asyncio.timeout(START_S):
                self._playwright = await async_playwright().start()
                return await self._playwright.chromium.launch(
                    executable_path=found,
                    args=FLAGS,
                    chromium_sandbox=os.geteuid() != 0,
                    proxy={"server": NOWHERE},
                    env={name: os.environ[name] for name in ENVIRONMENT if name in os.environ},
                    handle_sigint=False,
                    handle_sigterm=False,
                    handle_sighup=False,
                )
        except (BrowserError, OSError, TimeoutError) as error:
            await self._end()
            said = str(error).strip().partition("\n")[0][:200]
            raise ToolError(f"Chromium did not start ({said or type(error).__name__}).") from error

    async def _end(self) -> None:
        """The driver goes, and takes its Chromium with it."""
        playwright, self._playwright = self._playwright, None
        if playwright is not None:
            with contextlib.suppress(BrowserError, TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    await playwright.stop()

    def keep(self, closing: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Something that is closed whoever waits for it."""
        task = asyncio.ensure_future(closing)
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
        return task

    async def close(self) -> None:
        """End it: no child is left."""
        for visit in list(self.visiting):
            visit.shut()
        under_way = [*self._closing, *([self._starting] if self._starting is not None else [])]
        if under_way:
            await asyncio.wait(under_way, timeout=CLOSE_S)
        if self._starting is not None:
            self._starting.cancel()
        await self._end()


class Visit:
    """The context of one turn. It can be opened again after `close`."""

    def __init__(self, chromium: Chromium) -> None:
        self._chromium = chromium
        self._opening: asyncio.Task[Opened] | None = None
        self._calls = 0

    async def look(self, url: str, *, picture: bool = False) -> Seen:
        """What is on a page, with a picture if it is wanted. Raises `Refused` and `ToolError`.

        Cancelled, it leaves nothing behind that could send a request.
        """
        self._chromium.guard.check(url, "url")
        self._calls += 1
        try:
            return await self._look(url, picture)
        except asyncio.CancelledError:
            if self._calls == 1:
                await self.close()
            raise
        finally:
            self._calls -= 1

    async def _look(self, url: str, picture: bool) -> Seen:
        bounds = self._chromium.bounds
        until = asyncio.get_running_loop().time() + bounds.call_s
        try:
            async with asyncio.timeout_at(until - bounds.call_s + bounds.load_s):
                context, door = await self._opened()
        except TimeoutError:
            raise ToolError("Chromium is still starting. Ask again in a few seconds.") from None
        door.allow(bounds.load_bytes * self._calls)
        visitor = Visitor(context, door, self._chromium.guard, bounds, until)
        try:
            async with asyncio.timeout_at(until):
                return await visitor.look(url, picture=picture)
        except TimeoutError:
            raise ToolError("The page keeps the browser so busy that it can't be read.") from None
        finally:
            self._chromium.keep(visitor.close())

    async def _opened(self) -> Opened:
        opening = self._opening
        if opening is not None and opening.done() and not _alive(opening):
            self.shut()
            opening = None
        if opening is None:
            self._chromium.visiting.add(self)
            opening = self._opening = asyncio.ensure_future(self._open())
            opening.add_done_callback(_hear)
        return await asyncio.shield(opening)

    async def _open(self) -> Opened:
        browser = await self._chromium.running()
        door = await Door.open(self._chromium.guard)
        try:
            context = await browser.new_context(
                proxy={"server": f"http://127.0.0.1:{door.port}"},
                viewport=ViewportSize(width=WIDTH, height=HEIGHT),
                user_agent=_user_agent(browser.version),
                accept_downloads=False,
                service_workers="block",
                permissions=[],
            )
            await context.route("**/*", self._route)
            await context.add_init_script(NOT_ON_A_PAGE)
        except BrowserError as error:
            door.shut()
            raise ToolError(f"The browser gave no context ({error.message[:200]}).") from error
        except BaseException:
            door.shut()
            raise
        return context, door

    async def _route(self, route: Route) -> None:
        """The first look at a request, before it reaches the door."""
        url = route.request.url
        with contextlib.suppress(BrowserError):
            try:
                if url.partition(":")[0].lower() not in OWN_SCHEMES:
                    self._chromium.guard.check(origin(url), "url")
            except Refused:
                await route.abort("aborted")
            else:
                await route.continue_()

    def shut(self) -> asyncio.Task[None] | None:
        """From now on nothing leaves; the rest is closed by the returned task."""
        opening, self._opening = self._opening, None
        self._chromium.visiting.discard(self)
        if opening is None:
            return None
        if _succeeded(opening):
            opening.result()[1].shut()
        return self._chromium.keep(_closed(opening))

    async def close(self) -> None:
        """Nothing leaves any more, and the context is gone. Cancelled, the closing goes on."""
        closing = self.shut()
        if closing is not None:
            await asyncio.shield(closing)


async def _closed(opening: asyncio.Task[Opened]) -> None:
    """Close a context, also one that is still being made; one that can't be closed takes its browser with it."""
    try:
        context, door = await opening
    except (ToolError, BrowserError, asyncio.CancelledError):
        return
    door.shut()
    try:
        async with asyncio.timeout(CLOSE_S):
            await context.close()
    except TimeoutError:
        if context.browser is not None:
            await context.browser.close()
    except BrowserError:
        return


def _hear(task: asyncio.Task[Any]) -> None:
    """A late error is nobody's: who still waits for it has heard it."""
    if not task.cancelled():
        task.exception()


def _succeeded(task: asyncio.Task[Any]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is None


def _usable(starting: asyncio.Task[Browser]) -> bool:
    return _succeeded(starting) and starting.result().is_connected()


def _alive(opening: asyncio.Task[Opened]) -> bool:
    browser = opening.result()[0].browser if _succeeded(opening) else None
    return browser is not None and browser.is_connected()


def _user_agent(version: str) -> str:
    major = version.partition(".")[0]
    engine = f"AppleWebKit/537.36 (KHTML, like Gecko) Chrome/{major}.0.0.0 Safari/537.36"
    return f"Mozilla/5.0 (X11; Linux x86_64) {engine} Pilothouse"
