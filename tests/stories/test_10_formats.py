"""Story 10, formats: whatever the model writes arrives, within Slack's limits, and calls nobody."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from bot.playground.model import call, say
from core.ports import ToolOutput
from tests.support.replay import Gate, Json, Stage, ended, staged
from tests.support.rooms import Room
from tests.support.thread import ENGINEER, ONCALL, part_of, shown

pytestmark = pytest.mark.asyncio(loop_scope="module")

ACTIVE = re.compile(r"<!(?:channel|here|everyone|subteam)|(?<![\w.])@(?:here|channel|everyone)\b", re.IGNORECASE)
LONGEST_EDIT = 4_000
REFUSED = {"status": 200, "body": {"ok": False, "error": "invalid_blocks"}}
TOO_LONG = {"status": 200, "body": {"ok": False, "error": "msg_blocks_too_long"}}
EDIT_TOO_LONG = {"status": 200, "body": {"ok": False, "error": "msg_too_long"}}


class LogTool(Gate):
    """Answers with a line of a log."""

    async def run(self, arguments: Any) -> ToolOutput:
        return ToolOutput("12:34:56:warning:disk <!channel> @here :memo:")


LogTool.spec = type(Gate.spec)("logs", "the logs", {"type": "object", "additionalProperties": True})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    async with staged(tmp_path_factory.mktemp("formats"), tools=[LogTool()]) as made:
        yield made
        text = json.dumps([call.args for call in made.ends.slack.calls], ensure_ascii=False)
        assert not ACTIVE.search(text), ACTIVE.search(text)
        assert all(len(call.args["text"]) <= LONGEST_EDIT for call in made.ends.slack.called("chat.update"))


async def answered(stage: Stage, word: str, text: str) -> Room:
    room = stage.room(word, say(text))
    await room.ask()
    await ended(room, "completed")
    await room.until(lambda: all(row["state"] in ("sent", "failed") for row in room.all("outbox")))
    return room


def answer_posts(room: Room) -> list[Json]:
    """Every attempt to post a part of the answer."""
    found = [call for call in room.slack.called("chat.postMessage") if call.args["channel"] == room.channel]
    return [call.args for call in found if part_of(call.args).startswith("answer")]


def refused(room: Room) -> list[str]:
    calls = [call for call in room.slack.calls if call.args.get("channel") == room.channel and not call.ok]
    return [call.response["error"] for call in calls if isinstance(call.response, dict)]


async def test_an_answer_longer_than_an_edit_arrives_whole_and_no_card_grows_beyond_one(stage: Stage) -> None:
    text = "\n\n".join(f"Paragraph {number}. " + "It is the gateway. " * 40 for number in range(40))
    room = await answered(stage, "long", text)
    whole = "".join(shown(part) for part in room.every("answer"))
    assert len(room.every("answer")) > 1 and refused(room) == []
    assert all(f"Paragraph {number}." in whole for number in range(40))


async def test_an_edit_that_slack_finds_too_long_is_sent_shorter(stage: Stage) -> None:
    room = stage.room("editlong", say("It was the gateway."))
    stage.ends.slack.script(
        "chat.update", [EDIT_TOO_LONG, EDIT_TOO_LONG], lambda args: args["channel"] == room.channel
    )
    await room.ask()
    await ended(room, "completed")
    assert "Answered below" in await room.card()
    assert room.all("cards")[0]["error"] is None


async def test_headings_and_rules_beyond_fifty_blocks_are_posted_in_parts(stage: Stage) -> None:
    room = await answered(stage, "blocks", "\n\n".join(f"# Part {n}\n\nwords\n\n---" for n in range(60)))
    whole = "".join(shown(part) for part in room.every("answer"))
    assert refused(room) == [] and "Part 0" in whole and "Part 59" in whole


async def test_empty_cells_and_huge_tables_lose_nothing(stage: Stage) -> None:
    rows = "\n".join(f"| web-{number} | | {number} ms |" for number in range(150))
    room = await answered(stage, "cells", f"See:\n\n| pod | note | latency |\n| --- | --- | --- |\n{rows}\n\nDone.")
    whole = "".join(shown(part) for part in room.every("answer"))
    assert refused(room) == [] and "web-149" in whole and "Done." in whole


async def test_a_table_that_slack_refuses_all_the_same_arrives_as_text(stage: Stage) -> None:
    room = stage.room("tabletext", say("| a | b |\n| --- | --- |\n| 1 | |\n\nThat is all."))
    stage.ends.slack.script(
        "chat.postMessage", [REFUSED], lambda args: args["channel"] == room.channel and part_of(args) == "answer0"
    )
    await room.ask()
    await ended(room, "completed")
    assert len(room.every("answer")) == 1
    assert "That is all." in room.every("answer")[0]["text"] and not room.every("answer")[0].get("blocks")


async def test_broadcasts_and_strangers_in_an_answer_call_nobody_on_any_path(stage: Stage) -> None:
    text = (
        "Root cause found. <!channel> please restart. <!subteam^S0SRE0001> <@U0CEO0001> also @here, "
        f"＠channel, <!here|here>, `@everyone` and <@{ENGINEER}>."
    )
    room = stage.room("calls", say("Looking: <!channel> @here.") + call("logs", q="<!everyone>"), say(text))
    stage.ends.slack.script(
        "chat.postMessage", [REFUSED], lambda args: args["channel"] == room.channel and part_of(args) == "answer0"
    )
    await room.ask("<!channel> what is up with @here?")
    await ended(room, "completed")
    assert f"<@{ENGINEER}>" in shown(room.every("answer")[0])
    for version in stage.ends.slack.every_version(room.channel):
        if version["message"].get("bot_id"):
            assert not ACTIVE.search(shown(version["message"])) and "<@U0CEO0001>" not in shown(version["message"])


async def test_a_broadcast_cut_in_two_by_a_part_calls_nobody(stage: Stage) -> None:
    room = await answered(stage, "cut", "x" * 11_000 + " " + "<!channel> " * 300)
    for part in room.every("answer"):
        assert not ACTIVE.search(shown(part))


async def test_a_long_code_block_is_closed_and_opened_again_at_every_cut(stage: Stage) -> None:
    lines = "\n".join(f"{number} a < b && c > d \U0001f600" for number in range(1_500))
    room = await answered(stage, "fences", f"The log:\n\n```text\n{lines}\n```\n\nThat is it.")
    parts = [
        str(block["text"]) for part in room.every("answer") for block in part["blocks"] if block["type"] == "markdown"
    ]
    assert len(parts) > 1 and all(part.count("```") % 2 == 0 for part in parts)
    whole = "\n".join(parts)
    assert all(f"{number} a " in whole for number in (0, 700, 1_499)) and "That is it." in whole
    assert not re.search(r"&(?:amp|lt|gt)?(?:\s|$)(?<!&& )", whole.replace("&& c", ""))
    assert refused(room) == []


async def test_what_looks_like_an_emoji_in_a_log_is_no_emoji(stage: Stage) -> None:
    room = stage.room(
        "emoji", say(":tada: Reading.") + call("logs", q=":memo:"), say("It said 10:20:30:error: twice.")
    )
    await room.ask("what does 12:34:56:warning:disk mean?")
    await ended(room, "completed")
    for version in stage.ends.slack.every_version(room.channel):
        if version["message"].get("bot_id"):
            for block in version["message"].get("blocks", ()):
                assert no_emoji(block), block


def no_emoji(block: Json) -> bool:
    """Whether nothing in a block would turn into a picture."""
    if block["type"] == "section" and block["text"]["type"] == "plain_text":
        return block["text"]["emoji"] is False
    texts = [element.get("text", "") for element in block.get("elements", ()) if element["type"] == "mrkdwn"]
    said = block.get("text")
    texts.append(said if isinstance(said, str) else said["text"] if isinstance(said, dict) else "")
    return not any(re.search(r":[a-z_]+:", re.sub(r"`[^`]*`", "", text)) for text in texts)


@pytest.mark.parametrize(
    "error", ["invalid_blocks", "msg_blocks_too_long", "msg_too_long", "no_text", "metadata_too_large"]
)
async def test_an_answer_that_is_refused_once_is_sent_again_as_text(stage: Stage, error: str) -> None:
    word = f"once{error.replace('_', '')}"
    room = stage.room(word, say("It was the *gateway*."))
    once = {"status": 200, "body": {"ok": False, "error": error}}
    stage.ends.slack.script(
        "chat.postMessage", [once], lambda args: args["channel"] == room.channel and part_of(args) == "answer0"
    )
    await room.ask()
    await ended(room, "completed")
    assert len(room.every("answer")) == 1 and "gateway" in room.every("answer")[0]["text"]


async def test_an_answer_that_is_refused_for_good_is_on_the_card_and_in_a_direct_message_with_the_reason(
    stage: Stage,
) -> None:
    room = stage.room("forgood", say("It was the GATEWAY."))
    stage.ends.slack.script(
        "chat.postMessage",
        [REFUSED, TOO_LONG, TOO_LONG, TOO_LONG],
        lambda args: args["channel"] == room.channel and part_of(args).startswith("answer"),
    )
    await room.ask(user=ONCALL)
    await ended(room, "completed")
    card = await room.card()
    assert "Slack did not take the answer as a message, so it is here" in card and "GATEWAY" in card
    direct = "D" + ONCALL[1:]
    await room.until(lambda: len(stage.ends.slack.messages(direct)) > 0)
    said = shown(stage.ends.slack.messages(direct)[-1])
    assert "msg_blocks_too_long" in said and "GATEWAY" in said
    assert room.every("answer") == [] and len(answer_posts(room)) == 2
