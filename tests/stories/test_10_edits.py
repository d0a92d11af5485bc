"""Story 10, edits and deletions: only what a person changed counts, and nothing is asked for twice."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bot.playground.model import call, say
from tests.support.replay import Raw, Stage, ended, sent, stored, told
from tests.support.thread import ENGINEER, GUEST, ONCALL

pytest_plugins = ["tests.support.stage"]
pytestmark = pytest.mark.asyncio(loop_scope="module")

FILES = "https://files.slack.test/"


@pytest.mark.parametrize(
    "change",
    [
        {"attachments": [{"id": 1, "from_url": "https://graphs.example/d/1", "title": "Latency of checkout"}]},
        {"blocks": [{"type": "rich_text", "elements": []}]},
        {"reply_count": 1, "latest_reply": "1790000003.000100"},
        {"is_starred": True, "pinned_to": ["C0UNFURL"]},
        {"edited": {"user": ENGINEER, "ts": "1790000003.000000"}},
    ],
    ids=["unfurl", "blocks", "replies", "pinned", "nothing"],
)
async def test_a_change_of_anything_but_text_and_files_is_no_edit(
    stage: Stage, change: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    room = await stage.busy(f"same{request.node.callspec.id}", say("Latency is high."))
    raw = Raw(room)
    question = raw.message(f"<@U0PILOT> room {room.word}: checkout answers 5xx, what is going on?", ts=room.root)
    before = len(room.all("messages"))
    await raw.event(raw.changed(question, **change))
    assert len(room.all("messages")) == before
    stage.let(room)
    await ended(room, "completed")
    assert len(room.every("answer")) == 1 and "Latency of checkout" not in sent(room)


async def test_a_preview_of_a_link_starts_nothing_in_an_idle_thread_either(stage: Stage) -> None:
    room = stage.room("preview", say("Seen."))
    await room.ask("see https://graphs.example/d/1")
    await ended(room, "completed")
    await stage.ends.slack.unfurl(room.channel, str(room.root))
    await stage.ends.slack.quiet()
    await ended(room, "completed")
    assert len(room.requests()) == 1 and room.whispers(ENGINEER) == []


async def test_an_edit_of_an_old_question_starts_nothing_and_says_what_to_do(stage: Stage) -> None:
    room = stage.room("old", say("web is up."))
    await room.ask("status web")
    await ended(room, "completed")
    await stage.ends.slack.edit(room.channel, str(room.root), ENGINEER, "<@U0PILOT> room old: restart web")
    await told(room, ENGINEER, "Please send it as a new message")
    await ended(room, "completed")
    assert len(room.requests()) == 1 and "restart web" not in sent(room)


async def test_an_edit_that_mentions_us_where_we_never_were_starts_nothing(stage: Stage) -> None:
    room = stage.room("never")
    raw = Raw(room)
    said = raw.message("status web", root=True)
    room.root = said["ts"]
    edited = {"user": ENGINEER, "ts": raw.ts()}
    await raw.event(raw.changed(said, text="<@U0PILOT> room never: restart web", edited=edited))
    text = "<@U0PILOT> room never: restart web"
    await raw.event(raw.mention(said) | {"text": text, "edited": edited, "event_ts": raw.ts()})
    await stage.ends.slack.quiet()
    assert room.all("turns") == [] and room.requests() == []


async def test_a_reply_edited_into_a_stop_is_a_stop_and_never_reaches_the_model(stage: Stage) -> None:
    room = await stage.busy("afterthought")
    reply = await room.reply("; hm", ONCALL)
    await stage.ends.slack.edit(room.channel, reply, ONCALL, "stop")
    await ended(room, "stopped_step")
    assert f"Stopped by <@{ONCALL}>" in await room.card()
    assert "stop" not in sent(room) and "hm" not in sent(room)


async def test_a_steer_edited_into_a_cancel_before_it_is_read_cancels_and_is_not_read(stage: Stage) -> None:
    room = await stage.busy("turncoat")
    raw = Raw(room)
    reply = raw.message("look at the cache", ONCALL)
    await raw.event(reply)
    await raw.event(raw.changed(reply, text="取消", edited={"user": ONCALL, "ts": raw.ts()}))
    await ended(room, "cancelled")
    assert "cache" not in sent(room) + stored(room)


async def test_a_stop_by_edit_of_a_guest_is_refused(stage: Stage) -> None:
    room = await stage.busy("guestedit", say("Done."))
    reply = await room.reply("hello", GUEST)
    await stage.ends.slack.edit(room.channel, reply, GUEST, "<@U0PILOT> stop")
    await told(room, GUEST, "I did not stop")
    stage.let(room)
    await ended(room, "completed")


async def test_a_stop_that_is_edited_is_not_a_second_one(stage: Stage) -> None:
    room = await stage.busy("twice", say("On again."), say("And again."))
    stop = await room.reply("stop")
    await ended(room, "stopped_step")
    await room.reply("go on")
    await ended(room, "stopped_step", "completed")
    await stage.ends.slack.edit(room.channel, stop, ONCALL, "stop!")
    await stage.ends.slack.quiet()
    assert len(room.all("stops")) == 1 and len(room.all("turns")) == 2


@pytest.mark.parametrize(
    "missing", [{"user": None}, {"text": None}, {"ts": None}, {"user": None, "bot_id": "B0OTHER"}]
)
async def test_an_edit_without_this_or_that_is_acknowledged_and_nothing_more(
    stage: Stage, missing: dict[str, Any]
) -> None:
    room = stage.room("missing")
    raw = Raw(room)
    said = raw.message("x", root=True)
    await raw.event(raw.changed(said, **missing))
    await raw.event({key: value for key, value in raw.changed(said).items() if key != "previous_message"})
    await raw.event({key: value for key, value in raw.changed(said).items() if key != "message"})
    await raw.event(raw.deleted({"ts": said["ts"]}))
    assert room.all("turns") == []


async def test_deleting_the_question_of_a_running_turn_cancels_it_like_its_author(stage: Stage) -> None:
    room = await stage.busy("tombstone")
    await stage.ends.slack.delete(room.channel, str(room.root), ENGINEER)
    await ended(room, "cancelled")
    assert "tombstone" in str(room.messages()[0].get("subtype"))
    assert f"Stopped by <@{ENGINEER}>" in await room.card()
    assert "This message was deleted" not in sent(room) + stored(room)


async def test_a_tombstone_as_slack_writes_it_is_no_text_for_anybody(stage: Stage) -> None:
    room = await stage.busy("grave")
    raw = Raw(room)
    question = raw.message("<@U0PILOT> room grave: check", ts=room.root, reply_count=3)
    grave = {"subtype": "tombstone", "user": "USLACKBOT", "text": "This message was deleted.", "hidden": True}
    await raw.event(raw.changed(question, **grave))
    await raw.event(raw.deleted(question))
    await ended(room, "cancelled")
    assert len(room.all("stops")) == 1 and "deleted" not in sent(room)


async def test_a_steer_deleted_before_it_is_read_is_withdrawn(stage: Stage) -> None:
    room = await stage.busy("withdrawn", say("Only what was asked."))
    raw = Raw(room)
    steer = raw.message("also delete the old pods")
    await stage.app.ledger.pause(True, "an operator")
    await raw.event(steer)
    await raw.event(raw.deleted(steer))
    row = next(row for row in room.all("messages") if row["slack_ts"] == steer["ts"])
    assert row["state"] == "withdrawn"
    await stage.app.ledger.pause(False, "an operator")
    stage.let(room)
    await room.until(lambda: all(turn["state"] == "settled" for turn in room.all("turns")))
    assert "delete the old pods" not in sent(room) + stored(room)


async def test_a_steer_deleted_before_its_turn_began_starts_nothing(stage: Stage) -> None:
    room = await stage.busy("before", say("What is left to say."))
    await stage.app.ledger.pause(True, "an operator")
    reply = await room.reply("also delete the old pods")
    await room.until(lambda: len(room.all("turns")) == 2)
    await stage.ends.slack.delete(room.channel, reply, ONCALL)
    await stage.ends.slack.quiet()
    await stage.app.ledger.pause(False, "an operator")
    await ended(room, "steered", "cancelled")
    assert len(room.requests()) == 1 and "old pods" not in sent(room) + stored(room)


async def test_a_turn_that_goes_by_one_reply_ends_when_that_is_deleted(stage: Stage) -> None:
    room = await stage.busy("alone", call("look", room="alone"))
    raw = Raw(room)
    steer = raw.message("look at the old pods instead")
    await raw.event(steer)
    await room.until(lambda: stage.gate.began.count("alone") == 2)
    await raw.event(raw.deleted(steer))
    await ended(room, "steered", "cancelled")
    assert f"Stopped by <@{ENGINEER}>" in await room.card()


async def test_one_of_several_words_deleted_after_they_were_read_is_said_on_the_card(stage: Stage) -> None:
    room = await stage.busy("several", call("look", room="several"), say("Both."))
    raw = Raw(room)
    pods, queue = raw.message("look at the old pods too"), raw.message("and at the queue", ONCALL)
    await asyncio.gather(raw.event(pods), raw.event(queue))
    await room.until(lambda: stage.gate.began.count("several") == 2)
    await room.cards(at_least=2)
    await raw.event(raw.deleted(pods))
    await room.until(lambda: "1 message deleted after I had read it" in str(room.own("card")[-1]))
    assert room.all("stops") == []
    stage.let(room)
    await ended(room, "steered", "completed")


async def test_a_note_that_is_deleted_is_never_read(stage: Stage) -> None:
    room = await stage.busy("note", say("First."), say("Second."))
    note = await room.reply("<@U0ONCALL> look at db-9, I think", ENGINEER)
    await room.until(lambda: "memo" in room.signs(note))
    await stage.ends.slack.delete(room.channel, note, ENGINEER)
    await room.until(lambda: any(row["state"] == "withdrawn" for row in room.all("messages")))
    stage.let(room)
    await ended(room, "completed")
    await room.reply("and now?", ENGINEER)
    await ended(room, "completed", "completed")
    assert "db-9" not in sent(room)


async def test_a_card_that_a_person_deletes_is_not_edited_again(stage: Stage) -> None:
    room = await stage.busy("ours", say("Done."))
    first = (await room.cards())[0]["ts"]
    await stage.ends.slack.delete(room.channel, first, ONCALL)
    await room.until(lambda: len(room.every("card")) == 2)
    edits = [call for call in stage.ends.slack.called("chat.update") if call.args.get("ts") == first]
    assert len(edits) <= 1
    stage.let(room)
    await ended(room, "completed")
    again = [call for call in stage.ends.slack.called("chat.update") if call.args.get("ts") == first]
    assert again == edits and len(room.every("card")) == 2
    assert "Answered below" in await room.card()


async def test_an_edit_before_it_is_read_replaces_the_words_and_the_files(stage: Stage) -> None:
    room = await stage.busy("replaced", say("First."), say("Then."))
    raw = Raw(room)
    stage.ends.slack.host_file("FNEW", "new.log", b"the new log", "text/plain")
    later = raw.message("+ and read the old log", ONCALL)
    await raw.event(later)
    new = {"id": "FNEW", "name": "new.log", "mimetype": "text/plain", "size": 11, "url_private": f"{FILES}FNEW"}
    edited = {"user": ONCALL, "ts": raw.ts()}
    await raw.event(raw.changed(later, text="+ and read the new log", files=[new], edited=edited))
    stage.let(room)
    await ended(room, "completed", "completed")
    assert "old log" not in sent(room) and "read the new log" in sent(room) and "the new log" in sent(room)
