"""Story 10, places and installations: where nothing can be said any more the work ends, and who asked is told."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from bot.playground.model import call, say
from tests.support.replay import Json, Raw, Stage, ended, staged, told
from tests.support.rooms import Room
from tests.support.thread import ENGINEER, ONCALL, shown

pytestmark = pytest.mark.asyncio(loop_scope="module")

CHANNELS = ["restricted_action_read_only_channel", "restricted_action", "not_in_channel", "channel_not_found"]
THREADS = ["thread_not_found", "cannot_reply_to_message", "restricted_action_thread_locked"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    async with staged(tmp_path_factory.mktemp("places")) as made:
        yield made


def error(word: str, **more: str) -> Json:
    return {"status": 200, "body": {"ok": False, "error": word} | more}


def calls_to(room: Room, method: str) -> int:
    return sum(made.args.get("channel") == room.channel for made in room.slack.called(method))


RUNS = itertools.count(1)
"""A second try must not find the room of the first."""


async def direct(stage: Stage, room: Room, user: str = ENGINEER) -> str:
    """What `user` is told directly about this room."""
    channel = "D" + user[1:]

    def said() -> list[str]:
        found = [shown(message) for message in stage.ends.slack.messages(channel)]
        return [words for words in found if room.channel in words]

    await room.until(lambda: len(said()) == 1)
    return said()[0]


async def failed(room: Room) -> None:
    """The one turn of the room ended because there was no place to answer in."""
    assert await room.released() == ["failed"]
    settle = (await room.settles())[0]
    assert (settle["detail"], settle["final_event_id"]) == ("channel_archived", None)


async def test_when_the_channel_is_archived_the_turn_ends_and_nothing_is_tried_there_again(stage: Stage) -> None:
    room = await stage.busy("archived")
    await room.reply("+ and check the queue", ENGINEER)
    await room.until(
        lambda: any("hourglass" in sign for message in room.messages() for sign in room.signs(message["ts"]))
    )
    before = {method: calls_to(room, method) for method in ("chat.postMessage", "chat.update")}
    await stage.ends.slack.archive(room.channel, ONCALL)
    await failed(room)
    said = await direct(stage, room)
    assert "the channel is archived" in said and f"<#{room.channel}>" in said
    assert "archived" in stage.gate.cancelled and len(room.requests()) == 1
    assert {method: calls_to(room, method) for method in before} == before
    assert [line["why"] for line in stage.logged("place_closed") if line["channel"] == room.channel] == [
        "channel_archive"
    ]
    assert {row["state"] for row in room.all("messages") if row["disposition"] == "queue"} == {"stopped"}


async def test_an_archived_channel_is_noticed_from_slacks_answer_as_well(stage: Stage) -> None:
    room = await stage.busy("noticed")
    next(channel for channel in stage.ends.slack.workspace.channels if channel.id == room.channel).is_archived = True
    before = calls_to(room, "chat.update")
    await stage.app.mailbox.post_gone(room.channel, (await room.cards())[0]["ts"])
    await room.until(lambda: calls_to(room, "chat.update") > before, 60)
    await failed(room)
    assert calls_to(room, "chat.update") == before + 1
    assert "the channel is archived" in await direct(stage, room)


@pytest.mark.parametrize("word", CHANNELS)
async def test_where_we_may_not_post_no_turn_goes_on_and_who_asked_is_told(stage: Stage, word: str) -> None:
    name = f"closed{word.replace('_', '')}{next(RUNS)}"
    stage.gate.held[name] = asyncio.Event()
    room = stage.room(name, say("Looking.") + call("look", room=name))
    stage.ends.slack.script("chat.postMessage", [error(word)] * 20, lambda args: args["channel"] == room.channel)
    await room.ask()
    await failed(room)
    assert "takes no messages from me" in await direct(stage, room)
    assert room.every("card") == [] and calls_to(room, "chat.postMessage") == 1


@pytest.mark.parametrize("word", THREADS)
async def test_a_thread_that_takes_no_replies_ends_its_own_turn_and_no_other(stage: Stage, word: str) -> None:
    name = f"thread{word.replace('_', '')}"
    room = await stage.busy(name, say("Done."))
    stage.gate.held[f"{name}b"] = asyncio.Event()
    stage.ends.lines.put(f"{name}b", [say("Looking.") + call("look", room=f"{name}b")])
    other = await stage.ends.slack.say(room.channel, ENGINEER, f"<@U0PILOT> room {name}b: and here?", quiet=True)
    stage.ends.slack.script("chat.postMessage", [error(word)] * 20, lambda args: args.get("thread_ts") == other)
    raw = Raw(room)
    question = raw.message(f"<@U0PILOT> room {name}b: and here?", ONCALL, root=True, ts=other)
    await raw.event(question)
    await room.until(lambda: [row["reason"] for row in room.all("settles")] == ["failed"])
    assert "the thread was deleted or locked" in await direct(stage, room, ONCALL)
    assert [turn["state"] for turn in room.all("turns") if turn["asked_by"] == ENGINEER] == ["running"]
    stage.let(room)
    await room.until(lambda: [row["reason"] for row in room.all("settles")] == ["failed", "completed"])
    await room.until(lambda: len(room.every("answer")) == 1)


async def test_an_answer_whose_thread_was_deleted_does_not_land_in_the_channel(stage: Stage) -> None:
    room = await stage.busy("deletedroot", say("It was the gateway."))
    card = (await room.cards())[0]["ts"]
    stage.ends.slack.state.remove(stage.ends.slack.state.lookup(room.channel, str(room.root)), "an administrator")
    stage.let(room)
    await room.released()
    assert "It was the gateway" in await direct_words(stage, ENGINEER)
    in_channel = [shown(message) for message in stage.ends.slack.messages(room.channel)]
    assert not any("It was the gateway" in said for said in in_channel)
    assert "stop_step" not in str(stage.ends.slack.versions(room.channel, card)[-1])


async def direct_words(stage: Stage, user: str) -> str:
    channel = "D" + user[1:]
    await stage.ends.slack.until(
        lambda: any("It was the gateway" in shown(message) for message in stage.ends.slack.messages(channel)), 40
    )
    return "\n".join(shown(message) for message in stage.ends.slack.messages(channel))


async def test_a_person_who_has_left_the_channel_is_told_directly_and_the_work_goes_on(stage: Stage) -> None:
    room = await stage.busy("left", say("Done."))
    stage.ends.slack.script(
        "chat.postEphemeral", [error("user_not_in_channel")], lambda args: args["channel"] == room.channel
    )
    await Raw(room).click((await room.cards())[0], "retired_button", "x", ONCALL)
    await room.reply("hello there", "U0SECOND")
    await room.until(lambda: calls_to(room, "chat.postEphemeral") >= 2)
    stage.let(room)
    await ended(room, "completed")


async def test_when_we_are_removed_from_the_channel_the_turn_ends_and_other_people_may_leave(stage: Stage) -> None:
    room = await stage.busy("removed")
    await stage.ends.slack.kick(room.channel, "U0SECOND")
    await stage.ends.slack.quiet()
    assert [turn["state"] for turn in room.all("turns")] == ["running"]
    await stage.ends.slack.kick(room.channel, "U0PILOT")
    await failed(room)
    assert "takes no messages from me" in await direct(stage, room)


@pytest.mark.parametrize("word", ["message_not_found", "cant_update_message", "edit_window_closed"])
async def test_a_card_that_is_gone_is_edited_once_and_replaced_once(stage: Stage, word: str) -> None:
    room = await stage.busy(f"gone{word.replace('_', '')}", say("Done."))
    lost = (await room.cards())[0]["ts"]
    stage.ends.slack.script("chat.update", [error(word)] * 50, lambda args: args["ts"] == lost)
    await room.until(lambda: len(room.every("card")) == 2, 60)
    stage.let(room)
    assert await room.released() == ["completed"]
    edits = [made for made in stage.ends.slack.called("chat.update") if made.args["ts"] == lost]
    assert len(edits) == 1 and len(room.every("card")) == 2
    assert "Answered below" in str(room.own("card")[-1])


async def test_a_card_that_is_gone_when_the_turn_ends_is_let_go(stage: Stage) -> None:
    room = await stage.busy("gonelate", say("Done."))
    lost = (await room.cards())[0]["ts"]
    stage.ends.slack.script(
        "chat.update",
        [error("message_not_found")] * 50,
        lambda args: args["ts"] == lost and "Answered" in args["text"],
    )
    stage.let(room)
    assert await room.released() == ["completed"]
    assert len(room.every("card")) == 1 and len(room.every("answer")) == 1
    await room.until(lambda: stage.ends.slack.statuses(room.channel, str(room.root))[-1:] == ["active"])


@pytest.mark.parametrize(
    ("method", "word"),
    [("reactions.add", "missing_scope"), ("agents.sessions.setStatus", "feature_disabled")],
)
async def test_a_feature_that_is_missing_is_switched_off_with_one_hint(
    tmp_path: Path, method: str, word: str
) -> None:
    async with staged(tmp_path) as stage:
        refusal = error(word, needed="reactions:write", provided="chat:write")
        stage.ends.slack.script(method, [refusal] * 50)
        for number in range(3):
            room = stage.room(f"missing{number}", say("It was the gateway."))
            await room.ask()
            await ended(room, "completed")
            await room.until(lambda here=room: all(row["state"] != "waiting" for row in here.all("outbox")))
        assert len(stage.ends.slack.called(method)) == 1
        hints = stage.logged("slack_feature_off")
        assert len(hints) == 1 and "reinstall" in hints[0]["hint"] and hints[0]["error"] == word


async def test_an_installation_that_is_gone_is_said_loudly_and_slack_is_left_alone(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        room = await stage.busy("uninstalled", say("Done."))
        await stage.ends.slack.uninstall()
        await stage.ends.slack.until(lambda: len(stage.logged("slack_installation_revoked")) == 2)
        stage.let(room)
        await room.until(lambda: len(room.all("settles")) == 1)
        await stage.ends.slack.until(lambda: len(stage.logged("slack_installation_dead")) >= 1)
        told_ = stage.logged("slack_installation_dead")[0]
        assert told_["error"] == "account_inactive" and told_["level"] == "critical"
        answers = [made for made in stage.ends.slack.called("chat.postMessage") if "Done." in made.args["text"]]
        assert len(answers) == 1
        await room.until(
            lambda: [row["state"] for row in room.all("outbox") if row["kind"] == "answer"] == ["waiting"]
        )


async def test_somebody_whose_account_was_closed_may_nothing_from_then_on(stage: Stage) -> None:
    room = await stage.busy("closedaccount", say("Done."))
    person = stage.ends.slack.workspace.person("U0SECOND")
    assert person is not None
    raw = Raw(room)
    await raw.event(raw.message("hello", "U0SECOND"))
    person.deleted = True
    changed = {"id": "U0SECOND", "deleted": True}
    await raw.event({"type": "user_change", "user": changed, "event_ts": raw.ts()})
    await raw.event(raw.message("stop", "U0SECOND"))
    await told(room, "U0SECOND", "I did not stop")
    person.deleted = False
    await raw.event({"type": "user_change", "user": changed | {"deleted": False}, "event_ts": raw.ts()})
    stage.let(room)
    await ended(room, "completed")
    assert room.all("stops") == []
