"""What Slack demands of each block and each interactive element.

`RULES` has one checker per block type; a block that is in no row is refused, as Slack refuses it. Lengths are
those of the string as it was sent, entities included. A fault is one line with a JSON pointer, as Slack puts them
into `response_metadata.messages`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from bot.playground.slack.people import Json

MARKDOWN = 12_000
TABLE_ROWS = 100
TABLE_COLUMNS = 20

Faults = Iterator[str]
Rule = Callable[[Json, str], Faults]


def must_be(what: str, pointer: str) -> str:
    return f"{what} [json-pointer:{pointer}]"


def _length(value: Any, most: int, pointer: str, least: int = 0) -> Faults:
    if not isinstance(value, str):
        yield must_be("must be a string", pointer)
    elif len(value) > most:
        yield must_be(f"must be less than {most + 1} characters", pointer)
    elif len(value) < least:
        yield must_be(f"must be more than {least - 1} characters", pointer)


def optional(block: Json, key: str, most: int, pointer: str) -> Faults:
    if block.get(key) is not None:
        yield from _length(block[key], most, f"{pointer}/{key}")


def _text(value: Any, most: int, pointer: str, kinds: tuple[str, ...] = ("plain_text", "mrkdwn")) -> Faults:
    if not isinstance(value, dict) or value.get("type") not in kinds:
        yield must_be(f"must be a {' or '.join(kinds)} object", pointer)
        return
    yield from _length(value.get("text"), most, f"{pointer}/text", least=1)


def plain(value: Any, most: int, pointer: str) -> Faults:
    yield from _text(value, most, pointer, ("plain_text",))


def _items(block: Json, key: str, most: int, pointer: str, least: int = 1) -> Faults:
    items = block.get(key)
    if not isinstance(items, list):
        yield must_be(f"missing required field: {key}", pointer)
    elif not least <= len(items) <= most:
        yield must_be(f"must have between {least} and {most} items", f"{pointer}/{key}")


def _confirm(value: Any, pointer: str) -> Faults:
    if not isinstance(value, dict):
        yield must_be("must be an object", pointer)
        return
    yield from plain(value.get("title"), 100, f"{pointer}/title")
    yield from _text(value.get("text"), 300, f"{pointer}/text")
    for button in ("confirm", "deny"):
        yield from plain(value.get(button), 30, f"{pointer}/{button}")


def _option(option: Any, pointer: str) -> Faults:
    if not isinstance(option, dict):
        yield must_be("must be an object", pointer)
        return
    yield from _text(option.get("text"), 75, f"{pointer}/text")
    yield from _length(option.get("value"), 150, f"{pointer}/value")


def element(value: Any, pointer: str) -> Faults:
    """The faults of one interactive element."""
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        yield must_be("unsupported type", pointer)
        return
    yield from optional(value, "action_id", 255, pointer)
    if value["type"] in ("button", "workflow_button"):
        yield from plain(value.get("text"), 75, f"{pointer}/text")
        for key, most in (("value", 2_000), ("url", 3_000), ("accessibility_label", 75), ("agent_prompt", 4_000)):
            yield from optional(value, key, most, pointer)
        if value.get("style") not in (None, "primary", "danger"):
            yield must_be("must be one of: primary, danger", f"{pointer}/style")
    if value["type"] == "plain_text_input" and value.get("max_length", 0) > 3_000:
        yield must_be("must be less than 3001", f"{pointer}/max_length")
    if value.get("confirm") is not None:
        yield from _confirm(value["confirm"], f"{pointer}/confirm")
    if "options" in value:
        small = value["type"] in ("checkboxes", "radio_buttons")
        most = 5 if value["type"] == "overflow" else 10 if small else 100
        yield from _items(value, "options", most, pointer)
        for index, option in enumerate(value["options"] or []):
            yield from _option(option, f"{pointer}/options/{index}")


def _section(block: Json, pointer: str) -> Faults:
    if block.get("text") is None and not block.get("fields"):
        yield must_be("missing required field: text or fields", pointer)
    if block.get("text") is not None:
        yield from _text(block["text"], 3_000, f"{pointer}/text")
    if block.get("fields") is not None:
        yield from _items(block, "fields", 10, pointer)
        for index, item in enumerate(block["fields"]):
            yield from _text(item, 2_000, f"{pointer}/fields/{index}")
    if block.get("accessory") is not None:
        yield from element(block["accessory"], f"{pointer}/accessory")


def _header(block: Json, pointer: str) -> Faults:
    yield from plain(block.get("text"), 150, f"{pointer}/text")


def _context(block: Json, pointer: str) -> Faults:
    yield from _items(block, "elements", 10, pointer)
    for index, item in enumerate(block.get("elements") or []):
        where = f"{pointer}/elements/{index}"
        if isinstance(item, dict) and item.get("type") == "image":
            yield from _image(item, where)
        else:
            yield from _text(item, 3_000, where)


def _actions(most: int) -> Rule:
    def check(block: Json, pointer: str) -> Faults:
        yield from _items(block, "elements", most, pointer)
        seen: set[str] = set()
        for index, item in enumerate(block.get("elements") or []):
            where = f"{pointer}/elements/{index}"
            yield from element(item, where)
            action = item.get("action_id") if isinstance(item, dict) else None
            if action in seen:
                yield must_be(f"`action_id` {action!r} already exists in this block", where)
            if action is not None:
                seen.add(action)

    return check


def _image(block: Json, pointer: str) -> Faults:
    if not block.get("image_url") and not block.get("slack_file"):
        yield must_be("missing required field: image_url or slack_file", pointer)
    yield from optional(block, "image_url", 3_000, pointer)
    yield from _length(block.get("alt_text"), 2_000, f"{pointer}/alt_text")


def _input(block: Json, pointer: str) -> Faults:
    yield from plain(block.get("label"), 2_000, f"{pointer}/label")
    yield from element(block.get("element"), f"{pointer}/element")


def _markdown_block(block: Json, pointer: str) -> Faults:
    yield from _length(block.get("text"), MARKDOWN, f"{pointer}/text", least=1)


def _rich_text(block: Json, pointer: str) -> Faults:
    if not isinstance(block.get("elements"), list):
        yield must_be("missing required field: elements", pointer)


def cell_text(cell: Any) -> str:
    if not isinstance(cell, dict):
        return ""
    if cell.get("type") == "rich_text":
        return "".join(strings(cell))
    return str(cell.get("text", cell.get("value", "")))


def _table(block: Json, pointer: str) -> Faults:
    yield from _items(block, "rows", TABLE_ROWS, pointer)
    for index, row in enumerate(block.get("rows") or []):
        where = f"{pointer}/rows/{index}"
        if not isinstance(row, list) or not 1 <= len(row) <= TABLE_COLUMNS:
            yield must_be(f"must have between 1 and {TABLE_COLUMNS} items", where)
            continue
        for column, cell in enumerate(row):
            if not cell_text(cell):
                yield must_be("must be more than 0 characters", f"{where}/{column}/text")


def _data_table(block: Json, pointer: str) -> Faults:
    yield from _length(block.get("caption"), 3_000, f"{pointer}/caption", least=1)
    yield from _items(block, "rows", TABLE_ROWS + 1, pointer, least=2)


def _task_card(block: Json, pointer: str) -> Faults:
    for key in ("task_id", "title"):
        yield from _length(block.get(key), 3_000, f"{pointer}/{key}", least=1)
    if block.get("status") not in (None, "pending", "in_progress", "complete", "error"):
        yield must_be("must be one of: pending, in_progress, complete, error", f"{pointer}/status")
    for key in ("details", "output"):
        if block.get(key) is not None and not isinstance(block[key], dict):
            yield must_be("must be a rich_text object", f"{pointer}/{key}")


def _plan(block: Json, pointer: str) -> Faults:
    yield from _length(block.get("title"), 3_000, f"{pointer}/title", least=1)
    for index, task in enumerate(block.get("tasks") or []):
        yield from _task_card(task, f"{pointer}/tasks/{index}")


def _alert(block: Json, pointer: str) -> Faults:
    if block.get("level") not in (None, "default", "info", "warning", "error", "success"):
        yield must_be("must be one of: default, info, warning, error, success", f"{pointer}/level")


def _anything(block: Json, pointer: str) -> Faults:
    yield from ()


RULES: Mapping[str, Rule] = {
    "section": _section,
    "header": _header,
    "context": _context,
    "actions": _actions(25),
    "context_actions": _actions(5),
    "divider": _anything,
    "image": _image,
    "input": _input,
    "markdown": _markdown_block,
    "rich_text": _rich_text,
    "table": _table,
    "data_table": _data_table,
    "data_visualization": _anything,
    "task_card": _task_card,
    "plan": _plan,
    "alert": _alert,
    "card": _anything,
    "carousel": _anything,
    "container": _anything,
    "file": _anything,
    "video": _anything,
    "call": _anything,
    "auth_provider": _anything,
}


def strings(value: Any) -> Iterator[str]:
    """Every text in it that a reader would see."""
    if isinstance(value, list):
        for item in value:
            yield from strings(item)
    elif isinstance(value, dict):
        if isinstance(value.get("text"), str):
            yield value["text"]
        for key in ("text", "elements", "fields", "rows", "label", "title", "tasks", "caption"):
            if isinstance(value.get(key), dict | list):
                yield from strings(value[key])


def faults(blocks: list[Any]) -> Faults:
    ids: set[str] = set()
    for index, block in enumerate(blocks):
        pointer = f"/blocks/{index}"
        rule = RULES.get(block.get("type", "")) if isinstance(block, dict) else None
        if rule is None:
            yield must_be("unsupported type", f"{pointer}/type")
            continue
        yield from optional(block, "block_id", 255, pointer)
        if block.get("block_id") in ids:
            yield must_be("`block_id` already exists", f"{pointer}/block_id")
        if block.get("block_id"):
            ids.add(block["block_id"])
        yield from rule(block, pointer)
