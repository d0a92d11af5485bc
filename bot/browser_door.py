"""The only way out of one browser context: a proxy on the loopback that opens nothing the page reader would not open.

Chromium resolves no names here: it asks the door for every connection, whatever on a page wants one (documents,
redirects, pictures, scripts, workers, WebSockets, prefetches). The door checks the address by the rules of
`web_proxy`, looks the name up itself, checks every answer, and connects to an address that it checked.

    CONNECT host:port       a tunnel: https, wss and ws
    GET http://host/path    one request and its answer, then the connection ends: the next one is checked again

`shut` takes effect before it returns: what was not sent yet is thrown away, and nothing passes any more.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from urllib.parse import urlsplit

from ssrfguard import Target

from bot.web_proxy import Refused, WebProxy

HEAD_BYTES = 65_536
PART_BYTES = 65_536
CONNECT_S = 4.0
REFUSED, UNREACHED = 403, 502
"""What the door answers itself."""
END_OF_HEAD = b"\r\n\r\n"
HOP_BY_HOP = ("connection", "keep-alive", "proxy-connection", "proxy-authorization", "upgrade")

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Door:
    """A door for one context; `guard` says what may be opened. Made by `Door.open`.

    `refused` says why a host and port was not opened when it was last asked for.
    """

    def __init__(self, guard: WebProxy) -> None:
        self.refused: dict[tuple[str, int], Refused] = {}
        self.port = 0
        self._guard = guard
        self._left = 0
        self._server: asyncio.Server | None = None
        self._passing: set[asyncio.Task[None]] = set()
        self._open: set[asyncio.StreamWriter] = set()

    @classmethod
    async def open(cls, guard: WebProxy) -> Door:
        """A door that listens on a port of its own and lets nothing in until `allow`."""
        door = cls(guard)
        door._server = await asyncio.start_server(door._enter, "127.0.0.1", 0, limit=HEAD_BYTES)
        door.port = door._server.sockets[0].getsockname()[1]
        return door

    def allow(self, size: int) -> None:
        """From now on `size` bytes may come in."""
        self._left = size

    @property
    def full(self) -> bool:
        """Whether all that was allowed has come in."""
        return self._left <= 0

    def shut(self) -> None:
        """Nothing passes any more, and what was under way is cut."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self.cut()

    def cut(self) -> None:
        """End what is under way; what is asked for later may pass."""
        for task in self._passing:
            task.cancel()
        for writer in self._open:
            writer.transport.abort()

    async def _enter(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None or self._server is None:
            writer.transport.abort()
            return
        self._passing.add(task)
        self._open.add(writer)
        try:
            await self._pass(reader, writer)
        except (asyncio.CancelledError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            writer.transport.abort()
        finally:
            self._passing.discard(task)
            self._open.discard(writer)
            writer.close()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(END_OF_HEAD)).decode("latin-1")
        method, _, rest = head.partition("\r\n")[0].partition(" ")
        asked = rest.rpartition(" ")[0]
        try:
            target = self._guard.check(f"https://{asked}/" if method == "CONNECT" else origin(asked), "url")
            there = await self._connect(target)
        except Refused as refused:
            writer.write(_answer(refused.why))
            await writer.drain()
            return
        self._open.add(there[1])
        try:
            if method == "CONNECT":
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                there[1].write(_request(method, asked, target, head))
                await self._answered(there[0], writer)
            await self._relay((reader, writer), there)
        finally:
            self._open.discard(there[1])
            there[1].close()

    async def _connect(self, target: Target) -> Streams:
        """A connection to an address that was checked just now. Raises `Refused`, and notes it."""
        place = (target.host, target.port)
        try:
            if self.full:
                raise Refused("too-large", "all that a page may load has been loaded")
            for address in await self._guard.addresses(target):
                with contextlib.suppress(OSError, TimeoutError):
                    async with asyncio.timeout(CONNECT_S):
                        there = await asyncio.open_connection(address, target.port, limit=HEAD_BYTES)
                    self.refused.pop(place, None)
                    return there
            raise Refused("unreadable", f"{target.host} takes no connection")
        except Refused as refused:
            if not self.full:
                self.refused[place] = refused
            raise

    async def _answered(self, there: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Hand on the head of an answer, changed so that this connection carries no second request."""
        while True:
            head = (await there.readuntil(END_OF_HEAD)).decode("latin-1")
            status, *lines = head.removesuffix("\r\n\r\n").split("\r\n")
            if " 1" not in status[:10]:
                break
        writer.write(_head(status, lines))

    async def _relay(self, here: Streams, there: Streams) -> None:
        """Both directions, until one of them ends."""
        ways = {
            asyncio.ensure_future(self._copy(here[0], there[1], counted=False)),
            asyncio.ensure_future(self._copy(there[0], here[1], counted=True)),
        }
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _copy(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, counted: bool) -> None:
        while part := await source.read(PART_BYTES):
            if counted:
                self._left -= len(part)
                if self.full:
                    self.cut()
            sink.write(part)
            await sink.drain()


def origin(url: str) -> str:
    """The part of an address that decides whether it may be opened; a WebSocket is opened like a page."""
    parts = urlsplit(url)
    scheme = {"ws": "http", "wss": "https"}.get(parts.scheme, parts.scheme)
    return f"{scheme}://{parts.netloc}/"


def _request(method: str, url: str, target: Target, head: str) -> bytes:
    """The head of a request as the server gets it: the path alone, and nothing after it."""
    parts = urlsplit(url)
    path = f"{parts.path or '/'}{'?' + parts.query if parts.query else ''}"
    lines = head.removesuffix("\r\n\r\n").split("\r\n")[1:]
    host = f"[{target.host}]" if ":" in target.host else target.host.rstrip(".")
    named = [line for line in lines if line.partition(":")[0].strip().lower() != "host"]
    port = "" if target.port == 80 else f":{target.port}"
    return _head(f"{method} {path} HTTP/1.1", [f"Host: {host}{port}", *named])


def _head(first: str, lines: Sequence[str]) -> bytes:
    kept = [line for line in lines if line.partition(":")[0].strip().lower() not in HOP_BY_HOP]
    return "\r\n".join([first, *kept, "Connection: close", "", ""]).encode("latin-1")


def _answer(why: str) -> bytes:
    """The page can read it, so it says no more than the word."""
    first = f"HTTP/1.1 {UNREACHED} Bad Gateway" if why == "unreadable" else f"HTTP/1.1 {REFUSED} Forbidden"
    body = f"Not opened by Pilothouse: {why}".encode()
    return _head(first, ["Content-Type: text/plain", f"Content-Length: {len(body)}"]) + body
