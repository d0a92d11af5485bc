"""A history that went bad: people get an answer, or the reason, and the thread never dies of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from sqlalchemy import delete, select, update

from bot.commands.timeline import timeline
from bot.playground.model import Reply, call, http_error, say, think
from core.history import flatten
from core.messages import TurnId
from core.ports import ToolOutput
from storage.reports import turn_story
from storage.tables import entries
from tests.support.scene import tool
from tests.support.story import QUICK
from tests.support.thread import ASK, in_town, shown

LOOK = think("I should look first.") + say("Looking.") + call("metrics", q="up")
AGAIN = "<@U0PILOT> and now?"
REFUSED = http_error(400, "invalid_request_error", "messages.2.content.0: something that nobody has seen before")


def town_of(path: Path, *lines: Reply) -> Any:
    return in_town(path, script=list(lines), limits=QUICK, tools=[tool("metrics")], speed=20)


def blocks(request: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """What law 1 compares: roles and blocks without cache marks."""
    return [
        (role, {name: value for name, value in block.items() if name != "cache_control"})
        for role, block in flatten(request["messages"])
    ]


async def test_an_edited_thought_costs_one_request_and_no_more_thoughts(tmp_path: Path) -> None:
    lines = [LOOK, say("The gateway."), say("Still the gateway."), say("And still.")]
    async with town_of(tmp_path, *lines) as thread:
        await thread.ask(ASK)
        await thread.answers(1)
        async with thread.town.app.db.transaction() as tx:
            first = (await tx.execute(select(entries).where(entries.c.kind == "assistant"))).mappings().first()
            assert first is not None
            body = json.loads(first["body"])
            body[0]["thinking"] = "I should look at something else."
            await tx.execute(update(entries).where(entries.c.id == first["id"]).values(body=json.dumps(body)))
        await thread.reply(AGAIN)
        await thread.answers(2)
        await thread.reply(AGAIN)
        assert await thread.released(3) == ["completed"] * 3
        assert thread.town.model is not None
        assert len(thread.town.model.violations) == 1
        refused, mended, later = (blocks(request) for request in thread.requests()[2:])
        assert "thinking" in str(refused) and "thinking" not in str(mended)
        assert later[: len(mended)] == mended
        assert {row["rule"] for row in await thread.rows("repairs")} == {"R42"}


async def test_a_lost_result_comes_back_as_it_was_and_the_operator_is_told(tmp_path: Path) -> None:
    async with town_of(tmp_path, LOOK, say("The gateway."), say("Still the gateway.")) as thread:
        await thread.ask(ASK)
        await thread.answers(1)
        async with thread.town.app.db.transaction() as tx:
            await tx.execute(delete(entries).where(entries.c.kind == "results"))
        await thread.reply(AGAIN)
        assert await thread.released(2) == ["completed"] * 2
        assert thread.town.model is not None and thread.town.model.violations == []
        before, after = (blocks(request) for request in thread.requests()[1:])
        assert after[: len(before)] == before
        (repair,) = [row for row in await thread.rows("repairs") if row["rule"] == "R20"]
        assert "was taken from the records" in repair["what"]
        assert b'pilothouse_stitches_total{rule="R20"} 1.0' in thread.town.app.telemetry.page()
        async with thread.town.app.db.reading() as tx:
            story = await turn_story(tx, TurnId(repair["turn_id"]))
        told = "\n".join(str(event) for event in timeline(story))
        assert f"rule R20 at {repair['path']}: {repair['what']}" in told
        assert "the history goes on from what could be sent of it (5 messages)" in told


async def test_a_history_that_the_api_refuses_for_good_is_told_and_the_thread_lives_on(tmp_path: Path) -> None:
    lines = [LOOK, say("The gateway."), REFUSED, REFUSED, say("Alive and well.")]
    async with town_of(tmp_path, *lines) as thread:
        await thread.ask(ASK)
        await thread.answers(1)
        await thread.reply(AGAIN)
        assert await thread.released(2) == ["completed", "failed"]
        await thread.until(lambda: "something that nobody has seen" in shown(thread.own("card")[1]))
        assert "retry" in shown(thread.own("card")[1]).lower()
        settle = (await thread.settles())[1]
        assert settle["detail"] == "structural_400"
        first, second = (blocks(request) for request in thread.requests()[2:4])
        assert first != second and len(thread.requests()) == 4
        await thread.reply("<@U0PILOT> are you still there?")
        assert await thread.released(3) == ["completed", "failed", "completed"]
        assert "Alive and well" in shown(thread.own("answer")[-1])
        sent = str(thread.requests()[-1]["messages"])
        assert "metrics says" in sent and "and now?" in sent
        models = {request["model"] for request in thread.requests()}
        assert len(models) == 1


async def test_no_model_is_sent_the_thinking_of_another_one(tmp_path: Path) -> None:
    """The ladder asks the fallback model in the first turn; the second is the first model's again."""
    silent = think("I know it, and do not say it.")
    told = [think("So I say it.") + say("The fallback knows it."), think("Hm.") + say("Again."), say("And again.")]
    async with town_of(tmp_path, LOOK, silent, silent, *told) as thread:
        await thread.ask(ASK)
        await thread.answers(1)
        await thread.reply(AGAIN)
        await thread.answers(2)
        await thread.reply(AGAIN)
        assert await thread.released(3) == ["completed"] * 3
        assert thread.town.model is not None and thread.town.model.violations == []
        main, fallback = (thread.requests()[at]["model"] for at in (0, 3))
        assert main != fallback
        assert [request["model"] for request in thread.requests()] == [main] * 3 + [fallback] + [main] * 2
        first, second, third, fourth, fifth, sixth = (blocks(request) for request in thread.requests())
        assert second[: len(first)] == first and third[: len(second)] == second
        assert "thinking" in str(third) and "thinking" not in str(fourth)
        assert fifth[: len(fourth)] == fourth and "thinking" not in str(fifth)
        assert sixth[: len(fifth)] == fifth and "Hm." in str(sixth)


async def test_a_thread_that_grows_too_long_is_condensed_and_goes_on(tmp_path: Path) -> None:
    async def long(arguments: Mapping[str, Any]) -> ToolOutput:
        noise = "GET /health 200\n" * 120
        return ToolOutput(f"{noise}gateway-{arguments['n']} timed out after 300ms\n{noise}")

    rounds = 6
    lines: list[Reply] = []
    for number in range(rounds):
        lines.append(think(f"Look at {number}.") + call("logs", n=number))
        lines.append(say(f"gateway-{number} timed out."))
    limits = replace(QUICK, condense_at_tokens=4_000, condense_to_tokens=1_500)
    tools = [tool("logs", long)]
    async with in_town(tmp_path, script=lines, limits=limits, tools=tools, speed=20) as thread:
        for number in range(rounds):
            words = f"<@U0PILOT> question {number}, what is going on?"
            await (thread.reply(words) if number else thread.ask(words))
            await thread.answers(number + 1)
        assert await thread.released(rounds) == ["completed"] * rounds
        assert thread.town.model is not None and thread.town.model.violations == []
        kinds = [row["kind"] for row in await thread.rows("entries", "seq")]
        assert "condensed" in kinds
        last = str(thread.requests()[-1]["messages"])
        assert all(f"question {number}, what" in last for number in range(rounds))
        assert all(f"gateway-{number} timed out after 300ms" in last for number in range(rounds))
        assert await thread.rows("repairs") == []
        for row in await thread.rows("turns"):
            async with thread.town.app.db.reading() as tx:
                told = [str(event) for event in timeline(await turn_story(tx, TurnId(row["id"])))]
            if any("shorter form" in line for line in told):
                break
        else:
            raise AssertionError("no timeline tells of the condensation")
