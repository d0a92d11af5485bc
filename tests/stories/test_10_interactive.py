"""Story 10, buttons: they live for months, and whatever one carries, who pressed it is answered."""

from __future__ import annotations

import pytest

from bot.playground.model import say
from tests.support.replay import Raw, Stage, ended, told
from tests.support.thread import ENGINEER, ONCALL

pytest_plugins = ["tests.support.stage"]
pytestmark = pytest.mark.asyncio(loop_scope="module")

VALUES = {
    "json": '{"v":1,"id":"old"}',
    "nothing": "",
    "spaces": "turn 1",
    "long": "x" * 2_000,
    "markup": "<script>alert(1)</script>",
    "path": "../../etc/passwd",
    "chinese": "停",
}


@pytest.mark.parametrize("action", ["approve", "stop_step", "redirect_now", "retry"])
@pytest.mark.parametrize("value", VALUES)
async def test_a_value_that_cannot_be_read_has_expired_and_nothing_happens(
    stage: Stage, action: str, value: str
) -> None:
    word = "values"
    room = stage.ends.rooms.get(word) or await stage.busy(word, say("Done."))
    presser = f"U0{action.replace('_', '').upper()}{value.upper()}"
    await Raw(room).click((await room.cards())[0], action, VALUES[value], presser)
    await stage.ends.slack.until(
        lambda: any(call.args.get("user") == presser for call in stage.ends.slack.called("chat.postEphemeral"))
    )
    told_ = next(call for call in stage.ends.slack.called("chat.postEphemeral") if call.args.get("user") == presser)
    assert "expired" in told_.args["text"] and told_.args["thread_ts"] == room.root
    assert [row for row in room.all("messages") if row["source"] == "button"] == []
    assert room.all("stops") == [] and len(room.all("turns")) == 1


@pytest.mark.parametrize("action", ["edit_args", "show_more", "STOP_STEP", ""])
async def test_a_button_of_another_version_is_answered_and_opens_nothing(stage: Stage, action: str) -> None:
    room = stage.ends.rooms.get("versions") or await stage.busy("versions", say("Done."))
    before = len(stage.ends.slack.called("chat.postEphemeral"))
    await Raw(room).click((await room.cards())[0], action, "ap-4", ONCALL)
    await stage.ends.slack.until(lambda: len(stage.ends.slack.called("chat.postEphemeral")) > before)
    said = stage.ends.slack.called("chat.postEphemeral")[-1].args
    assert "expired" in said["text"] and "Mention me" in said["text"] and said["user"] == ONCALL
    assert stage.ends.slack.called("views.open") == []


async def test_a_button_about_something_that_never_was_has_expired(stage: Stage) -> None:
    room = await stage.busy("strange", say("Done."))
    raw, card = Raw(room), (await room.cards())[0]
    await raw.click(card, "redirect_now", "m-neverwas", ONCALL)
    await told(room, ONCALL, "nothing was changed")
    for number, action in enumerate(("approve", "deny", "stop_helper"), start=2):
        await raw.click(card, action, "ap-9", ONCALL)
        await room.until(lambda so_far=number: len(room.whispers(ONCALL)) == so_far)
        assert "expired and did nothing" in room.whispers(ONCALL)[-1]
    stage.let(room)
    await ended(room, "completed")


async def test_a_button_on_a_message_in_a_thread_that_is_not_ours_has_expired(stage: Stage) -> None:
    room = stage.room("foreign")
    room.root = await stage.ends.slack.say(room.channel, ENGINEER, "a thread without us", quiet=True)
    await Raw(room).click({"ts": room.root, "text": "x"}, "stop_step", "t-neverwas", ENGINEER)
    await told(room, ENGINEER, "expired")
    assert room.all("sessions") == []


async def test_clicks_without_this_or_that_are_acknowledged(stage: Stage) -> None:
    room = stage.room("incomplete", say("Done."))
    await room.ask()
    await ended(room, "completed")
    raw, card = Raw(room), (await room.cards())[0]
    for missing in (
        {"user": {}},
        {"message": None, "container": {}},
        {"channel": None},
        {"team": None},
        {"actions": [{"action_id": "stop_step", "value": "t-1"}]},
        {"container": {"type": "view", "view_id": "V1"}, "channel": None, "message": None},
    ):
        await raw.click(card, "stop_step", "t-neverwas", **missing)
    assert room.all("stops") == []


async def test_a_retry_is_asked_for_once_however_often_it_is_pressed(stage: Stage) -> None:
    room = stage.room("retry", say("The first."), say("The second."))
    await room.ask()
    await ended(room, "completed")
    raw, card, turn = Raw(room), (await room.cards())[0], room.all("turns")[0]["id"]
    ts = raw.ts()
    for _ in range(3):
        await raw.click(card, "retry", turn, ENGINEER, ts=ts)
    await ended(room, "completed", "completed")
    assert len(room.requests()) == 2 and len(room.every("answer")) == 2
