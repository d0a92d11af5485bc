"""Story 12, continued: asking goes wrong. Slack refuses the request's form, or all of it, or breaks off; a person
deletes the post. Nothing runs that nobody approved, and nobody waits for a request that nobody can see."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from bot.playground.model import Script, call, say
from core.ports import Tier, ToolOutput, ToolSpec
from tests.support.story import QUICK, holds, sent
from tests.support.thread import ENGINEER, ONCALL, Message, Thread, in_town, part_of, shown


class Undo:
    """A change that counts how often it was made."""

    spec = ToolSpec("undo", "Roll back.", {"type": "object", "additionalProperties": True}, Tier.WRITE, timeout_s=5)

    def __init__(self) -> None:
        self.done = 0

    async def run(self, arguments: Mapping[str, Any]) -> ToolOutput:
        self.done += 1
        return ToolOutput("The gateway runs revision 41.")

    async def health(self) -> str | None:
        return None


PROPOSES = [say("Roll back.") + call("undo", to_revision=41), say("As it is.")]


@pytest.fixture
def undo() -> Undo:
    return Undo()


@pytest.fixture
def script() -> Script:
    return PROPOSES


@pytest.fixture
async def thread(tmp_path: Path, undo: Undo, script: Script) -> AsyncIterator[Thread]:
    async with in_town(tmp_path, asks=True, script=script, limits=QUICK, tools=[undo]) as thread:
        yield thread


def is_request(args: Any) -> bool:
    return part_of(args).startswith("request")


def answered(thread: Thread, method: str, *answers: Any, which: Callable[[Any], bool] = is_request) -> None:
    thread.slack.script(method, list(answers), which)


def no(error: str) -> Mapping[str, Any]:
    return {"status": 200, "body": {"ok": False, "error": error}}


async def asked(thread: Thread) -> Message:
    await thread.until(lambda: bool(thread.own("request")))
    return thread.own("request")[-1]


async def test_a_request_whose_form_is_refused_is_asked_in_plain_text_and_words_decide(
    thread: Thread, undo: Undo
) -> None:
    answered(thread, "chat.postMessage", no("invalid_blocks"))
    await thread.ask()
    post = await asked(thread)
    assert not post.get("blocks")
    assert "to_revision" in post["text"] and "approve ap-1" in post["text"]
    await thread.reply("approve ap-1", ONCALL)
    await holds(thread, ["completed"])
    assert undo.done == 1
    await thread.until(lambda: "It ran." in shown(thread.own("request")[0]))


async def test_a_request_that_is_refused_in_every_form_is_taken_back_and_the_model_is_told(
    thread: Thread, undo: Undo
) -> None:
    answered(thread, "chat.postMessage", no("invalid_blocks"), no("msg_too_long"))
    await thread.ask()
    await holds(thread, ["completed"])
    assert not thread.own("request")
    assert undo.done == 0
    assert "Slack did not take the request, so nobody could be asked" in sent(thread)
    assert (await thread.rows("approvals"))[0]["state"] == "withdrawn"


async def test_a_request_whose_post_broke_off_is_there_once_and_its_buttons_go_away(
    thread: Thread, undo: Undo
) -> None:
    answered(thread, "chat.postMessage", "commit_then_reset")
    await thread.ask()
    post = await asked(thread)
    await thread.press_on(post, "approve", ONCALL)
    await holds(thread, ["completed"])
    assert undo.done == 1
    await thread.until(lambda: "It ran." in shown(thread.own("request")[0]))
    assert len(thread.own("request")) == 1
    assert "action_id" not in json.dumps(thread.own("request"))


async def test_while_an_edit_of_its_post_is_under_way_no_other_overtakes_it(thread: Thread, undo: Undo) -> None:
    await thread.ask()
    post = await asked(thread)

    def edits(args: Any) -> bool:
        return bool(args.get("ts") == post["ts"])

    answered(thread, "chat.update", "commit_then_timeout", which=edits)
    await thread.press_on(post, "approve", ONCALL)
    await holds(thread, ["completed"])
    assert undo.done == 1
    assert len([one for one in thread.slack.called("chat.update") if edits(one.args)]) == 1
    assert "It ran." not in shown(thread.own("request")[0])


async def test_a_request_whose_post_somebody_deletes_is_asked_once_more_and_never_again(
    thread: Thread, undo: Undo
) -> None:
    await thread.ask()
    first = await asked(thread)
    await thread.until(lambda: "Waiting for approval" in shown(thread.own("card")[0]))
    await thread.slack.delete(thread.channel, first["ts"], ENGINEER)
    await thread.until(lambda: [post["ts"] for post in thread.own("request")] not in ([], [first["ts"]]))
    second = await asked(thread)
    await thread.until(lambda: second["ts"].replace(".", "") in shown(thread.own("card")[0]))
    await thread.slack.delete(thread.channel, second["ts"], ENGINEER)
    await thread.reply("approve ap-1", ONCALL)
    await holds(thread, ["completed"])
    assert undo.done == 1
    assert not thread.own("request")
    assert [row["state"] for row in await thread.rows("outbox") if row["kind"] == "request"] == ["sent", "sent"]
