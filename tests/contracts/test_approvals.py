"""Changes wait for people: asked together, decided once, run once, and closed truthfully however they end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import update

from bot.commands.timeline import timeline
from core.approvals import ApprovalPolicy
from core.errors import Overtaken, ToolError
from core.ledger import Claimed, Frozen
from core.messages import Action, ChannelId, Level, Rights, SessionId, TurnId
from core.notices import Notice
from core.ports import Tier, ToolOutput
from core.validator import problems
from storage.database import Database
from storage.reports import turn_story
from storage.tables import approvals, calls, sessions, suspensions
from tests.support.scene import BOT, EVERYTHING, FAST, FakeTool, Scene, answer, scene, tool
from tests.support.sweeps import Watch

ASK = f"<@{BOT}> checkout answers 5xx, put it right"
MAY_NOT = replace(EVERYTHING, approve=False)
DONE = answer("Done.")


def asking(*preapproved: str, valid_s: float = 900.0, anybody: bool = True) -> Callable[[ChannelId], ApprovalPolicy]:
    return lambda _channel: ApprovalPolicy(anybody, frozenset(preapproved), valid_s)


def change(name: str = "undo", **spec: Any) -> FakeTool:
    return tool(name, tier=spec.pop("tier", Tier.WRITE), **spec)


def results_of(thread: Scene) -> str:
    """The last results that the model was sent."""
    return str(thread.model.requests[-1].messages[-1]["content"])


async def statuses(thread: Scene) -> list[str]:
    return [row["status"] for row in await thread.rows("calls", "step, position")]


async def states(thread: Scene) -> list[str]:
    return [row["state"] for row in await thread.rows("approvals", "number")]


async def test_a_change_waits_without_a_worker_and_runs_once_when_it_is_approved(database: Database) -> None:
    undo, look = change(), tool("look")
    lines = [answer("", ("look", {"q": "up"}), ("undo", {"to": 41})), DONE]
    async with scene(database, lines, [undo, look], approvals=asking()) as thread:
        await thread.say(ASK)
        asked = (await thread.asked())[0]
        assert [row["state"] for row in await thread.rows("turns")] == ["suspended"]
        session = (await thread.rows("sessions"))[0]
        assert (session["state"], session["lease_owner"]) == ("suspended", None)
        assert [row["ended"] for row in await thread.rows("attempts")] == ["suspended"]
        assert (undo.began, look.began) == (0, 1)
        assert await statuses(thread) == ["ok", "open"]
        decided = await thread.press(Action.APPROVE, f"ap-{asked['number']}")
        assert decided.notice is None
        assert await thread.settled() == ["completed"]
        assert undo.began == 1
        assert await statuses(thread) == ["ok", "ok"]
        assert [row["ended"] for row in await thread.rows("attempts", "number")] == ["suspended", "finished"]
        row = (await thread.rows("approvals"))[0]
        assert (row["state"], row["decided_by"]) == ("approved", "U0ONCALL")
        assert all(found["ended_at"] for found in await thread.rows("suspensions"))
        assert "undo says" in results_of(thread) and "look says" in results_of(thread)
        assert not problems({"messages": thread.model.requests[-1].messages, "tools": [{"name": "look"}]})
        assert not thread.faults


@pytest.mark.parametrize("words", ["approve", "approve ap-{n}", f"<@{BOT}> approve ap-{{n}}", "approve #{n} at once"])
async def test_words_decide_as_a_button_does(sqlite_database: Database, words: str) -> None:
    undo = change()
    async with scene(sqlite_database, [answer("", ("undo", {})), DONE], [undo], approvals=asking()) as thread:
        await thread.say(ASK)
        number = (await thread.asked())[0]["number"]
        said = await thread.say(words.format(n=number), who="U0ONCALL")
        assert said.notice is None
        assert await thread.settled() == ["completed"]
        assert undo.began == 1
        signs = [row["body"] for row in await thread.rows("outbox") if row["kind"] == "reaction"]
        assert any("white_check_mark" in body for body in signs)


async def test_the_reason_of_a_denial_reaches_the_model_and_nothing_behind_it_runs(database: Database) -> None:
    before, denied, behind, look = change("before"), change("denied"), change("behind"), tool("look")
    calls_ = [("before", {}), ("denied", {"to": 40}), ("look", {}), ("behind", {})]
    lines = [answer("", *calls_), answer("I will not.")]
    async with scene(database, lines, [before, denied, behind, look], approvals=asking()) as thread:
        await thread.say(ASK)
        numbers = [row["number"] for row in await thread.asked(3)]
        several = await thread.say("approve", who="U0ONCALL")
        assert several.notice is Notice.WHICH_REQUEST
        await thread.press(Action.APPROVE, f"ap-{numbers[0]}")
        await thread.say(f"deny ap-{numbers[1]} not during the sale", who="U0ONCALL")
        assert await thread.settled() == ["completed"]
        assert (before.began, denied.began, behind.began, look.began) == (1, 0, 0, 1)
        assert await statuses(thread) == ["ok", "denied", "ok", "not_run"]
        assert await states(thread) == ["approved", "denied", "withdrawn"]
        said = results_of(thread)
        assert "not during the sale" in said and "<@U0ONCALL> denied it" in said
        assert "a change before it in the same step was denied" in said


async def test_a_request_is_decided_once_and_only_by_who_may(database: Database) -> None:
    undo = change(tier=Tier.EXTERNAL)
    async with scene(database, [answer("", ("undo", {})), DONE], [undo], approvals=asking()) as thread:
        await thread.say(ASK)
        name = f"ap-{(await thread.asked())[0]['number']}"
        assert (await thread.press(Action.APPROVE, name, rights=MAY_NOT)).notice is Notice.REFUSED_APPROVE
        assert (await thread.press(Action.APPROVE, name, who="U0ENGINEER")).notice is Notice.NEEDS_ANOTHER
        assert (await thread.press(Action.APPROVE, "ap-999")).notice is Notice.EXPIRED_CONTROL
        assert (await thread.press(Action.APPROVE, "no-id-of-ours")).notice is Notice.EXPIRED_CONTROL
        assert await states(thread) == ["open"]
        taken = await asyncio.gather(*(thread.press(Action.APPROVE, name, who=f"U0BOSS{n}") for n in range(4)))
        assert [one.notice for one in taken].count(None) == 1
        assert await thread.settled() == ["completed"]
        assert undo.began == 1


async def test_a_decision_in_another_thread_decides_nothing(sqlite_database: Database) -> None:
    async with scene(sqlite_database, [answer("", ("undo", {}))], [change()], approvals=asking()) as thread:
        await thread.say(ASK)
        await thread.asked()
        await thread.say(f"<@{BOT}> approve ap-1", who="U0ONCALL", thread="1790000777.000100")
        assert await states(thread) == ["open"]


@pytest.mark.parametrize("yes", ["ok", "lgtm", "👍", "yes, do it"])
async def test_a_bare_yes_approves_nothing_and_redirects_nothing(sqlite_database: Database, yes: str) -> None:
    async with scene(sqlite_database, [answer("", ("undo", {}))], [change()], approvals=asking()) as thread:
        await thread.say(ASK)
        number = (await thread.asked())[0]["number"]
        assert (await thread.say(yes)).notice is Notice.HOW_TO_APPROVE
        assert await states(thread) == ["open"]
        told = [row["body"] for row in await thread.rows("outbox") if row["kind"] == "ephemeral"]
        assert f"approve ap-{number}" in told[-1]


@pytest.mark.parametrize(
    "words", ["approve ap-{n}?", "approve ap-{n} after the sale", "approve ap-{n}: only one pod"]
)
async def test_an_approval_with_a_condition_is_none(sqlite_database: Database, words: str) -> None:
    async with scene(sqlite_database, [answer("", ("undo", {}))], [change()], approvals=asking()) as thread:
        await thread.say(ASK)
        number = (await thread.asked())[0]["number"]
        said = await thread.say(words.format(n=number), who="U0ONCALL")
        assert said.notice is Notice.WITH_A_CONDITION
        assert await states(thread) == ["open"]
        assert not [row for row in await thread.rows("outbox") if "white_check_mark" in row["body"]]


@pytest.mark.parametrize("level", list(Level))
async def test_a_stop_while_it_waits_ends_the_request_and_nothing_runs(database: Database, level: Level) -> None:
    undo = change()
    async with scene(database, [answer("", ("undo", {}))], [undo], approvals=asking()) as thread:
        await thread.say(ASK)
        name = f"ap-{(await thread.asked())[0]['number']}"
        await thread.stop(level)
        assert await thread.settled() == ["stopped_step" if level is Level.STEP else "cancelled"]
        assert await states(thread) == ["stopped"]
        assert await statuses(thread) == ["not_run"]
        assert (await thread.press(Action.APPROVE, name)).notice is Notice.ALREADY_ENDED
        assert undo.began == 0
        assert [row["kind"] for row in await thread.rows("outbox")].count("rewrite") == 1


async def test_a_stop_after_the_approval_still_comes_first(database: Database) -> None:
    undo = change()
    async with scene(database, [answer("", ("undo", {}))], [undo], approvals=asking()) as thread:
        await thread.say(ASK)
        name = f"ap-{(await thread.asked())[0]['number']}"
        await thread.ledger.pause(True, "U0OPERATOR")
        await thread.press(Action.APPROVE, name)
        await thread.stop()
        assert await thread.settled() == ["stopped_step"]
        assert undo.began == 0
        assert await states(thread) == ["approved"]
        assert await statuses(thread) == ["not_run"]


async def dies_after_the_approval(thread: Scene, *, intended: bool) -> None:
    """Another worker takes the approved turn, gets so far, and is never heard of again."""
    number = (await thread.asked())[0]["number"]
    await thread.ledger.pause(True, "U0OPERATOR")
    await thread.press(Action.APPROVE, f"ap-{number}")
    session = SessionId((await thread.rows("sessions"))[0]["id"])
    claimed = await thread.ledger.claim(session, "worker-that-dies", Frozen("claude-test", "", []))
    assert claimed is not None
    if intended:
        await thread.ledger.intend(claimed, claimed.steps, claimed.open_calls[0].call)
    async with thread.db.transaction() as tx:
        await tx.execute(update(sessions).values(lease_until=1.0))
    await thread.ledger.pause(False, "U0OPERATOR")


async def test_approved_and_dead_before_it_began_it_runs_once(database: Database) -> None:
    undo = change()
    async with scene(database, [answer("", ("undo", {})), DONE], [undo], approvals=asking()) as thread:
        await thread.say(ASK)
        await dies_after_the_approval(thread, intended=False)
        assert await thread.settled() == ["completed"]
        assert undo.began == 1
        assert [row["ended"] for row in await thread.rows("attempts", "number")] == [
            "suspended",
            "crashed",
            "finished",
        ]


async def test_approved_and_dead_after_it_began_its_outcome_is_unknown_and_the_task_ends(database: Database) -> None:
    undo = change()
    async with scene(database, [answer("", ("undo", {}))], [undo], approvals=asking()) as thread:
        await thread.say(ASK)
        await dies_after_the_approval(thread, intended=True)
        assert await thread.settled() == ["failed"]
        assert (await thread.rows("settles"))[0]["detail"] == "outcome_unknown"
        assert await statuses(thread) == ["unknown"]
        assert undo.began == 0


async def test_a_worker_that_goes_down_leaves_what_was_approved_to_the_next_one(database: Database) -> None:
    running, go_on = asyncio.Event(), asyncio.Event()

    async def slow(_arguments: Mapping[str, Any]) -> ToolOutput:
        running.set()
        await go_on.wait()
        return ToolOutput("first says it")

    first, second = tool("first", slow, tier=Tier.WRITE), change("second")
    lines = [answer("", ("first", {}), ("second", {}))]
    async with scene(database, lines, [first, second], approvals=asking()) as thread:
        await thread.say(ASK)
        for row in await thread.asked(2):
            await thread.press(Action.APPROVE, f"ap-{row['number']}")
        await running.wait()
        going = asyncio.ensure_future(thread.worker.drain())
        await asyncio.sleep(0)
        go_on.set()
        await going
        assert await statuses(thread) == ["ok", "open"]
        assert [row["state"] for row in await thread.rows("turns")] == ["suspended"]
    async with scene(database, [DONE], [first, second], approvals=asking(), name="worker-2") as later:
        assert await later.settled() == ["completed"]
        assert (first.began, second.began) == (1, 1)
        assert [row["ended"] for row in await later.rows("attempts", "number")] == [
            "suspended",
            "suspended",
            "finished",
        ]


async def test_a_tool_that_is_gone_after_the_approval_is_refused(sqlite_database: Database) -> None:
    made = change()
    async with scene(sqlite_database, [answer("", ("undo", {}))], [made], approvals=asking()) as thread:
        await thread.say(ASK)
        number = (await thread.asked())[0]["number"]
    async with scene(sqlite_database, [DONE], [tool("undo")], approvals=asking(), name="worker-2") as later:
        later.clock = thread.clock + 10
        await later.press(Action.APPROVE, f"ap-{number}")
        assert await later.settled() == ["completed"]
        assert "treated differently since the call was approved" in results_of(later)
        assert made.began == 0


async def test_whoever_redirects_withdraws_the_request(database: Database) -> None:
    undo = change()
    lines = [answer("", ("undo", {})), answer("As you say.")]
    async with scene(database, lines, [undo], approvals=asking()) as thread:
        await thread.say(ASK)
        await thread.asked()
        await thread.say("no, look at the database first")
        assert await thread.settled(2) == ["steered", "completed"]
        assert await states(thread) == ["withdrawn"]
        assert undo.began == 0
        sent = str(thread.model.requests[-1].messages)
        assert "a person redirected the investigation before it was approved" in sent
        assert "look at the database first" in sent


async def test_what_nobody_decides_runs_out_and_the_model_is_told(database: Database) -> None:
    undo = change()
    lines = [answer("", ("undo", {})), answer("Nobody was there.")]
    async with scene(database, lines, [undo], approvals=asking()) as thread:
        await thread.say(ASK)
        name = f"ap-{(await thread.asked())[0]['number']}"
        async with database.transaction() as tx:
            await tx.execute(update(approvals).values(expires_at=1.0))
        assert (await thread.press(Action.APPROVE, name)).notice is Notice.REQUEST_EXPIRED
        async with database.transaction() as tx:
            await tx.execute(update(suspensions).values(until=1.0))
        assert await thread.settled() == ["completed"]
        assert await states(thread) == ["expired"]
        assert "nobody approved it in time" in results_of(thread)
        assert undo.began == 0


async def test_what_was_approved_is_what_runs_or_nothing_runs(database: Database) -> None:
    undo = change()
    lines = [answer("", ("undo", {"to": 41})), DONE]
    async with scene(database, lines, [undo], approvals=asking()) as thread:
        await thread.say(ASK)
        name = f"ap-{(await thread.asked())[0]['number']}"
        async with database.transaction() as tx:
            await tx.execute(update(calls).values(arguments='{"to":1}'))
        assert (await thread.press(Action.APPROVE, name)).notice is Notice.REQUEST_EXPIRED
        assert await thread.settled() == ["completed"]
        assert undo.began == 0
        assert await statuses(thread) == ["not_run"]


async def test_a_turn_goes_on_after_a_change_and_may_ask_again(database: Database) -> None:
    undo, look = change(), tool("look")
    lines = [answer("", ("undo", {"to": 41})), answer("", ("look", {})), answer("", ("undo", {"to": 40})), DONE]
    async with scene(database, lines, [undo, look], approvals=asking()) as thread:
        await thread.say(ASK)
        for count in (1, 2):
            number = (await thread.asked())[-1]["number"]
            async with database.transaction() as tx:
                await tx.execute(update(approvals).values(message_ts=f"{count}.000001"))
            await thread.press(Action.APPROVE, f"ap-{number}")
        assert await thread.settled() == ["completed"]
        assert undo.began == 2
        shown = [row["dedupe_key"] for row in await thread.rows("outbox", "id") if row["kind"] == "rewrite"]
        assert [key.split(":")[2] for key in shown] == ["approved", "outcome"] * 2
        assert not thread.faults


async def test_where_nobody_may_approve_a_change_is_refused_at_once(sqlite_database: Database) -> None:
    undo = change()
    lines = [answer("", ("undo", {})), answer("People have to do it.")]
    async with scene(sqlite_database, lines, [undo], approvals=asking(anybody=False)) as thread:
        await thread.say(ASK)
        assert await thread.settled() == ["completed"]
        assert undo.began == 0
        assert "nobody may approve in this channel" in results_of(thread)
        assert not await thread.rows("approvals")


async def test_a_change_that_the_configuration_approves_keeps_its_place(sqlite_database: Database) -> None:
    ran: list[str] = []

    def noting(name: str) -> FakeTool:
        async def work(_arguments: Mapping[str, Any]) -> ToolOutput:
            ran.append(name)
            return ToolOutput("done")

        return tool(name, work, tier=Tier.WRITE)

    lines = [answer("", ("asked", {}), ("comment", {})), DONE]
    tools = [noting("asked"), noting("comment")]
    async with scene(sqlite_database, lines, tools, approvals=asking("comment")) as thread:
        await thread.say(ASK)
        number = (await thread.asked())[0]["number"]
        assert ran == []
        await thread.press(Action.APPROVE, f"ap-{number}")
        assert await thread.settled() == ["completed"]
        assert ran == ["asked", "comment"]


async def test_a_change_that_its_tool_knows_to_be_impossible_is_not_asked_about(sqlite_database: Database) -> None:
    class Previewing(FakeTool):
        async def preview(self, arguments: Mapping[str, Any]) -> str:
            if arguments["to"] == 99:
                raise ToolError("There is no revision 99; the newest is 42.")
            return "- image: v42\n+ image: v41"

    made = change()
    undo = Previewing(made.spec, made.work)
    lines = [answer("", ("undo", {"to": 99})), answer("", ("undo", {"to": 41})), DONE]
    async with scene(sqlite_database, lines, [undo], approvals=asking()) as thread:
        await thread.say(ASK)
        asked = await thread.asked()
        assert [row["preview"] for row in asked] == ["- image: v42\n+ image: v41"]
        assert "There is no revision 99" in results_of(thread)
        await thread.press(Action.APPROVE, f"ap-{asked[0]['number']}")
        assert await thread.settled() == ["completed"]
        assert undo.began == 1


async def test_what_needs_no_asking_waits_for_nobody_when_what_was_to_be_asked_is_impossible(
    sqlite_database: Database,
) -> None:
    class Impossible(FakeTool):
        async def preview(self, arguments: Mapping[str, Any]) -> str:
            raise ToolError("There is no such revision.")

    undo, comment = change(), change("comment")
    lines = [answer("", ("undo", {}), ("comment", {})), DONE]
    tools = [Impossible(undo.spec, undo.work), comment]
    async with scene(sqlite_database, lines, tools, approvals=asking("comment")) as thread:
        await thread.say(ASK)
        assert await thread.settled() == ["completed"]
        assert await statuses(thread) == ["error", "ok"]
        assert comment.began == 1


async def test_a_steer_that_waits_already_is_heard_before_anybody_is_asked(sqlite_database: Database) -> None:
    looking, go_on = asyncio.Event(), asyncio.Event()

    async def slow(_arguments: Mapping[str, Any]) -> ToolOutput:
        looking.set()
        await go_on.wait()
        return ToolOutput("seen")

    undo = change()
    lines = [answer("", ("look", {}), ("undo", {})), answer("As you say.")]
    tools = [tool("look", slow), undo]
    async with scene(sqlite_database, lines, tools, approvals=asking(), limits=replace(FAST, patience_s=9)) as thread:
        await thread.say(ASK)
        await looking.wait()
        await thread.say("leave it as it is")
        go_on.set()
        assert await thread.settled(2) == ["steered", "completed"]
        assert not await thread.rows("approvals")
        assert undo.began == 0
        assert await statuses(thread) == ["ok", "not_run"]


async def test_the_wait_does_not_count_as_the_time_of_the_turn(sqlite_database: Database) -> None:
    async with scene(sqlite_database, [answer("", ("undo", {})), DONE], [change()], approvals=asking()) as thread:
        await thread.say(ASK)
        await thread.press(Action.APPROVE, f"ap-{(await thread.asked())[0]['number']}")
        await thread.settled()
        worked = sum(row["ended_at"] - row["started_at"] for row in await thread.rows("attempts"))
        assert (await thread.rows("turns"))[0]["running_s"] == pytest.approx(worked)


def test_only_who_is_named_may_approve_by_default() -> None:
    assert not Rights().approve


async def test_a_request_that_outlives_its_time_is_ended_when_no_worker_comes(database: Database) -> None:
    lines = [answer("", ("undo", {})), answer("Nobody was there.")]
    async with scene(database, lines, [change()], approvals=asking()) as thread:
        watch = Watch(database)
        await thread.say(ASK)
        await thread.asked()
        assert await watch.found() == {}
        await thread.ledger.pause(True, "U0OPERATOR")
        async with database.transaction() as tx:
            await tx.execute(update(suspensions).values(until=1.0))
        assert await watch.found() == {"wait_overdue": 1}
        assert await states(thread) == ["expired"]
        assert [row["kind"] for row in await thread.rows("outbox")].count("rewrite") == 1
        await thread.ledger.pause(False, "U0OPERATOR")
        assert await thread.settled() == ["completed"]


async def test_the_story_of_a_turn_tells_who_was_asked_and_who_decided(sqlite_database: Database) -> None:
    async with scene(sqlite_database, [answer("", ("undo", {})), DONE], [change()], approvals=asking()) as thread:
        await thread.say(ASK)
        await thread.asked()
        await thread.say("deny too late for that", who="U0ONCALL")
        await thread.settled()
        async with sqlite_database.reading() as tx:
            story = await turn_story(tx, TurnId((await thread.rows("turns"))[0]["id"]))
        told = [event.words for event in timeline(story) if event.what == "approval"]
        assert told[0].startswith("ap-1 for undo of step 1 asked; digest ")
        assert told[1] == "ap-1 for undo of step 1 denied by @U0ONCALL: too late for that"


async def taken_after_the_approval(thread: Scene, worker: str) -> Claimed:
    """Another worker takes the turn whose only request was approved, and does nothing yet."""
    number = (await thread.asked())[-1]["number"]
    await thread.ledger.pause(True, "U0OPERATOR")
    await thread.press(Action.APPROVE, f"ap-{number}")
    claimed = await thread.ledger.claim(
        SessionId((await thread.rows("sessions"))[0]["id"]), worker, Frozen("claude-test", "", [])
    )
    assert claimed is not None
    return claimed


async def test_a_steer_after_the_approval_comes_before_the_change_begins(database: Database) -> None:
    """The worker that took the turn has not heard of it yet: the transaction of the intent has."""
    async with scene(database, [answer("", ("undo", {}))], [change()], approvals=asking()) as thread:
        await thread.say(ASK)
        claimed = await taken_after_the_approval(thread, "worker-2")
        await thread.say("no, look at the database first")
        with pytest.raises(Overtaken, match="a person redirected"):
            await thread.ledger.intend(claimed, claimed.steps, claimed.open_calls[0].call)
        assert await statuses(thread) == ["open"]


async def test_an_approval_that_runs_out_behind_a_slow_change_lets_nothing_begin(database: Database) -> None:
    async with scene(database, [answer("", ("undo", {}))], [change()], approvals=asking()) as thread:
        await thread.say(ASK)
        claimed = await taken_after_the_approval(thread, "worker-2")
        async with database.transaction() as tx:
            await tx.execute(update(approvals).values(expires_at=1.0))
        with pytest.raises(Overtaken, match="the approval ran out before it could run"):
            await thread.ledger.intend(claimed, claimed.steps, claimed.open_calls[0].call)
        assert await statuses(thread) == ["open"]


async def test_behind_an_approved_change_whose_outcome_is_unknown_nothing_is_run(database: Database) -> None:
    first, second = change("first"), change("second")
    lines = [answer("", ("first", {}), ("second", {}))]
    async with scene(database, lines, [first, second], approvals=asking()) as thread:
        await thread.say(ASK)
        earlier = (await thread.asked(2))[0]["number"]
        await thread.press(Action.APPROVE, f"ap-{earlier}")
        claimed = await taken_after_the_approval(thread, "worker-that-dies")
        await thread.ledger.intend(claimed, claimed.steps, claimed.open_calls[0].call)
        async with thread.db.transaction() as tx:
            await tx.execute(update(sessions).values(lease_until=1.0))
        await thread.ledger.pause(False, "U0OPERATOR")
        assert await thread.settled() == ["failed"]
        assert await statuses(thread) == ["unknown", "not_run"]
        assert (first.began, second.began) == (0, 0)
