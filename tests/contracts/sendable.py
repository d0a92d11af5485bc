"""What Slack takes: its limits, and a reader who looks for anything that notifies somebody, however disguised."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection
from typing import Any

import regex

from bot.playground.slack.limits import check_blocks
from bot.slack.escape import size
from bot.slack.message import SlackMessage


def strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for item in inner for text in strings(item)]


def calls_nobody(text: str, allowed: Collection[str] = ()) -> bool:
    """Whether the most lenient reader finds nothing in `text` that notifies anybody but `allowed`."""
    bare = regex.sub(
        r"[\p{Default_Ignorable_Code_Point}\p{Cf}\\]", "", unicodedata.normalize("NFKC", text)
    ).casefold()
    people = regex.findall(r"<@([^>|]*)", bare)
    loud = regex.search(r"<!|<#(?!c\d)|(?<![a-z0-9])@(?:channel|here|everyone)(?![a-z0-9])", bare)
    return loud is None and set(people) <= {user.casefold() for user in allowed}


def assert_sendable(message: SlackMessage, allowed: Collection[str] = ()) -> None:
    """Slack's limits, and nothing that acts by itself."""
    assert 0 < size(message.text) <= 4_000
    check_blocks(message.blocks)
    assert sum(size(text) for block in message.blocks for text in strings(block)) < 13_202
    for text in [message.text, *strings(message.blocks)]:
        assert calls_nobody(text, allowed), text
        assert not regex.search(r"[\x00\ud800-\udfff]", text)
    for block in message.blocks:
        assert_within_limits(block)


def assert_within_limits(block: dict[str, Any]) -> None:
    assert 0 < len(block["block_id"]) <= 255
    match block["type"]:
        case "section":
            assert 0 < size(block["text"]["text"]) <= 3_000
        case "context":
            assert all(0 < size(element["text"]) <= 3_000 for element in block["elements"])
        case "actions":
            assert 0 < len(block["elements"]) <= 25
            for button in block["elements"]:
                assert 0 < len(button["text"]["text"]) <= 75 and len(button["accessibility_label"]) <= 75
                assert len(button["value"]) <= 2_000 and "confirm" not in button
        case "markdown":
            assert 0 < size(block["text"]) <= 12_000
