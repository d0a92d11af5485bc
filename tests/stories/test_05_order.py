"""Story 5: stop before start in both orders, never the next question, and what a click on an old card means."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from bot.cli import main
from bot.playground.model import FIRST_BYTE, call, hold_until, say
from core.ports import Tier
from tests.support.story import (
    QUICK,
    HeldTool,
    called,
    holds,
    quick,
    said_in_slack,
    saying,
    signed,
    taken,
    whispered,
    words_of,
    writing,
)
from tests.support.thread import ASK, ENGINEER, ONCALL, Thread, in_town

BATCH = say("Looking.") + call("metrics", q="up") + call("slow", q="web-3")
ENDED = (
    "That turn has already ended, so nothing was changed. "
    "To stop what runs in this thread now, write `stop` here; to go on, just write."
)


async def unheard(thread: Thread, words: str, user: str = ENGINEER, thread_ts: str | None = None) -> str:
    """A message that is there, and whose event is still on its way."""
    return await thread.slack.say(thread.channel, user, words, thread_ts=thread_ts, quiet=True)


def heard(thread: Thread, ts: str) -> None:
    """Its event arrives."""
    message = thread.slack.state.lookup(thread.channel, ts)
    assert message is not None
    thread.slack.desk.publish(message)


async def react(thread: Thread) -> None:
    assert thread.root is not None
    await thread.slack.react(thread.channel, thread.root, ONCALL, "octagonal_sign")


async def native(thread: Thread) -> None:
    assert thread.root is not None
    await thread.slack.native_stop(thread.channel, thread.root, ONCALL)


STOPS: dict[str, Callable[[Thread], Awaitable[object]]] = {
    "a word": lambda thread: thread.reply("stop, wrong cluster"),
    "a cancel": lambda thread: thread.reply("取消"),
    "the native Stop": native,
    "a sign on the question": react,
}


@pytest.mark.parametrize("how", STOPS)
async def test_a_stop_that_arrives_before_its_question_keeps_it_from_starting_and_says_so(
    tmp_path: Path, how: str
) -> None:
    async with in_town(tmp_path, limits=QUICK, script=[say("A new question.")]) as thread:
        thread.root = await unheard(thread, ASK)
        await STOPS[how](thread)
        await thread.until(lambda: _stops(thread, 1))
        heard(thread, thread.root)
        told = await whispered(thread, ENGINEER, "Stopped before it started")
        assert "<@U0ONCALL> said stop after you sent this and before I had read it" in told
        assert "Send it again if it is still wanted." in told
        await signed(thread, thread.root, "octagonal_sign")
        question = await taken(thread, thread.root)
        assert (question["state"], question["turn_id"]) == ("stopped", None)
        assert await thread.rows("turns") == [] and thread.requests() == [] and thread.own("card") == []

        await thread.reply("<@U0PILOT> is the gateway well?", ENGINEER)
        await holds(thread, ["completed"], never_sent=["stop", "取消"])


async def _stops(thread: Thread, count: int) -> bool:
    return len(await thread.rows("stops")) == count


@pytest.mark.parametrize("how", STOPS)
async def test_a_stop_that_comes_before_the_turn_could_start_leaves_nothing_to_start(
    tmp_path: Path, how: str
) -> None:
    async with in_town(tmp_path, limits=QUICK, script=[]) as thread:
        await thread.town.app.ledger.pause(True, "an operator")
        await thread.ask()
        await thread.until(lambda: len(thread.own("card")) == 1)
        await STOPS[how](thread)
        level = "cancelled" if how in ("a cancel", "the native Stop") else "stopped_step"
        await holds(thread, [level])
        assert thread.requests() == [] and await thread.rows("entries") == []
        assert "Stopped by <@U0ONCALL> before the first step." in thread.own("card")[0]["text"]


async def test_a_stop_that_was_said_before_the_question_never_hits_it(tmp_path: Path) -> None:
    async with in_town(tmp_path, limits=QUICK, script=[say("First."), say("Second.")]) as thread:
        await thread.ask()
        await holds(thread, ["completed"])
        late = await unheard(thread, "cancel", ONCALL, thread.root)
        await thread.town.app.ledger.pause(True, "an operator")
        await thread.reply("<@U0PILOT> and the db?", ENGINEER)
        await thread.until(lambda: len(thread.own("card")) == 2)
        heard(thread, late)
        await taken(thread, late)
        await thread.town.app.ledger.pause(False, "an operator")
        await holds(thread, ["completed", "completed"], never_sent=["cancel"])


async def test_a_reply_before_the_stop_ends_with_it_and_one_after_it_goes_on(tmp_path: Path) -> None:
    restart = HeldTool("restart", Tier.WRITE)
    script = [call("restart", deployment="checkout"), say("eu-west, then.")]
    async with in_town(tmp_path, limits=QUICK, script=script, tools=[restart]) as thread:
        await thread.ask()
        await called(thread, "restart", "intent")
        before = await thread.reply("it's the gateway")
        await taken(thread, before)
        stop = await thread.reply("stop", ENGINEER)
        await taken(thread, stop)
        await signed(thread, before, "octagonal_sign")
        after = await thread.reply("look at eu-west instead")
        assert (await taken(thread, after))["disposition"] == "steer"
        restart.let.set()
        await holds(thread, ["stopped_step", "completed"], never_sent=["it's the gateway", ">: stop"])
        assert (await taken(thread, before))["state"] == "stopped"
        assert words_of(thread.requests()[1])[-1] == f"<@{ONCALL}>: look at eu-west instead"
        first, second = await thread.rows("turns", "number")
        assert second["predecessor_id"] is None and first["id"] != second["id"]


async def test_two_questions_within_two_seconds_can_both_be_stopped(tmp_path: Path) -> None:
    script = [BATCH, BATCH]
    async with in_town(tmp_path, limits=QUICK, script=script, tools=[quick("metrics"), HeldTool("slow")]) as thread:
        await thread.ask()
        await called(thread, "slow", "open")
        first = await thread.reply("stop")
        await holds(thread, ["stopped_step"])
        seconds, _, micros = first.partition(".")
        soon = [f"{seconds}.{int(micros) + later:06d}" for later in (1, 2)]
        await thread.slack.say(thread.channel, ONCALL, "it's web-2", thread_ts=thread.root, ts=soon[0])
        await thread.until(lambda: len(thread.requests()) == 2)
        await thread.slack.say(thread.channel, ONCALL, "stop", thread_ts=thread.root, ts=soon[1])
        await holds(thread, ["stopped_step", "stopped_step"], never_sent=[">: stop"])


async def test_a_click_on_the_card_of_a_turn_that_has_ended_says_so_and_changes_nothing(tmp_path: Path) -> None:
    end = asyncio.Event()
    script = [say("It is the rollout."), say("And the db is well.") + hold_until(end, FIRST_BYTE)]
    async with in_town(tmp_path, limits=QUICK, script=script) as thread:
        await thread.ask()
        await holds(thread, ["completed"])
        old = thread.own("card")[0]["ts"]
        await thread.slack.press(thread.channel, old, "stop_step", ONCALL)
        await whispered(thread, ONCALL, ENDED)
        await thread.reply("and the db?")
        await writing(thread, 1)
        await thread.slack.press(thread.channel, old, "cancel_task", ONCALL)
        await whispered(thread, ONCALL, ENDED, 2)
        await thread.slack.react(thread.channel, old, ONCALL, "octagonal_sign")
        await whispered(thread, ONCALL, ENDED, 3)
        assert await thread.rows("stops") == []
        end.set()
        await holds(thread, ["completed", "completed"])
        assert "And the db is well." in said_in_slack(thread)


async def test_a_click_on_the_card_of_a_redirected_turn_stops_what_goes_on_from_it(tmp_path: Path) -> None:
    script = [BATCH, BATCH]
    async with in_town(tmp_path, limits=QUICK, script=script, tools=[quick("metrics"), HeldTool("slow")]) as thread:
        await thread.ask()
        await called(thread, "slow", "open")
        await thread.reply("it's the gateway")
        await thread.until(lambda: len(thread.requests()) == 2)
        await thread.press("stop_step", card=0)
        await holds(thread, ["steered", "stopped_step"], never_sent=["stop_step"])
        assert "Stopped by <@U0ONCALL>" in thread.own("card")[1]["text"]
        assert thread.whispers(ONCALL) == []


async def test_a_click_that_is_older_than_what_its_successor_knows_is_told_that_the_turn_has_ended(
    tmp_path: Path,
) -> None:
    script = [BATCH, say("It is the gateway.")]
    tools = [quick("metrics"), HeldTool("slow")]
    async with in_town(tmp_path, limits=QUICK, script=script, tools=tools) as thread:
        await thread.ask()
        await called(thread, "slow", "open")
        await thread.town.app.ledger.pause(True, "an operator")
        in_a_minute = f"{int(str(thread.root).partition('.')[0]) + 60}.000100"
        words = "it's the gateway"
        await thread.slack.say(thread.channel, ONCALL, words, thread_ts=thread.root, ts=in_a_minute)
        await saying(thread, "Redirected by <@U0ONCALL>", card=0)
        await thread.press("stop_step", card=0)
        await whispered(thread, ONCALL, ENDED)
        await thread.town.app.ledger.pause(False, "an operator")
        await holds(thread, ["steered", "completed"])
        assert words_of(thread.requests()[1])[-1] == f"<@{ONCALL}>: it's the gateway"


async def test_an_operator_stops_what_runs_from_the_command_line(tmp_path: Path) -> None:
    script = [BATCH]
    async with in_town(tmp_path, limits=QUICK, script=script, tools=[quick("metrics"), HeldTool("slow")]) as thread:
        await thread.ask()
        await called(thread, "slow", "open")
        there = [f"{thread.channel}:{thread.root}", "--as", ONCALL, "--data", str(tmp_path / "data")]
        assert await asyncio.to_thread(main, ["stop", "--thread", *there]) == 0
        await holds(thread, ["cancelled"], never_sent=["stop"])
        assert "Stopped by <@U0ONCALL> at step 1. The task is over" in thread.own("card")[0]["text"]
