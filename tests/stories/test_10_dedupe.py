"""Story 10, deliveries: however often and in whatever order Slack sends something, its effect is one, never none."""

from __future__ import annotations

import asyncio

import pytest

from bot.playground.model import say
from tests.support.replay import Raw, Stage, ended, sent, signed, told
from tests.support.thread import ENGINEER, ONCALL

pytest_plugins = ["tests.support.stage"]
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize("first", ["message", "mention"])
async def test_the_two_events_of_one_mention_are_one_steer_with_one_receipt(stage: Stage, first: str) -> None:
    room = await stage.busy(f"pair{first}", say("Redis is fine."))
    raw = Raw(room)
    said = raw.message("<@U0PILOT> also check redis")
    pair = [said, raw.mention(said)]
    for event in pair if first == "message" else reversed(pair):
        await raw.event(event)
    await ended(room, "steered", "completed")
    assert [row["disposition"] for row in room.all("messages")] == ["start", "steer"]
    await signed(room, said["ts"], "leftwards_arrow_with_hook")
    assert sent(room).count("also check redis") == 1
    assert room.whispers(ENGINEER) == []
    assert len(stage.logged("duplicate")) >= 1 and all(line["level"] == "debug" for line in stage.logged("duplicate"))


async def test_both_events_at_the_same_moment_start_one_turn(stage: Stage) -> None:
    room = stage.room("moment", say("All well."))
    raw = Raw(room)
    said = raw.message("<@U0PILOT> room moment: status?", root=True)
    room.root = said["ts"]
    await asyncio.gather(*(raw.event(event) for event in [said, raw.mention(said)] * 3))
    await ended(room, "completed")
    assert len(room.all("turns")) == 1 and len(room.every("answer")) == 1 and len(room.every("card")) == 1


async def test_eleven_events_of_one_message_with_ids_of_their_own_are_one_turn(stage: Stage) -> None:
    room = stage.room("eleven", say("All well."))
    raw = Raw(room)
    said = raw.message("<@U0PILOT> room eleven: status?", root=True)
    room.root = said["ts"]
    for _ in range(11):
        await raw.event(said)
    await ended(room, "completed")
    assert len(room.all("messages")) == len(room.requests()) == len(room.every("answer")) == 1


@pytest.mark.parametrize("attempt", [1, 2, 3])
async def test_a_retry_of_something_that_never_arrived_is_a_first_delivery(stage: Stage, attempt: int) -> None:
    room = stage.room(f"retry{attempt}", say("It is up."))
    raw = Raw(room)
    said = raw.message(f"<@U0PILOT> room {room.word}: is the api down?", root=True)
    room.root = said["ts"]
    await raw.event(said, attempt=attempt, reason="timeout")
    await ended(room, "completed")
    assert len(room.every("answer")) == 1


async def test_a_retry_of_something_that_arrived_does_nothing(stage: Stage) -> None:
    room = await stage.busy("again", say("Looked there."))
    raw = Raw(room)
    steer, stop = raw.message("look at the gateway"), raw.message("stop")
    envelopes = [raw.envelope(steer), raw.envelope(stop)]
    for envelope in envelopes:
        await stage.ends.slack.inject(envelope)
    await ended(room, "stopped_step")
    for envelope in envelopes:
        again = await stage.ends.slack.inject(envelope | {"retry_attempt": 1, "retry_reason": "timeout"})
        assert again.acknowledged
    assert len(room.all("stops")) == 1 and len(room.all("turns")) == 1
    assert room.whispers(ENGINEER) == []


async def test_events_and_buttons_that_nobody_knows_are_acknowledged_and_a_press_is_answered(stage: Stage) -> None:
    room = await stage.busy("unknown", say("Done."))
    raw, card = Raw(room), (await room.cards())[0]
    before = len(room.all("messages"))
    about_card = {"type": "message", "channel": room.channel, "ts": card["ts"]}
    for event in (
        {"type": "reaction_added", "user": ENGINEER, "reaction": "eyes", "item": about_card, "item_user": "U0PILOT"},
        {"type": "reaction_removed", "user": ENGINEER, "reaction": "octagonal_sign", "item": about_card},
        {"type": "member_joined_channel", "user": "U0PILOT", "channel": room.channel},
        {"type": "pin_added", "user": ENGINEER, "channel_id": room.channel},
        {"type": "an_event_of_next_year", "channel": room.channel, "user": ENGINEER, "thing": [1, {"a": None}]},
        {"type": "team_rename", "name": "New name"},
    ):
        await raw.event(event | {"event_ts": raw.ts()})
    await raw.click(card, "retired_button", "", ONCALL)
    assert "expired" in await told(room, ONCALL, "nothing was changed")
    assert len(room.all("messages")) == before
    assert all(line["level"] == "debug" for line in stage.logged("event_ignored"))
    stage.let(room)
    await ended(room, "completed")


async def test_whatever_kind_of_interaction_arrives_is_acknowledged(stage: Stage) -> None:
    raw = Raw(stage.room("kinds"))
    person = {"user": {"id": ENGINEER}, "team": {"id": "T0LOCAL"}, "trigger_id": "1.2.3"}
    view = {"id": "V1", "type": "modal", "callback_id": "gone", "state": {"values": {}}, "private_metadata": ""}
    message = {"type": "message", "text": "x", "ts": "1790000000.000100"}
    for kind, payload in (
        ("interactive", {"type": "view_submission", "view": view}),
        ("interactive", {"type": "view_closed", "view": view, "is_cleared": False}),
        ("interactive", {"type": "shortcut", "callback_id": "gone"}),
        (
            "interactive",
            {"type": "message_action", "callback_id": "gone", "message": message, "channel": {"id": "C1"}},
        ),
        ("interactive", {"type": "block_suggestion", "action_id": "a", "block_id": "b", "value": "x"}),
        ("slash_commands", {"command": "/gone", "text": "", "channel_id": "C0RANDOM", "user_id": ENGINEER}),
    ):
        await raw.interaction(person | payload, kind)


async def test_two_questions_at_once_make_one_running_turn(stage: Stage) -> None:
    room = stage.room("atonce", then=[say("One."), say("Both."), say("Both again.")])
    raw = Raw(room)
    room.root = await stage.ends.slack.say(room.channel, ENGINEER, "room atonce: 5xx everywhere", quiet=True)
    first, second = raw.message("<@U0PILOT> room atonce: check a"), raw.message("<@U0PILOT> check b", ONCALL)
    await asyncio.gather(raw.event(raw.mention(first)), raw.event(raw.mention(second)))
    await room.answers()
    await room.until(lambda: all(turn["state"] == "settled" for turn in room.all("turns")))
    consumed = {row["text"]: row["turn_id"] for row in room.all("messages")}
    assert all(consumed.values()) and {row["state"] for row in room.all("messages")} == {"consumed"}
    reasons = [settle["reason"] for settle in await room.settles()]
    assert set(reasons) <= {"steered", "completed"} and reasons[-1] == "completed"
    assert sent(room).count("check b") >= 1


async def test_every_steer_has_one_outcome_and_a_receipt_that_says_it(stage: Stage) -> None:
    room = await stage.busy("outcome", say("One."), say("Two."), say("Three."))
    raw = Raw(room)
    stage.let(room)
    outcomes = {"steer": "leftwards_arrow_with_hook", "start": "eyes"}
    for number in range(3):
        reply = raw.message(f"look at region {number}")
        await raw.event(reply)
        row = next(row for row in room.all("messages") if row["slack_ts"] == reply["ts"])
        await signed(room, reply["ts"], outcomes[row["disposition"]])
    await room.until(lambda: all(turn["state"] == "settled" for turn in room.all("turns")))
    assert {row["state"] for row in room.all("messages")} == {"consumed"}
    for number in range(3):
        assert sent(room).count(f"look at region {number}") >= 1
