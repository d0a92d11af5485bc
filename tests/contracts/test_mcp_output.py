"""What an MCP server answers is data: each kind of content becomes text, a link or a picture."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest
from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from bot.tools.mcp_output import output_of, png
from bot.tools.shaping import MOST_CHARS
from core.gateway import CallResult, CallStatus
from core.ports import Tier, ToolOutput
from tests.support.mcp_servers import connected, offers, raw_server, through_gateway, tool_of


def chunk(kind: bytes, data: bytes, wrong: bool = False) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data) ^ wrong)


def picture(width: int = 1, height: int = 1, *, wrong: bool = False, tail: bytes = b"") -> str:
    """A grey PNG as base64."""
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    body = chunk(b"IDAT", zlib.compress(b"\0\x80"), wrong)
    whole = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + body + chunk(b"IEND", b"") + tail
    return base64.b64encode(whole).decode()


def output(*content: Any, **more: Any) -> ToolOutput:
    return output_of("own", "draw", CallToolResult(content=list(content), **more))


def text(*content: Any, **more: Any) -> str:
    return output(*content, **more).text


def image(data: str, kind: str = "image/png") -> ImageContent:
    return ImageContent(data=data, mime_type=kind)


def test_texts_are_joined_and_marked_as_data() -> None:
    found = output(TextContent(text="one"), TextContent(text="two"))
    assert found.text == "one\ntwo"
    assert not found.is_error


def test_an_error_of_the_server_is_an_error() -> None:
    assert output(TextContent(text="no such page"), is_error=True).is_error


def test_structured_content_is_told_only_where_there_is_no_text() -> None:
    assert text(structured_content={"wärme": 36}) == '{"wärme": 36}'
    assert text(TextContent(text=" "), structured_content=[1, None]) == "[1, null]"
    assert text(TextContent(text="36 degrees"), structured_content={"heat": 36}) == "36 degrees"


def test_an_answer_without_anything_says_so() -> None:
    assert text() == "(it answered without saying anything)"


def test_a_real_png_is_a_picture_for_people() -> None:
    found = output(image(picture()))
    assert [(one.title, one.alt) for one in found.pictures] == [
        ("draw from own", "A picture that the tool draw of MCP server own made")
    ]
    assert found.pictures[0].png == base64.b64decode(picture())
    assert found.text == "[picture: image/png, 0 kB, posted to the thread for people]"


@pytest.mark.parametrize(
    "data",
    [
        "",
        "not base64!",
        base64.b64encode(b"\x89PNG\r\n\x1a\n").decode(),
        base64.b64encode(b"<svg onload=alert(1)>").decode(),
        base64.b64encode(base64.b64decode(picture())[:-4]).decode(),
        picture(100_000, 1),
        picture(0, 1),
        picture(wrong=True),
        picture(tail=b"<script>"),
        "A" * 8_000_000,
    ],
)
def test_what_only_says_that_it_is_a_png_is_mentioned_and_not_shown(data: str) -> None:
    assert png(data) is None
    found = output(image(data))
    assert not found.pictures and found.text.startswith("[picture: image/png, ")


def test_other_pictures_and_sounds_are_mentioned_and_no_more_than_four_are_shown() -> None:
    assert text(image("AAAA" * 1024, "image/jpeg\n<!here>")) == "[picture: image/jpeg <!here>, 3 kB, not shown]"
    assert text(AudioContent(data="AAAA", mime_type="audio/wav")) == "[sound: audio/wav, 0 kB, not kept]"
    assert len(output(*[image(picture())] * 6).pictures) == 4


def test_resource_links_are_links_where_people_can_follow_them() -> None:
    found = output(
        ResourceLink(name="page", uri="https://wiki.example/a"),
        ResourceLink(name="file", uri="file:///etc/passwd"),
        ResourceLink(name="odd", uri="http://["),
    )
    assert list(found.links) == [("page", "https://wiki.example/a")]
    assert found.text == "\n".join(
        [
            "[resource: page, https://wiki.example/a]",
            "[resource: file, file:///etc/passwd]",
            "[resource: odd, http://[]",
        ]
    )


def test_embedded_resources_are_text_up_to_a_size_and_binary_ones_are_mentioned() -> None:
    page = EmbeddedResource(resource=TextResourceContents(uri="docs://rb-17", text="1. check the pool"))
    long = EmbeddedResource(resource=TextResourceContents(uri="docs://long", text="x" * 50_000))
    blob = EmbeddedResource(resource=BlobResourceContents(uri="docs://b", blob="AAAA", mime_type="application/zip"))
    assert text(page) == "[resource docs://rb-17]\n1. check the pool"
    assert len(text(long)) < 8_100 and "[cut here: 50000 characters" in text(long)
    assert text(blob) == "[resource docs://b: application/zip, 0 kB, not kept]"


def test_an_answer_is_cut_where_it_is_too_long() -> None:
    assert len(text(*[TextContent(text="word " * 20_000)] * 20)) <= MOST_CHARS


def deep(levels: int) -> str:
    return '{"content": [], "structuredContent": ' + '{"a":' * levels + "1" + "}" * levels + "}"


WORDS = '{"content": [{"type": "text", "text": %s}]}'


@pytest.mark.parametrize(
    ("answer", "status", "shown"),
    [
        (WORDS % '"half \\ud83d and \\u0000"', CallStatus.OK, "half \ufffd and \ufffd"),
        (WORDS % json.dumps("x" * 1_000_000), CallStatus.OK, "characters are left out here"),
        (deep(60), CallStatus.OK, '{"a": {"a": '),
        (deep(900), CallStatus.OK, "[nested too deeply]"),
        ('{"content": [{"type": "riddle"}]}', CallStatus.UNKNOWN, "unknown shape"),
        ('{"content": 3}', CallStatus.UNKNOWN, "unknown shape"),
        ('{"content": [], "isError": true}', CallStatus.ERROR, "without saying anything"),
        ('error: {"code": -32602, "message": "Unknown tool: say"}', CallStatus.ERROR, "did not run it: Unknown tool"),
        ('error: {"code": -32603, "message": "it broke"}', CallStatus.UNKNOWN, "no clear end (it broke)"),
        ('error: {"code": -32000, "message": "HTTP 502"}', CallStatus.UNKNOWN, "no clear end (HTTP 502)"),
    ],
)
async def test_a_write_ends_truthfully_whatever_the_server_answers(
    tmp_path: Path, answer: str, status: CallStatus, shown: str
) -> None:
    result = await asked(tmp_path, answer)
    assert result.status is status
    assert shown in result.text
    result.text.encode()


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ("request timed out", CallStatus.UNKNOWN),
        ('{"ok": false, "error": "request_timeout"}', CallStatus.UNKNOWN),
        ("upstream connection reset", CallStatus.UNKNOWN),
        ("502 Bad Gateway", CallStatus.UNKNOWN),
        ("channel_not_found", CallStatus.ERROR),
        ("429 Too Many Requests", CallStatus.ERROR),
        ("the budget of 500 was not changed", CallStatus.ERROR),
    ],
)
async def test_an_error_of_a_write_that_may_have_happened_is_unknown(
    tmp_path: Path, words: str, status: CallStatus
) -> None:
    failed = {"content": [{"type": "text", "text": words}], "isError": True}
    assert (await asked(tmp_path, json.dumps(failed))).status is status
    assert (await asked(tmp_path, json.dumps(failed), Tier.READ)).status is CallStatus.ERROR


async def test_a_message_without_end_costs_the_connection_and_not_the_memory(tmp_path: Path) -> None:
    result = await asked(tmp_path, WORDS % json.dumps("x" * (9 * 1024 * 1024)))
    assert result.status is CallStatus.UNKNOWN
    assert "it sent a message of more than 8 MB" in result.text


async def asked(folder: Path, answer: str, tier: Tier = Tier.WRITE) -> CallResult:
    """What becomes of a call that the server answers with this text."""
    offers(folder, {"name": "say"})
    (folder / "result").write_text(answer)
    async with connected(raw_server(folder, default_tier=tier)) as server:
        return await through_gateway(tool_of(server, "say"))
