"""The door of a browser context lets out what the page reader would open, each request on its own, until it shuts."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from bot.browser_door import Door, origin
from bot.web_proxy import WebProxy
from tests.support.processes import until

NAMES = {"docs.shop.test": "127.0.0.1", "evil.test": "127.0.0.1", "inside.shop.test": "10.0.0.5"}


@dataclass
class Place:
    """A server that keeps what it is sent, answers each head with `answer`, and never closes by itself."""

    answer: bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nok"
    heard: bytearray = field(default_factory=bytearray)
    ended: int = 0
    port: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while part := await reader.read(65_536):
                self.heard += part
                if part.endswith(b"\r\n\r\n"):
                    writer.write(self.answer)
        except ConnectionError:
            pass
        self.ended += 1
        writer.close()


@dataclass
class Street:
    """A server behind a door. `addresses` is what names mean now, `looked_up` what the door looked up, in order."""

    place: Place
    door: Door
    addresses: dict[str, str]
    looked_up: list[str] = field(default_factory=list)

    async def open(self, sent: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """What Chromium does: connect to the door and say something."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.door.port)
        writer.write(sent.replace("PORT", str(self.place.port)).encode())
        return reader, writer

    async def ask(self, sent: str) -> str:
        """What the door answers: a refusal, or what the server says, which ends with `ok`."""
        reader, writer = await self.open(sent)
        async with asyncio.timeout(20):
            said = b""
            while not said.endswith(b"ok") and (part := await reader.read(65_536)):
                said += part
        writer.close()
        return said.decode()


@asynccontextmanager
async def street() -> AsyncIterator[Street]:
    place, addresses = Place(), dict(NAMES)
    looked_up: list[str] = []

    def getaddrinfo(host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        looked_up.append(host)
        if host not in addresses:
            raise socket.gaierror("no such name")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (addresses[host], port))]

    server = await asyncio.start_server(place.serve, "127.0.0.1", 0)
    place.port = server.sockets[0].getsockname()[1]
    guard = WebProxy(
        ["docs.shop.test", "inside.shop.test", "nowhere.shop.test"],
        now=time.time,
        clock=time.monotonic,
        networks=("127.0.0.0/8",),
        ports=frozenset({80, 443, place.port}),
        getaddrinfo=getaddrinfo,
    )
    door = await Door.open(guard)
    door.allow(100_000)
    try:
        yield Street(place, door, addresses, looked_up)
    finally:
        door.shut()
        server.close()
        await until(lambda: not door._passing)


async def test_a_request_goes_out_with_its_own_host_and_nothing_of_the_proxy() -> None:
    async with street() as it:
        said = await it.ask(
            "GET http://docs.shop.test:PORT/a?b=1 HTTP/1.1\r\nHost: evil.test\r\nProxy-Connection: keep-alive\r\n"
            "Accept: */*\r\n\r\n"
        )
        assert said == "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
        head = f"GET /a?b=1 HTTP/1.1\r\nHost: docs.shop.test:{it.place.port}\r\nAccept: */*\r\n"
        assert it.place.heard.decode() == f"{head}Connection: close\r\n\r\n"
        assert it.looked_up == ["docs.shop.test"]


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        ("GET http://evil.test:PORT/ HTTP/1.1\r\n\r\n", "not-allowed"),
        ("CONNECT evil.test:PORT HTTP/1.1\r\n\r\n", "not-allowed"),
        ("CONNECT evil.docs.shop.test:443 HTTP/1.1\r\n\r\n", "not-allowed"),
        ("CONNECT docs.shop.test:6379 HTTP/1.1\r\n\r\n", "port"),
        ("CONNECT 127.0.0.1:PORT HTTP/1.1\r\n\r\n", "not-allowed"),
        ("CONNECT 169.254.169.254:80 HTTP/1.1\r\n\r\n", "ip-not-global"),
        ("CONNECT [::ffff:10.0.0.5]:443 HTTP/1.1\r\n\r\n", "ip-not-global"),
        ("GET http://me:secret@docs.shop.test:PORT/ HTTP/1.1\r\n\r\n", "userinfo"),
        ("GET ftp://docs.shop.test/ HTTP/1.1\r\n\r\n", "scheme"),
        ("GET / HTTP/1.1\r\nHost: docs.shop.test\r\n\r\n", "scheme"),
        ("CONNECT inside.shop.test:PORT HTTP/1.1\r\n\r\n", "ip-not-global"),
        ("GET http://inside.shop.test:PORT/ HTTP/1.1\r\n\r\n", "ip-not-global"),
        ("CONNECT nowhere.shop.test:PORT HTTP/1.1\r\n\r\n", "no-such-host"),
    ],
)
async def test_what_may_not_be_opened_is_refused_in_one_word(sent: str, why: str) -> None:
    async with street() as it:
        said = await it.ask(sent)
        assert said.startswith("HTTP/1.1 403 ") and f"Not opened by Pilothouse: {why}" in said
        assert not it.place.heard


async def test_each_connection_looks_the_name_up_again_and_checks_what_it_says_now() -> None:
    async with street() as it:
        request = "GET http://docs.shop.test:PORT/ HTTP/1.1\r\n\r\n"
        assert (await it.ask(request)).endswith("ok")
        it.addresses["docs.shop.test"] = "10.0.0.5"
        heard = len(it.place.heard)
        assert "ip-not-global" in await it.ask(request)
        assert len(it.place.heard) == heard
        assert it.door.refused["docs.shop.test", it.place.port].why == "ip-not-global"


async def test_a_second_request_on_the_same_connection_reaches_nobody() -> None:
    async with street() as it:
        reader, writer = await it.open("GET http://docs.shop.test:PORT/ HTTP/1.1\r\n\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"Connection: close" in head and b"keep-alive" not in head
        writer.close()
        await until(lambda: it.place.ended == 1)


async def test_a_tunnel_carries_bytes_as_they_are_until_the_door_is_shut() -> None:
    async with street() as it:
        reader, writer = await it.open("CONNECT docs.shop.test:PORT HTTP/1.1\r\n\r\n")
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 200 Connection established\r\n\r\n"
        writer.write(b"\x16\x03 hello\r\n\r\n")
        assert (await reader.readuntil(b"ok")).endswith(b"ok")
        assert it.place.heard == b"\x16\x03 hello\r\n\r\n"
        it.door.shut()
        writer.write(b"more")
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
        await until(lambda: it.place.ended == 1)
        assert it.place.heard == b"\x16\x03 hello\r\n\r\n"
        with pytest.raises(OSError):
            await it.open("CONNECT docs.shop.test:PORT HTTP/1.1\r\n\r\n")


async def test_what_has_not_been_allowed_does_not_come_in() -> None:
    async with street() as it:
        it.place.answer = b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 300_000
        sent = "GET http://docs.shop.test:PORT/ HTTP/1.1\r\n\r\n"
        reader, writer = await it.open(sent)
        came = 0
        with contextlib.suppress(ConnectionError):
            while part := await reader.read(65_536):
                came += len(part)
        writer.close()
        assert came < 200_000 and it.door.full
        assert "too-large" in await it.ask(sent)
        it.door.allow(400_000)
        it.place.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
        reader, writer = await it.open(sent)
        assert (await reader.readuntil(b"ok")).endswith(b"ok")
        writer.close()


async def test_an_answer_that_is_none_ends_the_connection() -> None:
    async with street() as it:
        it.place.answer = b"no head at all" + b"x" * 200_000
        reader, writer = await it.open("GET http://docs.shop.test:PORT/ HTTP/1.1\r\n\r\n")
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
        writer.close()


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("https://docs.shop.test/a/b?c=d", "https://docs.shop.test/"),
        ("ws://docs.shop.test:8080/x", "http://docs.shop.test:8080/"),
        ("wss://docs.shop.test/x", "https://docs.shop.test/"),
        ("http://me:secret@docs.shop.test/", "http://me:secret@docs.shop.test/"),
        ("ftp://docs.shop.test/x", "ftp://docs.shop.test/"),
    ],
)
def test_the_origin_decides(url: str, found: str) -> None:
    assert origin(url) == found
