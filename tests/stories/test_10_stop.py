"""Story 10, stops: whatever form a stop takes, it is heard at once, kept from the model, and ends what it should."""

from __future__ import annotations

import asyncio
import time

import pytest

from bot.playground.model import say
from tests.support.replay import AGENT, PARTNER, Raw, Stage, ended, sent, signed, stored, told
from tests.support.thread import ENGINEER, GUEST, ONCALL

pytest_plugins = ["tests.support.stage"]
pytestmark = pytest.mark.asyncio(loop_scope="module")

HEARD_S = 20.0
"""A generous limit for what takes a fraction of a second. The call that is stopped would take 60."""

STEP = {
    "slash": "/halt",
    "bare": "stop",
    "loud": "<@U0PILOT> STOP!!",
    "wide": "ＳＴＯＰ！",
    "chinese": "先停一下",
    "brake": "刹车",
    "polite": "please stop, thanks",
    "japanese": "止めて",
    "korean": "멈춰주세요",
    "german": "bitte anhalten!",
    "spanish": "detente por favor",
    "russian": "стоп",
    "sign": ":octagonal_sign:",
}
TASK = {"cancelled": "/cancel", "aborted": "<@U0PILOT>: abort", "quxiao": "取消吧", "abbruch": "abbrechen bitte"}
WORK = {
    "canary": "please stop the canary rollout of api",
    "dont": "don't stop",
    "quoted": "> stop\nwhat did he mean by that?",
    "escaped": "&gt; stop\nno, go on",
    "coded": "`stop` is what the log says",
    "fenced": "```\nstop\n```\nthat is the last line of the log",
    "substring": "别停一下子就好",
    "question": "stop?",
    "halfway": "we should not stop halfway",
}


@pytest.mark.parametrize("word", STEP)
async def test_a_stop_word_ends_the_step_and_reaches_no_model(stage: Stage, word: str) -> None:
    room = await stage.busy(word)
    stop = Raw(room).message(STEP[word])
    began = time.monotonic()
    await Raw(room).event(stop)
    await ended(room, "stopped_step")
    assert time.monotonic() - began < HEARD_S
    await signed(room, stop["ts"], "octagonal_sign")
    assert word in stage.gate.cancelled
    assert f"Stopped by <@{ENGINEER}> at step 1" in await room.card()
    assert STEP[word] not in sent(room) + stored(room)
    assert len(room.requests()) == 1


@pytest.mark.parametrize("word", TASK)
async def test_a_cancel_word_ends_the_task(stage: Stage, word: str) -> None:
    room = await stage.busy(word)
    await Raw(room).event(Raw(room).message(TASK[word], ONCALL))
    await ended(room, "cancelled")
    assert "The task is over" in await room.card() and f"<@{ONCALL}>" in await room.card()
    assert len(room.requests()) == 1


@pytest.mark.parametrize("word", WORK)
async def test_a_stop_word_somewhere_in_a_text_is_work_and_not_a_stop(stage: Stage, word: str) -> None:
    room = await stage.busy(word, say("As you say."))
    await Raw(room).event(Raw(room).message(WORK[word]))
    await ended(room, "steered", "completed")
    assert room.all("stops") == []
    assert len(room.requests()) == 2


async def test_after_a_stop_nothing_waits_and_nothing_starts_by_itself(stage: Stage) -> None:
    room = await stage.busy("nothing", say("And now that."))
    await Raw(room).event(Raw(room).message("+ then check the queue", ONCALL))
    await Raw(room).event(Raw(room).message("stop"))
    await ended(room, "stopped_step")
    waiting = [row for row in room.all("messages") if row["state"] == "waiting"]
    assert [row["disposition"] for row in waiting] == ["note"]
    assert len(room.all("turns")) == 1
    await room.reply("go on, then")
    await ended(room, "stopped_step", "completed")
    assert "then check the queue" in sent(room)


async def test_a_stop_word_needs_no_lock_that_the_turn_holds(stage: Stage) -> None:
    room = await stage.busy("locked")
    delivery = await Raw(room).event(Raw(room).message("停一下", ONCALL))
    assert delivery.took_s < HEARD_S
    await ended(room, "stopped_step")


async def test_the_native_stop_cancels_the_task_and_takes_the_indicator_back(stage: Stage) -> None:
    room = await stage.busy("native")
    await room.until(lambda: stage.ends.slack.statuses(room.channel, room.root) == ["processing"])
    raw = Raw(room)
    stop = {
        "type": "agent_session_stopped",
        "channel": room.channel,
        "thread_ts": room.root,
        "user": ENGINEER,
        "streaming_message_ts": [raw.ts()],
        "event_ts": raw.ts(),
    }
    await raw.event(stop)
    await ended(room, "cancelled")
    await room.until(lambda: len(stage.ends.slack.statuses(room.channel, room.root)) > 1)
    assert stage.ends.slack.statuses(room.channel, room.root) == ["processing", "active"]
    assert stage.ends.slack.called("chat.stopStream") == []
    assert f"Stopped by <@{ENGINEER}>" in await room.card()


async def test_a_native_stop_by_a_guest_is_refused_and_the_work_goes_on(stage: Stage) -> None:
    room = await stage.busy("guestnative", say("Done."))
    await stage.ends.slack.native_stop(room.channel, str(room.root), GUEST)
    assert "only members of this workspace" in await told(room, GUEST, "I did not stop")
    stage.let(room)
    await ended(room, "completed")


async def test_a_stop_that_comes_in_the_first_moments_keeps_the_turn_from_starting(stage: Stage) -> None:
    room = stage.room("early")
    raw = Raw(room)
    question = raw.message("<@U0PILOT> room early: investigate", root=True)
    room.root = question["ts"]
    await stage.app.ledger.pause(True, "an operator")
    await raw.event(raw.mention(question))
    assert [turn["state"] for turn in room.all("turns")] == ["waiting"]
    stop = {"type": "agent_session_stopped", "channel": room.channel, "thread_ts": room.root, "user": ENGINEER}
    await raw.event(stop | {"streaming_message_ts": [], "event_ts": raw.ts()})
    await stage.app.ledger.pause(False, "an operator")
    await ended(room, "cancelled")
    assert room.requests() == []


async def test_a_stop_that_comes_before_its_question_is_kept_for_it_and_said(stage: Stage) -> None:
    room = stage.room("overtaken")
    raw = Raw(room)
    room.root = await stage.ends.slack.say(room.channel, ENGINEER, "the disk of db-1 is full", quiet=True)
    question, stop = raw.message("<@U0PILOT> room overtaken: check the disk"), raw.message("stop")
    await raw.event(stop)
    await raw.event(raw.mention(question))
    assert "Stopped before it started" in await told(room, ENGINEER, "Stopped")
    await signed(room, question["ts"], "octagonal_sign")
    assert [row["state"] for row in room.all("messages") if row["source"] == "mention"] == ["stopped"]
    assert room.all("turns") == [] and room.requests() == []


@pytest.mark.parametrize("where", ["card", "question"])
async def test_a_stop_sign_on_the_card_or_the_question_is_a_stop(stage: Stage, where: str) -> None:
    room = await stage.busy(f"sign{where}")
    target = (await room.cards())[0]["ts"] if where == "card" else str(room.root)
    await stage.ends.slack.react(room.channel, target, ONCALL, "octagonal_sign")
    await ended(room, "stopped_step")
    assert f"Stopped by <@{ONCALL}>" in await room.card()


async def test_a_stop_sign_that_comes_before_its_reply_stops_the_reply_and_what_runs(stage: Stage) -> None:
    room = await stage.busy("signsoon")
    raw = Raw(room)
    reply = raw.message("look at db-2 instead")
    await raw.event(raw.reacted(reply, ONCALL, "octagonal_sign"))
    await raw.event(reply)
    await ended(room, "stopped_step")
    assert f"Stopped by <@{ONCALL}>" in await room.card()
    await signed(room, reply["ts"], "octagonal_sign")
    assert [row["state"] for row in room.all("messages") if row["slack_ts"] == reply["ts"]] == ["stopped"]
    assert "db-2" not in sent(room)


async def test_a_stop_sign_by_a_guest_changes_nothing(stage: Stage) -> None:
    room = await stage.busy("signguest", say("Done."))
    await stage.ends.slack.react(room.channel, (await room.cards())[0]["ts"], GUEST, "octagonal_sign")
    await told(room, GUEST, "I did not stop")
    stage.let(room)
    await ended(room, "completed")


async def test_a_button_that_stops_is_no_failure(stage: Stage) -> None:
    room = await stage.busy("neutral")
    await room.press("cancel_task", ENGINEER)
    await ended(room, "cancelled")
    said = await room.card()
    assert f"Stopped by <@{ENGINEER}> at step 1" in said and "cancelled, nothing was read" in said
    assert "failed" not in said and "retry" not in said and "✗" not in said
    stop = room.all("stops")[0]
    settle = (await room.settles())[0]
    assert stop["turn_id"] == settle["turn_id"] == room.all("cards")[0]["turn_id"]
    assert room.every("answer") == []


@pytest.mark.parametrize("button", ["stop_step", "cancel_task"])
async def test_a_guest_who_presses_a_button_is_told_who_may(stage: Stage, button: str) -> None:
    room = await stage.busy(f"guest{button.replace('_', '')}", say("Done."))
    await room.press(button, GUEST)
    assert "only members of this workspace (not guests) can stop me" in await told(room, GUEST, "I did not stop")
    refused = [row for row in room.all("messages") if row["state"] == "refused"]
    assert [(row["author"], row["policy_row"]) for row in refused] == [(GUEST, "may_not_stop")]
    stage.let(room)
    await ended(room, "completed")


async def test_fifty_clicks_are_one_cancel_and_one_card(stage: Stage) -> None:
    room = await stage.busy("fifty")
    raw, card = Raw(room), (await room.cards())[0]
    turn = room.all("turns")[0]["id"]
    ts = int(raw.ts().split(".")[0]) + 1
    await asyncio.gather(
        *(raw.click(card, "stop_step", turn, ts=f"{ts}.{number * 20_000:06d}") for number in range(50))
    )
    await ended(room, "stopped_step")
    assert len(room.all("stops")) == 1
    assert [version["what"] for version in stage.ends.slack.versions(room.channel, card["ts"])].count("edited") <= 3


async def test_somebody_of_another_company_cannot_stop_and_is_told(stage: Stage) -> None:
    room = await stage.busy("outsider", say("Done."))
    raw = Raw(room)
    said = raw.message("stop", PARTNER, user_team="T0ELSEWHERE")
    await raw.event(said, is_ext_shared_channel=True)
    await told(room, PARTNER, "I did not stop")
    stage.let(room)
    await ended(room, "completed")
    assert "stop" not in sent(room) and room.all("stops") == []


async def test_the_stop_word_of_another_program_is_ignored(stage: Stage) -> None:
    room = await stage.busy("program", say("Done."))
    raw = Raw(room)
    await raw.event(raw.message("stop", None, subtype="bot_message", bot_id="B0OTHER"))
    await raw.event(raw.message("stop", AGENT, bot_id="B0OTHER", app_id="A0OTHER"))
    stage.let(room)
    await ended(room, "completed")
    assert room.all("stops") == [] and room.whispers(AGENT) == []


async def test_a_stop_never_reaches_what_was_asked_after_it(stage: Stage) -> None:
    room = await stage.busy("later", say("The second answer."))
    raw = Raw(room)
    late = raw.message("stop")
    await room.reply("<@U0PILOT> look at the queue instead", ENGINEER)
    await ended(room, "steered", "completed")
    await raw.event(late)
    await ended(room, "steered", "completed")
    assert "The second answer." in str(room.every("answer"))
