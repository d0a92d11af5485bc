"""Story 10, redirections: one answer from the turn that goes on, none from the one that was cut."""

from __future__ import annotations

import asyncio

import pytest

from bot.playground.model import call, say
from tests.support.replay import Raw, Stage, ended, sent, signed
from tests.support.rooms import FarEnds, Room
from tests.support.story import STOP_BUTTONS
from tests.support.thread import ENGINEER, ONCALL, shown

pytest_plugins = ["tests.support.stage"]
pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_cut_turn_says_nothing_and_its_successor_answers_once_in_the_same_thread(stage: Stage) -> None:
    room = await stage.busy("tuesday", say("Tuesday."))
    await room.reply("no, next week's", ENGINEER)
    await ended(room, "steered", "completed")
    assert [shown(answer).count("Tuesday") > 0 for answer in room.every("answer")] == [True]
    assert all(post["thread_ts"] == room.root for post in room.every("answer") + room.every("card"))
    steered, completed = await room.settles()
    assert (steered["final_event_id"], steered["reason"]) == (None, "steered")
    assert completed["final_event_id"] is not None
    attempts = room.all("attempts")
    assert [(attempt["ended"], attempt["stamp"]) for attempt in attempts] == [("cut", "steer"), ("finished", None)]


async def test_the_old_card_is_over_when_the_new_one_works(stage: Stage) -> None:
    room = await stage.busy("cards", say("Looked at the database."))
    await room.reply("look at the db instead", ENGINEER)
    await ended(room, "steered", "completed")
    first, second = room.own("card")
    assert "Redirected by" in first["text"] and "continued below" in first["text"]
    assert not any(button in str(first["blocks"]) for button in STOP_BUTTONS)
    assert "Answered below" in second["text"]
    over = max(version["at"] for version in stage.ends.slack.versions(room.channel, first["ts"]))
    begun = [
        version["at"]
        for version in stage.ends.slack.versions(room.channel, second["ts"])
        if "Investigating" in version["message"]["text"]
    ]
    assert all(at >= over for at in begun)


CHATTER = {
    "person": "<@U0SECOND> can you join the call?",
    "named": "<@U0SECOND|sam> please look at db-9",
    "group": "<!subteam^S0ONCALL|@oncall> who has the pager?",
    "colon": "  <@U0SECOND>: and the queue?",
}


@pytest.mark.parametrize("word", CHATTER)
async def test_what_is_said_to_somebody_else_is_a_note_and_steers_nothing(stage: Stage, word: str) -> None:
    text = CHATTER[word]
    room = await stage.busy(word, say("Done."), say("Noted."))
    raw = Raw(room)
    said = raw.message(text)
    await raw.event(said)
    await signed(room, said["ts"], "memo")
    stage.let(room)
    await ended(room, "completed")
    assert len(room.requests()) == 2 and text.split(">")[-1].strip() not in sent(room)
    await room.reply("and now?", ENGINEER)
    await ended(room, "completed", "completed")
    assert text.split(">")[-1].strip() in sent(room)


async def test_what_begins_with_another_person_and_mentions_us_is_for_us(stage: Stage) -> None:
    room = await stage.busy("both", say("Here it is."))
    await room.reply("<@U0SECOND> <@U0PILOT> show us the gateway", ONCALL)
    await ended(room, "steered", "completed")


async def test_every_post_of_a_turn_is_in_the_thread_of_its_root(stage: Stage) -> None:
    room = await stage.busy("root", say("One.\n\n" + "word " * 3_000), say("Two."))
    raw = Raw(room)
    await raw.event(raw.mention(raw.message("<@U0PILOT> and now?")))
    await ended(room, "steered", "completed")
    await room.reply("once more", ENGINEER)
    await ended(room, "steered", "completed", "completed")
    posts = [call for call in stage.ends.slack.called("chat.postMessage") if call.args["channel"] == room.channel]
    assert len(posts) >= 6 and {call.args["thread_ts"] for call in posts} == {room.root}
    whispers = [
        call for call in stage.ends.slack.called("chat.postEphemeral") if call.args["channel"] == room.channel
    ]
    assert {call.args["thread_ts"] for call in whispers} <= {room.root}


async def test_an_answer_holds_its_own_words_and_nothing_of_the_one_before(stage: Stage) -> None:
    room = stage.room("twoanswers", say("ALPHA is the cause."), say("BRAVO is the cure."))
    await room.ask()
    await ended(room, "completed")
    await room.reply("and what helps?", ENGINEER)
    await ended(room, "completed", "completed")
    first, second = room.every("answer")
    assert "ALPHA" in shown(first) and "BRAVO" not in shown(first)
    assert "BRAVO" in shown(second) and "ALPHA" not in shown(second)


async def test_in_a_direct_message_no_mention_is_needed_and_everything_else_is_the_same(stage: Stage) -> None:
    room = Direct(stage.ends, "direct")
    stage.gate.held["direct"] = asyncio.Event()
    look = call("look", room="direct")
    stage.ends.lines.put("direct", [say("Looking.") + look, say("Again.") + look, say("Once more.") + look])
    room.root = await stage.ends.slack.say(room.channel, ENGINEER, "room direct: checkout answers 5xx")
    await room.until(lambda: stage.gate.began.count("direct") == 1)
    await room.reply("look at the gateway", ENGINEER)
    await room.until(lambda: stage.gate.began.count("direct") == 2)
    await room.reply("stop", ENGINEER)
    await ended(room, "steered", "stopped_step")
    await room.reply("go on", ENGINEER)
    await room.until(lambda: stage.gate.began.count("direct") == 3)
    await stage.ends.slack.say(room.channel, ENGINEER, "取消")
    await ended(room, "steered", "stopped_step", "cancelled")
    assert all(post["thread_ts"] == room.root for post in room.every("card"))


async def test_a_stop_beside_the_thread_means_the_only_turn_that_its_author_asked_for(stage: Stage) -> None:
    room = await stage.busy("beside")
    slack = stage.ends.slack
    await slack.say(room.channel, ONCALL, "<@U0PILOT> stop")
    listed = await slack.until(
        lambda: [shown(message) for message in slack.messages(room.channel) if "ephemeral" in message]
    )
    assert "Which one do you mean" in listed[0] and "stop_step" in listed[0]
    await slack.say(room.channel, ENGINEER, "<@U0PILOT> stop")
    await ended(room, "stopped_step")
    await slack.say(room.channel, ENGINEER, "stop the music, friends")
    await slack.quiet()
    assert len(room.all("turns")) == 1 and len(room.all("stops")) == 1


class Direct(Room):
    """The one thread of a direct message."""

    def __init__(self, ends: FarEnds, word: str) -> None:
        super().__init__(ends, word)
        self.channel = "D" + ENGINEER[1:]
