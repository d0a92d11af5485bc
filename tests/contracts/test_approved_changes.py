"""What was asked about and what stands beside it in a step: it runs once and in its place, or not at all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from sqlalchemy import update

from core.approvals import ApprovalPolicy
from core.errors import ToolError
from core.ledger import Claimed, Frozen
from core.messages import Action, Arrival, ChannelId, Marker, SessionId, SlackTs, Source, TurnId, UserId, Who
from core.notices import Notice
from core.ports import Tier
from storage.database import Database
from storage.tables import sessions
from tests.support.scene import BOT, EVERYTHING, FakeTool, Scene, answer, scene, tool

ASK = f"<@{BOT}> checkout answers 5xx, put it right"
DONE = answer("Done.")


def asking(*preapproved: str) -> Callable[[ChannelId], ApprovalPolicy]:
    return lambda _channel: ApprovalPolicy(True, frozenset(preapproved))


def change(name: str = "undo") -> FakeTool:
    return tool(name, tier=Tier.WRITE)


async def statuses(thread: Scene) -> list[str]:
    return [row["status"] for row in await thread.rows("calls", "step, position")]


async def claimed_elsewhere(thread: Scene) -> Claimed:
    session = SessionId((await thread.rows("sessions"))[0]["id"])
    claimed = await thread.ledger.claim(session, "worker-that-dies", Frozen("claude-test", "", []))
    assert claimed is not None
    return claimed


async def never_heard_of_again(thread: Scene) -> None:
    async with thread.db.transaction() as tx:
        await tx.execute(update(sessions).values(lease_until=1.0))


async def approved_while_paused(thread: Scene, count: int = 1) -> None:
    asked = await thread.asked(count)
    await thread.ledger.pause(True, "U0OPERATOR")
    for row in asked:
        await thread.press(Action.APPROVE, f"ap-{row['number']}")


async def test_a_turn_that_is_given_up_runs_nothing_any_more(sqlite_database: Database) -> None:
    undo = change()
    async with scene(sqlite_database, [answer("", ("undo", {}))], [undo], approvals=asking()) as thread:
        await thread.say(ASK)
        await approved_while_paused(thread)
        for _ in range(3):
            await claimed_elsewhere(thread)
            await never_heard_of_again(thread)
        await thread.ledger.pause(False, "U0OPERATOR")
        assert await thread.settled() == ["abandoned"]
        assert await statuses(thread) == ["not_run"]
        assert undo.began == 0


async def test_with_nothing_left_to_decide_what_needs_no_approval_runs_at_once(sqlite_database: Database) -> None:
    class Impossible(FakeTool):
        async def preview(self, arguments: Mapping[str, Any]) -> str:
            raise ToolError("There is no revision 99; the newest is 42.")

    made, comment = change(), change("comment")
    undo = Impossible(made.spec, made.work)
    lines = [answer("", ("undo", {"to": 99}), ("comment", {})), DONE]
    async with scene(sqlite_database, lines, [undo, comment], approvals=asking("comment")) as thread:
        await thread.say(ASK)
        assert await thread.settled() == ["completed"]
        assert await statuses(thread) == ["error", "ok"]
        assert (undo.began, comment.began) == (0, 1)
        assert not await thread.rows("approvals")


async def retry(thread: Scene, turn: str, who: str) -> None:
    at = thread.ts()
    await thread.mailbox.arrive(
        Arrival(
            source=Source.BUTTON,
            marker=Marker.NONE,
            who=Who.MEMBER,
            rights=EVERYTHING,
            author=UserId(who),
            team="T0HOME",
            channel=ChannelId("C0INCIDENT"),
            thread_ts=SlackTs("1790000000.000100"),
            ts=at,
            dedupe_key=f"act:{at}:{who}",
            only_in_session=True,
            action=Action.RETRY,
            subject=turn,
            turn_id=TurnId(turn),
        )
    )


async def test_whose_words_are_tried_again_is_not_the_second_person(database: Database) -> None:
    undo = tool("undo", tier=Tier.EXTERNAL)
    lines = [answer("I could not."), answer("Nor now."), answer("", ("undo", {})), DONE]
    async with scene(database, lines, [undo], approvals=asking()) as thread:
        await thread.say(ASK, who="U0ASKED")
        for count, who in enumerate(("U0OTHER", "U0THIRD"), start=1):
            await thread.settled(count)
            await retry(thread, (await thread.rows("turns", "number"))[-1]["id"], who)
        name = f"ap-{(await thread.asked())[0]['number']}"
        for author in ("U0ASKED", "U0OTHER", "U0THIRD"):
            assert (await thread.press(Action.APPROVE, name, who=author)).notice is Notice.NEEDS_ANOTHER
        assert (await thread.press(Action.APPROVE, name, who="U0ONCALL")).notice is None
        assert await thread.settled(3) == ["completed"] * 3
        assert undo.began == 1


@pytest.mark.parametrize("text", ["half \ud83d", "nul \x00 and \x1b", "\u2028 line", "1e400", "ｆｕｌｌ"])
async def test_an_argument_that_no_database_keeps_as_it_is_can_be_approved_as_it_is_kept(
    database: Database, text: str
) -> None:
    undo = change()
    lines = [answer("", ("undo", {"note": text, "number": 1.0})), DONE]
    async with scene(database, lines, [undo], approvals=asking()) as thread:
        await thread.say(ASK)
        name = f"ap-{(await thread.asked())[0]['number']}"
        assert (await thread.press(Action.APPROVE, name)).notice is None
        assert await thread.settled() == ["completed"]
        assert undo.began == 1


async def test_a_name_that_no_database_keeps_is_a_tool_that_is_not_there(database: Database) -> None:
    lines = [answer("", ("\ud83d\x00" + "undo" * 80, {})), DONE]
    async with scene(database, lines, [change()], approvals=asking()) as thread:
        await thread.say(ASK)
        assert await thread.settled() == ["completed"]
        assert await statuses(thread) == ["refused"]
        assert not thread.faults
