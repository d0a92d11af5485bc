"""Slack's limits on whole messages and views, with Slack's error names.

A markdown block is expanded on the server, and the cap on blocks counts what it expands to.
"""

from __future__ import annotations

import json
from typing import Any

from markdown_it import MarkdownIt

from bot.playground.slack.block_rules import MARKDOWN, Faults, cell_text, faults, must_be, optional, plain, strings
from bot.playground.slack.people import Json
from bot.playground.slack.refusal import Refused

MESSAGE_BLOCKS = 50
VIEW_BLOCKS = 100
POST_TEXT = 40_000
EDIT_TEXT = 4_000
ALL_BLOCK_TEXT = 13_202
TABLE_CHARS = 10_000
ATTACHMENTS = 100
METADATA_BYTES = 8_192
VIEW_BYTES = 250_000

_markdown = MarkdownIt("commonmark").enable("table")


def expanded(block: Json) -> int:
    """How many blocks Slack makes of this one: headings, rules and tables of a markdown block stand alone."""
    if block.get("type") != "markdown":
        return 1
    count, in_run = 0, False
    for token in _markdown.parse(str(block.get("text", ""))):
        if token.level != 0 or token.nesting < 0:
            continue
        alone = token.type in ("heading_open", "hr", "table_open")
        if alone or not in_run:
            count += 1
        in_run = not alone
    return max(count, 1)


def check_blocks(blocks: Any, most: int = MESSAGE_BLOCKS, too_many: str = "invalid_blocks") -> None:
    """Refuse blocks that Slack would refuse."""
    if not isinstance(blocks, list):
        raise Refused("invalid_blocks_format")
    found = list(faults(blocks))
    if found:
        raise Refused("invalid_blocks", *found)
    if sum(map(expanded, blocks)) > most:
        raise Refused(too_many, must_be(f"no more than {most} items allowed", "/blocks"))
    tables = [block for block in blocks if block["type"] in ("table", "data_table")]
    cells = sum(len(cell_text(cell)) for table in tables for row in table["rows"] for cell in row)
    if cells > TABLE_CHARS:
        raise Refused("invalid_blocks", must_be(f"tables hold more than {TABLE_CHARS} characters", "/blocks"))
    markdown = sum(len(block["text"]) for block in blocks if block["type"] == "markdown")
    everything = sum(len(text) for text in strings(blocks))
    if markdown > MARKDOWN or everything >= ALL_BLOCK_TEXT:
        raise Refused("msg_blocks_too_long")


def check_attachments(attachments: Any) -> None:
    """Refuse attachments that Slack would refuse."""
    if not isinstance(attachments, list) or not all(isinstance(item, dict) for item in attachments):
        raise Refused("invalid_attachments")
    if len(attachments) > ATTACHMENTS:
        raise Refused("too_many_attachments")
    for attachment in attachments:
        if attachment.get("blocks"):
            check_blocks(attachment["blocks"])


def check_metadata(metadata: Any) -> None:
    """Refuse metadata of the wrong shape or size."""
    shaped = isinstance(metadata, dict) and isinstance(metadata.get("event_type"), str)
    if not shaped or not isinstance(metadata.get("event_payload"), dict):
        raise Refused("invalid_metadata_format")
    if len(json.dumps(metadata, ensure_ascii=False).encode()) > METADATA_BYTES:
        raise Refused("metadata_too_large")


def _view_faults(view: Json) -> Faults:
    if view.get("type") not in ("modal", "home"):
        yield must_be("must be one of: modal, home", "/view/type")
    if view.get("type") == "modal":
        yield from plain(view.get("title"), 24, "/view/title")
    for key in ("submit", "close"):
        if view.get(key) is not None:
            yield from plain(view[key], 24, f"/view/{key}")
    yield from optional(view, "private_metadata", 3_000, "/view")
    yield from optional(view, "callback_id", 255, "/view")
    blocks = view.get("blocks")
    if not isinstance(blocks, list):
        yield must_be("missing required field: blocks", "/view")
        return
    yield from faults(blocks)
    if len(blocks) > VIEW_BLOCKS:
        yield must_be(f"no more than {VIEW_BLOCKS} items allowed", "/view/blocks")


def check_view(view: Any) -> Json:
    """A view that Slack would accept, or its refusal."""
    if not isinstance(view, dict):
        raise Refused("invalid_arguments", must_be("must be an object", "/view"))
    if len(json.dumps(view, ensure_ascii=False).encode()) > VIEW_BYTES:
        raise Refused("view_too_large")
    found = list(_view_faults(view))
    if found:
        raise Refused("invalid_arguments", *found)
    return view
