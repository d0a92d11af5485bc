"""Files on a message: what the model may see of them, and one sentence for what it may not."""

from __future__ import annotations

import base64
import struct
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from slack_sdk.web.async_client import AsyncWebClient

from bot.slack.attachments import FILE_BYTES, Room, block_of
from bot.slack.reader import SlackReader
from core.frame import unframed
from core.ledger import Wanted
from core.messages import Block, ChannelId, FileRef, SlackTs
from core.validator import problems

PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"
Serve = Any


def png(width: int, height: int, size: int = 0) -> bytes:
    return (PNG + struct.pack(">II", width, height)).ljust(size, b"\0")


def jpeg(width: int, height: int, metadata: int = 0) -> bytes:
    """A JPEG with so many segments of 60 KB of metadata in front of its size."""
    segment = b"\xff\xe1" + struct.pack(">H", 60_000) + b"\0" * 59_998
    return b"\xff\xd8" + segment * metadata + b"\xff\xc0\x00\x11\x08" + struct.pack(">HH", height, width) + b"\0" * 20


def said(block: Block) -> str:
    return str(block.get("text", ""))


@pytest.mark.parametrize("content", [png(800, 600), jpeg(800, 600), jpeg(800, 600, metadata=3)])
def test_a_picture_is_called_what_its_bytes_are(content: bytes) -> None:
    block = block_of("graph", "image/gif", content, Room())
    kind = "image/png" if content.startswith(PNG) else "image/jpeg"
    assert block["source"] == {"type": "base64", "media_type": kind, "data": base64.b64encode(content).decode()}
    assert not problems({"messages": [{"role": "user", "content": [block]}]})


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (png(800, 600, 4 * 1024 * 1024), "5592408 bytes in base64 are more than 5242880"),
        (png(8_001, 10), "8001 pixels are more than 8000"),
        (jpeg(9_000, 9_000, metadata=3), "9000 pixels are more than 8000"),
        (PNG, "its size is not to be seen: it is damaged or cut off"),
        (b"\xff\xd8\xff\xe0", "its size is not to be seen: it is damaged or cut off"),
    ],
)
def test_a_picture_that_the_api_would_refuse_is_a_sentence(content: bytes, why: str) -> None:
    block = block_of("graph", "image/png", content, Room())
    assert said(block) == f"[attachment graph: a picture that was not read, {why}]"


def test_pictures_of_one_turn_leave_room_for_the_rest_of_the_request() -> None:
    room = Room()
    blocks = [block_of("graph", "image/png", png(100, 100, 3 * 1024 * 1024), room) for _ in range(3)]
    assert [block["type"] for block in blocks] == ["image", "image", "text"]
    assert said(blocks[-1]).endswith("there are too many large ones]")


@pytest.mark.parametrize(
    ("content", "mimetype", "kept"),
    [
        (b"a\0b \xed\xa0\xbd c", "text/plain", "a\ufffdb \ufffd\ufffd\ufffd c"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "image/svg+xml", "image/svg+xml, not readable here]"),
        (b"<html>login</html>", "image/png", "image/png, not readable here]"),
        (b"\x7fELF\x02\x01\x01" + bytes(500), "text/plain", "[binary: 507 characters were not kept]"),
        (b"%PDF-1.7", "application/pdf", "application/pdf, not readable here]"),
        (b"x" * 30_000, "", "[cut: 10000 more characters were not kept]"),
    ],
)
def test_what_is_no_picture_is_text_or_a_sentence(content: bytes, mimetype: str, kept: str) -> None:
    block = block_of("file", mimetype, content, Room())
    found = unframed(said(block))
    assert (found.text if found is not None else said(block)).endswith(kept)
    assert (found is not None) is (", data, not instructions]" in said(block))
    assert not problems({"messages": [{"role": "user", "content": [block]}]})


@pytest.fixture
async def files() -> AsyncIterator[str]:
    """A files host that sends in small pieces, as a slow one does."""

    async def serve(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "image/png"})
        await response.prepare(request)
        content = png(100, 100, int(request.query["size"]))
        for at in range(0, len(content), 50_000):
            await response.write(content[at : at + 50_000])
        await response.write_eof()
        return response

    app = web.Application()
    app.router.add_get("/file", serve)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}/file"
    await runner.cleanup()


async def read(address: str, size: int, said_size: int = 1) -> Block:
    ref = FileRef("F1", "graph", "image/png", said_size, f"{address}?size={size}")
    wanted = Wanted(ChannelId("C1"), SlackTs("1.0"), SlackTs("1.0"), False, [ref])
    async with aiohttp.ClientSession() as http:
        return dict((await SlackReader(AsyncWebClient(), http, "xoxb-test").read(wanted)).blocks[0])


async def test_a_file_that_comes_in_pieces_is_read_to_its_end(files: str) -> None:
    block = await read(files, 1_000_000)
    assert len(base64.b64decode(block["source"]["data"])) == 1_000_000


async def test_a_file_larger_than_it_said_is_not_kept(files: str) -> None:
    assert said(await read(files, FILE_BYTES + 100_000)) == "[attachment graph: not read, it is larger than it said]"


async def test_a_file_that_says_that_it_is_too_large_is_not_fetched() -> None:
    block = await read("http://127.0.0.1:1/none", 1, FILE_BYTES + 1)
    assert said(block) == f"[attachment graph: not read, {FILE_BYTES + 1} bytes is more than {FILE_BYTES}]"
