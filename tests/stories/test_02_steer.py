"""Story 2: a reply while a batch runs. Nothing is cut inside the batch; the next turn starts with these words."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from bot.playground.model import FIRST_BYTE, call, hold_until, say
from core.ports import Tier
from tests.support.story import QUICK, HeldTool, called, holds, quick, saying, signed, taken, words_of
from tests.support.thread import ENGINEER, ONCALL, in_town, shown

REDIRECTION = "don't look at that host, it's the gateway"
BATCH = say("Looking at three things.") + call("metrics", q="up") + call("logs", q="error") + call("slow", q="web-3")


async def test_a_reply_while_the_demos_batch_of_three_runs_sends_it_to_the_gateway(tmp_path: Path) -> None:
    async with in_town(tmp_path, speed=20, limits=QUICK) as thread:
        thread.town.world.slow("loki", 60.0, match="web-3")
        await thread.ask()
        await called(thread, "loki_query", "open")
        await called(thread, "kubernetes_get", "ok")
        reply = await thread.reply(REDIRECTION)
        await holds(thread, ["steered", "completed"])

        await signed(thread, reply, "leftwards_arrow_with_hook")
        first, second = thread.own("card")
        assert "Redirected by <@U0ONCALL> at step 2, continued below." in first["text"]
        assert "cancelled, nothing was read" in first["text"]
        assert "Answered below." in second["text"] and REDIRECTION in second["text"]
        assert "asked by <@U0ONCALL>" in second["text"]
        answer = (await thread.answers())[0]
        assert f"<@{ONCALL}>" in shown(answer) and f"<@{ENGINEER}>" not in shown(answer)
        assert "gateway" in shown(answer)


async def test_nothing_is_cut_inside_the_batch_and_the_slow_read_is_hurried_with_a_true_result(
    tmp_path: Path,
) -> None:
    slow = HeldTool("slow")
    tools = [quick("metrics"), quick("logs"), slow]
    script = [BATCH, say("It is the gateway, as you say.")]
    async with in_town(tmp_path, limits=QUICK, script=script, tools=tools) as thread:
        await thread.ask()
        await called(thread, "metrics", "ok")
        await called(thread, "logs", "ok")
        assert slow.began == 1
        reply = await thread.reply(REDIRECTION)
        row = await taken(thread, reply)
        assert (row["disposition"], row["policy_row"]) == ("steer", "reply_of_participant")
        await holds(thread, ["steered", "completed"])

        entries = await thread.rows("entries", "seq")
        assert [entry["kind"] for entry in entries] == ["user", "assistant", "results", "user", "assistant"]
        calls = await thread.rows("calls", "position")
        assert [(one["tool"], one["status"]) for one in calls] == [
            ("metrics", "ok"),
            ("logs", "ok"),
            ("slow", "cancelled"),
        ]
        assert calls[2]["ended_at"] - row["arrived_at"] >= QUICK.patience_s
        assert (slow.began, slow.cancelled) == (1, 1)

        words = words_of(thread.requests()[1])
        assert words[0] == '(result) metrics says {"q": "up"}'
        assert words[1] == '(result) logs says {"q": "error"}'
        assert words[2].startswith("(result) Cancelled after ")
        assert words[2].endswith("because a person redirected the investigation. Nothing was read.")
        assert words[3:] == [f"<@{ONCALL}>: {REDIRECTION}"]

        steered, completed = await thread.settles()
        assert (steered["ended_by"], steered["step"], steered["detail"]) == (ONCALL, 1, None)
        assert steered["final_event_id"] is None and steered["cost_usd"] > 0
        assert completed["final_event_id"] == entries[-1]["id"]
        attempts = await thread.rows("attempts", "started_at")
        assert [(one["ended"], one["stamp"]) for one in attempts] == [("cut", "steer"), ("finished", None)]
        first, second = await thread.rows("turns", "number")
        assert second["predecessor_id"] == first["id"] and second["asked_by"] == ONCALL


async def test_three_steers_in_a_row_make_one_turn(tmp_path: Path) -> None:
    script = [BATCH, say("All three.")]
    tools = [quick("metrics"), quick("logs"), HeldTool("slow")]
    async with in_town(tmp_path, limits=QUICK, script=script, tools=tools) as thread:
        await thread.ask()
        await called(thread, "slow", "open")
        said = ["it's the gateway", "since the rollout", "look at the timeouts"]
        replies = [
            await thread.reply(said[0]),
            await thread.reply(said[1], ENGINEER),
            await thread.reply(said[2]),
        ]
        await holds(thread, ["steered", "completed"])
        assert words_of(thread.requests()[1])[3:] == [
            f"<@{ONCALL}>: {said[0]}",
            f"<@{ENGINEER}>: {said[1]}",
            f"<@{ONCALL}>: {said[2]}",
        ]
        for reply in replies:
            await signed(thread, reply, "leftwards_arrow_with_hook")
        assert len({(await taken(thread, reply))["turn_id"] for reply in replies}) == 1
        assert len(thread.own("card")) == 2
        assert all(words in thread.own("card")[1]["text"] for words in said)


async def test_a_turn_that_a_steer_starts_waits_until_the_thread_is_quiet(tmp_path: Path) -> None:
    patient = replace(QUICK, quiet_s=1.0, quiet_max_s=3.0)
    script = [BATCH, say("Both.")]
    tools = [quick("metrics"), quick("logs"), HeldTool("slow")]
    async with in_town(tmp_path, limits=patient, script=script, tools=tools) as thread:
        await thread.ask()
        await called(thread, "slow", "open")
        await thread.reply(REDIRECTION)
        await thread.until(lambda: len(thread.own("card")) == 2)
        assert "It waits a moment, in case more of them follow." in thread.own("card")[1]["text"]
        late = await taken(thread, await thread.reply("and not the database"))
        waiting = (await thread.rows("turns", "number"))[1]
        assert waiting["start_after"] - late["arrived_at"] == 1.0
        await holds(thread, ["steered", "completed"])
        assert thread.town.model is not None
        assert thread.town.model.requests[1].at >= waiting["start_after"]
        assert words_of(thread.requests()[1])[-2:] == [
            f"<@{ONCALL}>: {REDIRECTION}",
            f"<@{ONCALL}>: and not the database",
        ]


async def test_the_next_card_waits_until_the_one_before_shows_its_end(tmp_path: Path) -> None:
    end = asyncio.Event()
    script = [BATCH, say("The gateway.") + hold_until(end, FIRST_BYTE)]
    tools = [quick("metrics"), quick("logs"), HeldTool("slow")]
    async with in_town(tmp_path, limits=QUICK, script=script, tools=tools) as thread:
        thread.slack.delay("chat.update", 0.5)
        await thread.ask()
        await called(thread, "slow", "open")
        await thread.reply(REDIRECTION)
        await thread.cards(2)
        assert "continued below" in thread.own("card")[0]["text"]
        end.set()
        await holds(thread, ["steered", "completed"])


async def test_a_reply_before_the_first_request_joins_the_turn(tmp_path: Path) -> None:
    async with in_town(tmp_path, limits=QUICK, script=[say("The gateway, then.")]) as thread:
        await thread.town.app.ledger.pause(True, "an operator")
        question = await thread.ask()
        await saying(thread, "asked by")
        reply = await thread.reply(REDIRECTION)
        await taken(thread, reply)
        await thread.town.app.ledger.pause(False, "an operator")
        await holds(thread, ["completed"])
        assert [words.partition(": ")[2] for words in words_of(thread.requests()[0])] == [
            "checkout answers 5xx since 14:05, what is going on?",
            REDIRECTION,
        ]
        assert (await taken(thread, question))["turn_id"] == (await taken(thread, reply))["turn_id"]


async def test_a_write_is_never_hurried_and_the_one_behind_it_does_not_run(tmp_path: Path) -> None:
    restart, scale = HeldTool("restart", Tier.WRITE), quick("scale", Tier.WRITE)
    script = [call("restart", deployment="checkout") + call("scale", replicas=5), say("Left it at that.")]
    async with in_town(tmp_path, limits=QUICK, script=script, tools=[restart, scale]) as thread:
        await thread.ask()
        await called(thread, "restart", "intent")
        await taken(thread, await thread.reply("no need to scale, it's the gateway"))
        restart.let.set()
        await holds(thread, ["steered", "completed"])
        assert (restart.ended, restart.cancelled, scale.began) == (1, 0, 0)
        words = words_of(thread.requests()[1])
        assert words[0] == '(result) restart says {"deployment": "checkout"}'
        assert words[1] == "(result) Not run: a person redirected the investigation. Nothing was changed by it."
