"""Story 4: every way to stop. Nothing starts after it, the card says who and where, and stop words are never said
to the model."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from bot.playground.model import MIDDLE, call, hold_until, say
from core.messages import ts_order
from core.ports import Tier
from tests.support.story import (
    QUICK,
    HeldTool,
    called,
    holds,
    noted,
    quick,
    said_in_slack,
    saying,
    sent,
    signed,
    taken,
    whispered,
    words_of,
    writing,
)
from tests.support.thread import ENGINEER, GUEST, NEWCOMER, ONCALL, Thread, in_town

Way = Callable[[Thread], Awaitable[object]]
BATCH = say("Looking.") + call("metrics", q="up") + call("slow", q="web-3")
GO_ON = "look at eu-west instead"


async def by_reaction_on_the_card(thread: Thread) -> None:
    await thread.slack.react(thread.channel, (await thread.cards())[0]["ts"], ONCALL, "octagonal_sign")


async def by_reaction_on_the_question(thread: Thread) -> None:
    assert thread.root is not None
    await thread.slack.react(thread.channel, thread.root, ONCALL, "octagonal_sign")


async def by_native_stop(thread: Thread) -> None:
    assert thread.root is not None
    await thread.slack.native_stop(thread.channel, thread.root, ONCALL)


STEP_WAYS: dict[str, Way] = {
    "the button": lambda thread: thread.press("stop_step"),
    "stop, wrong cluster": lambda thread: thread.reply("stop, wrong cluster"),
    "刹车": lambda thread: thread.reply("刹车"),
    "刹车, and more": lambda thread: thread.reply("刹车，先停一下，我还没确认范围"),
    "the sign on the card": by_reaction_on_the_card,
    "the sign on the question": by_reaction_on_the_question,
}
TASK_WAYS: dict[str, Way] = {
    "the button": lambda thread: thread.press("cancel_task"),
    "the native Stop": by_native_stop,
    "取消": lambda thread: thread.reply("取消"),
    "a mention": lambda thread: thread.reply("<@U0PILOT> Cancel!"),
}
SAID = ["stop, wrong", "刹车", "停", "取消", "Cancel!"]
"""What people wrote to stop: never in a request, whatever else they said with it."""


@pytest.mark.parametrize("way", STEP_WAYS)
async def test_a_stop_of_the_step_ends_it_and_the_next_reply_goes_on_from_there(tmp_path: Path, way: str) -> None:
    slow = HeldTool("slow")
    script = [BATCH, say("From there on.")]
    async with in_town(tmp_path, limits=QUICK, script=script, tools=[quick("metrics"), slow]) as thread:
        await thread.ask()
        await called(thread, "metrics", "ok")
        await called(thread, "slow", "open")
        await STEP_WAYS[way](thread)
        await holds(thread, ["stopped_step"])
        assert len(thread.requests()) == 1 and (slow.began, slow.cancelled, slow.ended) == (1, 1, 0)
        settle = (await thread.settles())[0]
        assert (settle["ended_by"], settle["step"], settle["final_event_id"]) == (ONCALL, 1, None)
        card = thread.own("card")[0]
        assert "Stopped by <@U0ONCALL> at step 1. Reply here to go on from there." in card["text"]
        assert "web-3 (cancelled, nothing was read" in card["text"] and "✕" not in card["text"]
        assert [row["stamp"] for row in await thread.rows("attempts")] == ["stop"]
        assert thread.own("answer") == [] and thread.slack.statuses(thread.channel, str(thread.root))[-1] == "active"

        await thread.reply(GO_ON)
        await holds(thread, ["stopped_step", "completed"], never_sent=SAID)
        words = words_of(thread.requests()[1])
        assert words[0] == '(result) metrics says {"q": "up"}'
        assert "because a person stopped this step. Nothing was read." in words[1]
        assert words[-1] == f"<@{ONCALL}>: {GO_ON}"
        kept = {"stop, wrong cluster": "wrong cluster", "刹车, and more": "我还没确认范围"}
        notes = [noted(ONCALL, kept[way])] if way in kept else []
        assert words[2:-1] == notes


@pytest.mark.parametrize("way", TASK_WAYS)
async def test_a_cancel_ends_the_task_with_all_that_was_queued(tmp_path: Path, way: str) -> None:
    slow = HeldTool("slow")
    async with in_town(tmp_path, limits=QUICK, script=[BATCH], tools=[quick("metrics"), slow]) as thread:
        await thread.ask()
        await called(thread, "slow", "open")
        queued = await thread.reply("+ also check the db")
        assert (await taken(thread, queued))["disposition"] == "queue"
        await TASK_WAYS[way](thread)
        await holds(thread, ["cancelled"], never_sent=SAID)
        assert len(thread.requests()) == 1 and (slow.began, slow.cancelled) == (1, 1)
        card = thread.own("card")[0]["text"]
        assert "Stopped by <@U0ONCALL> at step 1. The task is over; mention me here to start again." in card
        assert (await taken(thread, queued))["state"] == "stopped"
        await signed(thread, queued, "octagonal_sign")
        assert len(await thread.rows("stops")) == 1
        assert thread.slack.statuses(thread.channel, str(thread.root))[-1] == "active"


async def test_a_second_stop_after_3_s_cancels_and_one_sooner_is_the_same_stop(tmp_path: Path) -> None:
    restart = HeldTool("restart", Tier.WRITE)
    script = [call("restart", deployment="checkout") + call("scale", replicas=5)]
    tools = [restart, quick("scale", Tier.WRITE)]
    async with in_town(tmp_path, limits=QUICK, script=script, tools=tools) as thread:
        await thread.ask()
        await called(thread, "restart", "intent")
        queued = await thread.reply("+ also check the db")
        first = await thread.reply("stop")
        await taken(thread, first)
        said = await saying(thread, "Stopping this step for <@U0ONCALL>.")
        assert "Nothing new starts; running calls are ending." in said
        drawn = str(thread.own("card")[0]["blocks"])
        assert "stop_step" not in drawn and "cancel_task" in drawn
        assert (await taken(thread, queued))["disposition"] == "note"

        await taken(thread, await at(thread, first, 1, "stop"))
        assert [row["level"] for row in await thread.rows("stops")] == ["step"]
        await taken(thread, await at(thread, first, 3, "stop!"))
        await saying(thread, "Stopping the task for <@U0ONCALL>.")
        assert not any(button in str(thread.own("card")[0]["blocks"]) for button in ("stop_step", "cancel_task"))
        restart.let.set()
        await holds(thread, ["cancelled"], never_sent=["stop"])
        calls = await thread.rows("calls", "position")
        assert [(row["tool"], row["status"]) for row in calls] == [("restart", "ok"), ("scale", "not_run")]
        assert "The task is over" in thread.own("card")[0]["text"]


async def test_after_a_stop_of_the_step_nothing_queued_starts_before_a_person_writes(tmp_path: Path) -> None:
    slow = HeldTool("slow")
    script = [BATCH, say("From there on.")]
    async with in_town(tmp_path, limits=QUICK, script=script, tools=[quick("metrics"), slow]) as thread:
        await thread.ask()
        await called(thread, "slow", "open")
        queued = await thread.reply("+ also check the db")
        await taken(thread, queued)
        await thread.reply("stop", ENGINEER)
        await holds(thread, ["stopped_step"])
        await signed(thread, queued, "memo")
        assert len(await thread.rows("turns")) == 1
        await thread.reply(GO_ON)
        await holds(thread, ["stopped_step", "completed"])
        assert words_of(thread.requests()[1])[2:] == [
            noted(ONCALL, "also check the db"),
            f"<@{ONCALL}>: {GO_ON}",
        ]


async def at(thread: Thread, ts: str, later_s: int, words: str) -> str:
    """The same words so many seconds later by Slack's timestamps."""
    seconds, micros = ts_order(ts)
    late = f"{seconds + later_s}.{micros:06d}"
    return await thread.slack.say(thread.channel, ONCALL, words, thread_ts=thread.root, ts=late)


async def test_a_stop_while_the_model_writes_drops_the_answer(tmp_path: Path) -> None:
    half = say("It is web-3, I am sure of it, and so on and so on.") + hold_until(asyncio.Event(), MIDDLE)
    async with in_town(tmp_path, limits=QUICK, script=[half]) as thread:
        await thread.ask()
        await writing(thread, 0)
        stop = await thread.reply("<@U0PILOT> hold on", ENGINEER)
        await holds(thread, ["stopped_step"])
        await signed(thread, stop, "octagonal_sign")
        assert thread.town.model is not None and thread.town.model.requests[0].finished == "dropped"
        assert "web-3" not in said_in_slack(thread)
        assert "Stopped by <@U0ENGINEER> before the first step." in thread.own("card")[0]["text"]


async def test_a_guest_is_refused_visibly_and_nothing_changes(tmp_path: Path) -> None:
    slow = HeldTool("slow")
    script = [BATCH, say("Undisturbed.")]
    async with in_town(tmp_path, limits=QUICK, script=script, tools=[quick("metrics"), slow]) as thread:
        await thread.ask()
        await called(thread, "slow", "open")
        assert thread.root is not None
        await thread.press("stop_step", GUEST)
        refused = await whispered(thread, GUEST, "I did not stop")
        assert "only members of this workspace (not guests) can stop me here, and nothing has changed" in refused
        assert "Ask one of them to press Stop or to write `stop` in this thread" in refused
        await thread.reply("stop", GUEST)
        await whispered(thread, GUEST, "I did not stop", 2)
        await thread.slack.native_stop(thread.channel, thread.root, GUEST)
        await whispered(thread, GUEST, "I did not stop", 3)
        await thread.slack.react(thread.channel, thread.root, GUEST, "octagonal_sign")
        await whispered(thread, GUEST, "I did not stop", 4)
        await thread.reply("just chatting, it's the gateway", GUEST)
        await thread.slack.quiet()
        assert await thread.rows("stops") == [] and slow.cancelled == 0
        slow.let.set()
        await holds(thread, ["completed"], never_sent=["stop", "just chatting"])
        assert slow.ended == 1


async def test_stop_the_rollout_is_work(tmp_path: Path) -> None:
    script = [BATCH, say("I can't stop it, but here is how."), say("That, too.")]
    async with in_town(tmp_path, limits=QUICK, script=script, tools=[quick("metrics"), HeldTool("slow")]) as thread:
        await thread.ask()
        await called(thread, "slow", "open")
        work = await thread.reply("stop the rollout")
        await holds(thread, ["steered", "completed"])
        assert (await taken(thread, work))["disposition"] == "steer"
        assert words_of(thread.requests()[1])[-1] == f"<@{ONCALL}>: stop the rollout"
        await thread.reply("别停")
        await holds(thread, ["steered", "completed", "completed"])
        assert await thread.rows("stops") == []
        assert words_of(thread.requests()[2]) == [f"<@{ONCALL}>: 别停"]


async def _clicks(thread: Thread, count: int) -> bool:
    return sum(row["source"] == "button" for row in await thread.rows("messages")) == count


async def test_fifty_clicks_are_one_stop_and_say_nothing_twice(tmp_path: Path) -> None:
    script = [BATCH, say("Going on.")]
    async with in_town(tmp_path, limits=QUICK, script=script, tools=[quick("metrics"), HeldTool("slow")]) as thread:
        await thread.ask()
        await called(thread, "slow", "open")
        card = (await thread.cards())[0]["ts"]
        clicks = [thread.slack.press(thread.channel, card, "stop_step", ONCALL) for _ in range(50)]
        await asyncio.gather(*clicks)
        await thread.until(lambda: _clicks(thread, 50))
        await holds(thread, ["stopped_step"])
        assert [row["level"] for row in await thread.rows("stops")] == ["step"]
        assert thread.whispers(ONCALL) == []
        assert "Stopped by <@U0ONCALL> at step 1." in thread.own("card")[0]["text"]


async def test_a_stop_in_a_direct_message_needs_no_thread(tmp_path: Path) -> None:
    script = [BATCH, BATCH]
    async with in_town(tmp_path, limits=QUICK, script=script, tools=[quick("metrics"), HeldTool("slow")]) as thread:
        thread.channel = "D0ENGINEER"
        nothing = await thread.slack.say(thread.channel, ENGINEER, "stop")
        await thread.until(lambda: "Nothing of mine is running here" in str(thread.slack.messages(thread.channel)))
        assert nothing and len(thread.requests()) == 0
        await thread.ask("checkout answers 5xx, what is going on?")
        await called(thread, "slow", "open")
        stop = await thread.slack.say(thread.channel, ENGINEER, "stop")
        await holds(thread, ["stopped_step"])
        await thread.until(lambda: "octagonal_sign" in str(thread.slack.messages(thread.channel, stop)))
        assert "Stopped by <@U0ENGINEER> at step 1." in thread.own("card")[0]["text"]


async def test_a_stop_outside_a_thread_means_the_senders_only_turn_or_asks_which(tmp_path: Path) -> None:
    script = [BATCH, BATCH]
    async with in_town(tmp_path, limits=QUICK, script=script, tools=[quick("metrics"), HeldTool("slow")]) as thread:
        await thread.ask()
        await called(thread, "slow", "open")
        outside = f"{thread.channel}"
        await thread.slack.say(outside, NEWCOMER, "<@U0PILOT> stop")
        await thread.until(lambda: "Which one do you mean?" in str(thread.slack.messages(outside)))
        await thread.slack.say(outside, GUEST, "<@U0PILOT> stop")
        await thread.until(lambda: "I did not stop" in str(thread.slack.messages(outside)))
        listed = [one for one in thread.slack.messages(outside) if one.get("ephemeral")]
        assert [one["ephemeral_user"] for one in listed] == [NEWCOMER, GUEST]
        assert "what is going on?" in str(listed[0]["blocks"]) and "stop_step" in str(listed[0]["blocks"])
        assert "stop_step" not in str(listed[1]["blocks"])
        assert await thread.rows("stops") == []

        await thread.slack.press(outside, listed[0]["ts"], "stop_step", NEWCOMER)
        await holds(thread, ["stopped_step"], never_sent=["stop"])
        assert "Stopped by <@U0SECOND> at step 1." in thread.own("card")[0]["text"]


async def test_the_senders_only_turn_in_the_channel_is_stopped_from_outside(tmp_path: Path) -> None:
    script = [BATCH]
    async with in_town(tmp_path, limits=QUICK, script=script, tools=[quick("metrics"), HeldTool("slow")]) as thread:
        await thread.ask()
        await called(thread, "slow", "open")
        await thread.slack.say(thread.channel, ENGINEER, "stop, wrong cluster")
        await holds(thread, ["stopped_step"], never_sent=["stop"])
        assert "Stopped by <@U0ENGINEER> at step 1." in thread.own("card")[0]["text"]
        assert "stop" not in sent(thread)
