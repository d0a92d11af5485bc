"""Story 6: chatter is kept and steers nothing, `+` waits for its turn, and who is new gets a button."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bot.playground.model import FIRST_BYTE, call, hold_until, say
from tests.support.story import (
    QUICK,
    HeldTool,
    called,
    holds,
    noted,
    quick,
    sent,
    signed,
    taken,
    whispered,
    words_of,
    writing,
)
from tests.support.thread import ENGINEER, NEWCOMER, ONCALL, in_town, shown

BATCH = say("Looking.") + call("metrics", q="up") + call("slow", q="web-3")
KEPT = "Kept as a note"


async def test_chatter_to_another_person_steers_nothing_and_is_a_note_for_the_next_turn(tmp_path: Path) -> None:
    slow = HeldTool("slow")
    script = [BATCH, say("It is the rollout."), say("The db is well.")]
    async with in_town(tmp_path, limits=QUICK, script=script, tools=[quick("metrics"), slow]) as thread:
        await thread.ask()
        await called(thread, "slow", "open")
        chatter = await thread.reply("<@U0ONCALL> did you page the db team, too?", ENGINEER)
        row = await taken(thread, chatter)
        assert (row["disposition"], row["marker"], row["policy_row"]) == ("note", "addressed", "addressed")
        await signed(thread, chatter, "memo")
        aside = await thread.reply("; lunch?", ENGINEER)
        assert (await taken(thread, aside))["disposition"] == "ignore"
        slow.let.set()
        await holds(thread, ["completed"], never_sent=["page the db team", "lunch"])
        assert slow.cancelled == 0 and thread.signs(aside) == [] and thread.whispers(ENGINEER) == []

        await thread.reply("and the db?")
        await holds(thread, ["completed", "completed"], never_sent=["lunch"])
        assert words_of(thread.requests()[2]) == [
            noted(ENGINEER, f"@{ONCALL} did you page the db team, too?"),
            f"<@{ONCALL}>: and the db?",
        ]


async def test_words_with_a_plus_run_after_the_turn_and_cut_nothing(tmp_path: Path) -> None:
    slow, end = HeldTool("slow"), asyncio.Event()
    script = [BATCH, say("It is the rollout."), say("Db and cache are well.") + hold_until(end, FIRST_BYTE)]
    async with in_town(tmp_path, limits=QUICK, script=script, tools=[quick("metrics"), slow]) as thread:
        await thread.ask()
        await called(thread, "slow", "open")
        first = await thread.reply("+ also check the db")
        second = await thread.reply("+ and the cache", ENGINEER)
        for queued in (first, second):
            assert (await taken(thread, queued))["disposition"] == "queue"
            await signed(thread, queued, "hourglass_flowing_sand")
        slow.let.set()
        await thread.cards(2)
        end.set()
        await holds(thread, ["completed", "completed"])
        assert slow.cancelled == 0 and "also check" not in str(thread.requests()[1])
        assert words_of(thread.requests()[2]) == [
            f"<@{ONCALL}>: also check the db",
            f"<@{ENGINEER}>: and the cache",
        ]
        answers = await thread.answers(2)
        assert f"<@{ENGINEER}>" in shown(answers[0]) and f"<@{ONCALL}>" in shown(answers[1])
        assert "also check the db and the cache" in thread.own("card")[1]["text"]


async def test_a_newcomers_reply_is_a_note_until_they_press_redirect_now(tmp_path: Path) -> None:
    slow = HeldTool("slow")
    script = [BATCH, say("It is the gateway.")]
    async with in_town(tmp_path, limits=QUICK, script=script, tools=[quick("metrics"), slow]) as thread:
        await thread.ask()
        await called(thread, "slow", "open")
        note = await thread.reply("it's the gateway, I rolled it out", NEWCOMER)
        row = await taken(thread, note)
        assert (row["disposition"], row["who"], row["policy_row"]) == ("note", "member", "reply_of_member")
        told = await whispered(thread, NEWCOMER, KEPT)
        assert "I will read it with the next turn, and my work goes on unchanged." in told
        assert "Press *Redirect now* if I should change course, or begin a reply with `!`." in told
        again = await thread.reply("at 14:04", NEWCOMER)
        await taken(thread, again)
        await signed(thread, again, "memo")
        assert len(thread.whispers(NEWCOMER)) == 1 and slow.cancelled == 0

        offer = next(one for one in thread.messages() if one.get("ephemeral"))
        await thread.slack.press(thread.channel, offer["ts"], "redirect_now", NEWCOMER)
        await holds(thread, ["steered", "completed"])
        await thread.until(lambda: "Redirecting now with your words." in str(thread.whispers(NEWCOMER)))
        assert "redirect_now" not in str(thread.messages())
        await signed(thread, note, "leftwards_arrow_with_hook")
        assert "Redirected by <@U0SECOND> at step 1, continued below." in thread.own("card")[0]["text"]
        assert words_of(thread.requests()[1])[2:] == [
            f"<@{NEWCOMER}>: it's the gateway, I rolled it out",
            noted(NEWCOMER, "at 14:04"),
        ]
        assert "redirect" not in sent(thread).replace("a person redirected the investigation", "")
        assert f"<@{NEWCOMER}>" in shown((await thread.answers())[0])


async def test_redirect_now_after_the_end_says_that_it_is_over(tmp_path: Path) -> None:
    end = asyncio.Event()
    script = [say("It is the rollout.") + hold_until(end, FIRST_BYTE), say("As you both say.")]
    async with in_town(tmp_path, limits=QUICK, script=script) as thread:
        await thread.ask()
        await writing(thread, 0)
        await thread.reply("it's the gateway", NEWCOMER)
        await whispered(thread, NEWCOMER, KEPT)
        end.set()
        await holds(thread, ["completed"])
        offer = next(one for one in thread.messages() if one.get("ephemeral"))
        await thread.slack.press(thread.channel, offer["ts"], "redirect_now", NEWCOMER)
        await whispered(thread, NEWCOMER, "That turn has already ended, so nothing was changed.")
        await thread.reply("what does <@U0SECOND> say?")
        await holds(thread, ["completed", "completed"])
        assert words_of(thread.requests()[1])[0] == noted(NEWCOMER, "it's the gateway")


async def test_a_newcomer_who_begins_with_an_exclamation_mark_redirects_at_once(tmp_path: Path) -> None:
    script = [BATCH, say("It is the gateway.")]
    tools = [quick("metrics"), HeldTool("slow")]
    async with in_town(tmp_path, limits=QUICK, script=script, tools=tools) as thread:
        await thread.ask()
        await called(thread, "slow", "open")
        await thread.reply("! it's the gateway", NEWCOMER)
        await holds(thread, ["steered", "completed"])
        assert words_of(thread.requests()[1])[-1] == f"<@{NEWCOMER}>: it's the gateway"
        assert thread.whispers(NEWCOMER) == []


async def test_what_stood_in_the_thread_before_the_first_mention_is_read_without_its_control(tmp_path: Path) -> None:
    async with in_town(tmp_path, limits=QUICK, script=[say("I see.")]) as thread:
        thread.root = await thread.slack.post_alert(thread.channel)
        said = ["it began after the rollout", "stop", "取消，先看一下", "; lunch?", "stop the rollout?"]
        for words in said:
            await thread.reply(words)
        await thread.reply("<@U0PILOT> what is this?", ENGINEER)
        await holds(thread, ["completed"], never_sent=["取消", "lunch", "\\nstop\\n"])
        context = words_of(thread.requests()[0])[0]
        assert "CheckoutErrorRate" in context
        assert "it began after the rollout" in context and "stop the rollout?" in context and "先看一下" in context
