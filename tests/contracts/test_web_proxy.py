"""The page reader opens what it was allowed to open, at the address that it checked, and nothing else."""

from __future__ import annotations

import asyncio
import gzip
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from bot.tools.web import tools
from bot.web_page import markdown_of
from bot.web_proxy import BYTES, PAGE_CHARS, Refused, WebProxy, allowed
from core.errors import ToolError

LOOPBACK = ("127.0.0.0/8",)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def proxy(*domains: str, **options: Any) -> WebProxy:
    return WebProxy(domains, now=time.time, clock=time.monotonic, **options)


@asynccontextmanager
async def site(**pages: Handler) -> AsyncIterator[tuple[str, WebProxy]]:
    """A site on the loopback, and a reader whose configuration allows exactly that."""
    app = web.Application()
    for name, handler in pages.items():
        app.router.add_get(f"/{name}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    try:
        yield f"http://127.0.0.1:{port}", proxy("127.0.0.1", networks=LOOPBACK, ports=frozenset({80, port}))
    finally:
        await runner.cleanup()


async def refused(reader: WebProxy, url: str) -> str:
    with pytest.raises(Refused) as caught:
        await reader.read(url)
    return caught.value.why


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://127.0.0.2/", "ip-not-global"),
        ("http://0x7f.1/", "ip-not-global"),
        ("http://3232235521/", "ip-not-global"),
        ("http://[::ffff:10.1.2.3]/", "ip-not-global"),
        ("http://[64:ff9b::a00:1]/", "ip-not-global"),
        ("http://169.254.170.2/v2/credentials", "ip-not-global"),
        ("http://metadata.internal/", "ip-not-global"),
        ("http://api.shop.svc/", "ip-not-global"),
        ("http://docs.shop.test@127.0.0.1/", "userinfo"),
        ("https://docs.shop.test:8443/", "port"),
        ("gopher://docs.shop.test/", "scheme"),
        ("//docs.shop.test/", "scheme-relative"),
        ("http://docs.shop.test\\@evil.test/", "malformed"),
        ("http://docs.shop.test%2f.evil.test/", "malformed"),
        ("http://docs.shop .test/", "malformed"),
        ("http://" + "a" * 64 + ".test/", "malformed"),
        ("https://docs.shop.test/" + "x" * 3000, "too-long"),
        ("http://127.0.0.1:6379/", "ip-not-global"),
        ("http://[::1]:2379/", "ip-not-global"),
        ("http://builder.internal:2375/", "ip-not-global"),
        ("http://metadata/", "ip-not-global"),
        ("http://0x7f.0.0.2/", "ip-not-global"),
        ("http://docs.shop.0x7f/", "ip-not-global"),
        ("http://docs.shop.test/\u202egnp.exe", "malformed"),
        ("http://docs.shop.test/a\u200bb", "malformed"),
        ("\u00a0http://docs.shop.test/", "malformed"),
        ("http://evil-docs.shop.test/", "not-allowed"),
        ("http://dоcs.shop.test/", "not-allowed"),
    ],
)
async def test_an_address_that_only_looks_right_is_refused_by_name(url: str, why: str) -> None:
    hosts = ["docs.shop.test", "127.0.0.2", "metadata.internal", "0x7f.1", "169.254.170.2"]
    assert await refused(proxy(*hosts), url) == why


@pytest.mark.parametrize(
    ("host", "domains", "may"),
    [
        ("docs.shop.test", ["docs.shop.test"], True),
        ("DOCS.shop.test.", ["docs.shop.test"], True),
        ("a.docs.shop.test", ["docs.shop.test"], False),
        ("a.docs.shop.test", [".docs.shop.test"], True),
        ("docs.shop.test", [".docs.shop.test"], False),
        ("evildocs.shop.test", [".docs.shop.test"], False),
        ("shop.test.evil.test", ["shop.test"], False),
        ("xn--mnchen-3ya.test", ["münchen.test"], True),
        ("docs.shop.test", ["", "."], False),
    ],
)
def test_the_list_is_read_label_by_label(host: str, domains: list[str], may: bool) -> None:
    assert allowed(host, domains) is may


async def test_a_page_becomes_markdown_with_its_main_content_first() -> None:
    async def page(_request: web.Request) -> web.Response:
        main = "<main><h2>Roll back</h2><p>Use <b>undo</b>.</p></main>"
        body = f"<title>Runbook</title><nav>menu</nav>{main}<script>x()</script>"
        return web.Response(text=body, content_type="text/html")

    async with site(page=page) as (base, reader):
        found = await reader.read(f"{base}/page")
        assert "# Runbook" in found.markdown and "## Roll back" in found.markdown and "**undo**" in found.markdown
        assert "menu" not in found.markdown and "x()" not in found.markdown
        assert len(found.digest) == 64 and found.final_url == f"{base}/page"


async def test_the_connection_goes_to_the_address_that_was_checked_and_no_second_look_up_counts() -> None:
    asked: list[str] = []

    def getaddrinfo(host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        asked.append(host)
        address = "127.0.0.1" if len(asked) == 1 else "10.0.0.5"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    async def page(request: web.Request) -> web.Response:
        return web.Response(text=f"for {request.host}")

    async with site(page=page) as (base, _):
        port = int(base.rpartition(":")[2])
        reader = proxy("docs.shop.test", networks=LOOPBACK, ports=frozenset({port}), getaddrinfo=getaddrinfo)
        found = await reader.read(f"http://docs.shop.test:{port}/page")
        assert found.markdown == f"for docs.shop.test:{port}" and asked == ["docs.shop.test"]


async def test_a_name_that_answers_with_a_private_address_is_refused() -> None:
    def getaddrinfo(host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        return [(socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::ffff:10.0.0.5", port, 0, 0))]

    assert (
        await refused(proxy("docs.shop.test", getaddrinfo=getaddrinfo), "http://docs.shop.test/") == "ip-not-global"
    )


@pytest.mark.parametrize(
    ("location", "why"),
    [
        ("http://evil.test/", "redirect-target"),
        ("//evil.test/", "redirect-target"),
        ("file:///etc/passwd", "redirect-scheme"),
        ("http://u:p@127.0.0.1/", "redirect-userinfo"),
        ("/hop", "too-many-redirects"),
    ],
)
async def test_every_hop_is_checked_again(location: str, why: str) -> None:
    async def hop(_request: web.Request) -> web.Response:
        return web.Response(status=307, headers={"Location": location})

    async with site(hop=hop) as (base, reader):
        assert await refused(reader, f"{base}/hop") == why


async def test_a_page_that_grows_when_unpacked_is_cut_at_the_limit() -> None:
    async def bomb(_request: web.Request) -> web.Response:
        packed = gzip.compress(b"a" * (BYTES * 20))
        return web.Response(body=packed, headers={"Content-Encoding": "gzip", "Content-Type": "text/plain"})

    async with site(bomb=bomb) as (base, reader):
        found = await reader.read(f"{base}/bomb")
        assert len(found.markdown) == PAGE_CHARS and found.markdown.endswith("[cut: the page goes on]")


async def test_what_is_no_text_and_what_fails_is_refused_in_one_word() -> None:
    async def picture(_request: web.Request) -> web.Response:
        return web.Response(body=b"\x89PNG", content_type="image/png")

    async def gone(_request: web.Request) -> web.Response:
        return web.Response(status=410, text="gone")

    async def swollen(_request: web.Request) -> web.Response:
        return web.Response(text="x", headers={"X-Long": "y" * 200_000})

    async with site(picture=picture, gone=gone, swollen=swollen) as (base, reader):
        assert await refused(reader, f"{base}/picture") == "content-type"
        assert await refused(reader, f"{base}/gone") == "status"
        assert await refused(reader, f"{base}/swollen") == "unreadable"


async def test_the_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async def page(_request: web.Request) -> web.Response:
        return web.Response(text="direct")

    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    async with site(page=page) as (base, reader):
        assert (await reader.read(f"{base}/page")).markdown == "direct"


async def test_one_flight_serves_all_who_ask_and_ends_when_the_last_one_leaves() -> None:
    began, gone = asyncio.Event(), asyncio.Event()
    count = 0

    async def slow(_request: web.Request) -> web.Response:
        nonlocal count
        count += 1
        began.set()
        try:
            await asyncio.sleep(60)
        finally:
            gone.set()
        return web.Response(text="late")

    async with site(slow=slow) as (base, reader):
        readers = [asyncio.ensure_future(reader.read(f"{base}/slow")) for _ in range(5)]
        await asyncio.wait_for(began.wait(), 10)
        for task in readers:
            task.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
        assert count == 1 and not reader._flights


async def test_a_page_is_kept_for_a_while() -> None:
    count = 0

    async def page(_request: web.Request) -> web.Response:
        nonlocal count
        count += 1
        return web.Response(text=f"number {count}")

    async with site(page=page) as (base, reader):
        first = await reader.read(f"{base}/page")
        assert await reader.read(f"{base}/page") == first
        assert await reader.read(f"{base}/page?x=1") != first


async def test_the_tool_says_why_and_which_domains_may_be_read() -> None:
    [tool] = tools(proxy("docs.shop.test"), ["docs.shop.test"])
    with pytest.raises(ToolError, match=r"not-allowed: evil\.test .*docs\.shop\.test"):
        await tool.run({"url": "https://evil.test/"})
    assert tools(proxy(), []) == []


async def test_one_page_has_one_place_in_the_cache_however_its_address_is_spelled() -> None:
    count = 0

    async def page(_request: web.Request) -> web.Response:
        nonlocal count
        count += 1
        return web.Response(text=f"number {count}")

    def getaddrinfo(host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    async with site(page=page) as (base, _):
        port = int(base.rpartition(":")[2])
        reader = proxy("docs.shop.test", networks=LOOPBACK, ports=frozenset({port}), getaddrinfo=getaddrinfo)
        for host in ("docs.shop.test", "DOCS.shop.test", "docs.shop.test.", "docs\u3002shop.test"):
            assert (await reader.read(f"http://{host}:{port}/page#part")).markdown == "number 1"


async def test_a_page_that_comes_drop_by_drop_is_cut_off_in_time() -> None:
    async def drops(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        for _ in range(600):
            await response.write(b"x")
            await asyncio.sleep(0.1)
        return response

    async with site(drops=drops) as (base, reader):
        patient = proxy("127.0.0.1", networks=LOOPBACK, ports=reader._policy.allowed_ports, total_s=0.5)
        assert await refused(patient, f"{base}/drops") == "timeout"


async def test_no_request_leaves_after_the_reader_was_cancelled() -> None:
    asked: list[str] = []
    began, go_on = asyncio.Event(), asyncio.Event()

    async def first(request: web.Request) -> web.Response:
        asked.append(request.path)
        began.set()
        await go_on.wait()
        return web.Response(status=302, headers={"Location": "/second"})

    async def second(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response(text="read later")

    async with site(first=first, second=second) as (base, reader):
        [tool] = tools(reader, ["127.0.0.1"])
        call = asyncio.ensure_future(tool.run({"url": f"{base}/first"}))
        await asyncio.wait_for(began.wait(), 10)
        [(flight, _)] = reader._flights.values()
        call.cancel()
        await asyncio.gather(call, flight, return_exceptions=True)
        go_on.set()
        assert call.cancelled() and flight.cancelled() and not reader._flights
        assert (await reader.read(f"{base}/second")).markdown == "read later"
        assert asked == ["/first", "/second"]


async def test_entities_of_a_page_are_not_expanded() -> None:
    bomb = "<!DOCTYPE x [<!ENTITY a 'aaaa'>" + "".join(f"<!ENTITY a{n} '&a;&a;'>" for n in range(30)) + "]>"

    async def page(request: web.Request) -> web.Response:
        return web.Response(text=f"{bomb}<p>&a29; end</p>", content_type=request.query["as"])

    async with site(page=page) as (base, reader):
        for kind in ("text/html", "application/xml", "application/xhtml%2Bxml"):
            found = await reader.read(f"{base}/page?as={kind}")
            assert "aaaaaaaa" not in found.whole and "end" in found.whole


async def test_a_page_is_kept_whole_while_the_model_reads_its_beginning_and_its_snapshot_is_the_same_again() -> None:
    async def page(_request: web.Request) -> web.Response:
        return web.Response(text="line of the runbook\n" * 5_000)

    async with site(page=page) as (base, reader):
        [tool] = tools(reader, ["127.0.0.1"])
        first, again = [await tool.run({"url": f"{base}/page"}) for _ in range(2)]
        assert first.snapshot is not None and first.snapshot == again.snapshot
        assert first.snapshot.url == f"{base}/page" and len(first.snapshot.digest) == 64
        assert len(first.snapshot.text) == 99_999 and len(first.text) < PAGE_CHARS + 300


@pytest.mark.parametrize(
    ("charset", "body", "reads"),
    [
        ("windows-1251", "привет".encode("cp1251"), "привет"),
        ("Shift_JIS", "障害".encode("shift_jis"), "障害"),
        ("UTF-16", "hello".encode("utf-16"), "hello"),
        *[
            (odd, b"hello", "hello")
            for odd in ("idna", "punycode", "zlib", "rot13", "undefined", "no-such", "a\x00b")
        ],
    ],
)
def test_a_page_is_read_in_its_own_encoding_and_nothing_else_is_taken_for_one(
    charset: str, body: bytes, reads: str
) -> None:
    assert markdown_of(body, charset, html=False, limit=100) == reads


def test_what_stands_around_the_content_goes_and_the_heading_of_the_content_stays() -> None:
    noise = "".join(
        f"<{tag}>noise</{tag}>" for tag in ("nav", "footer", "aside", "form", "script", "style", "header")
    )
    page = f"<body>{noise}<main><header><h1>Roll back</h1></header><p>Use undo.</p>{noise[:22]}</main></body>"
    found = markdown_of(page.encode(), "utf-8", html=True, limit=1_000)
    assert found == "# Roll back\n\nUse undo."
