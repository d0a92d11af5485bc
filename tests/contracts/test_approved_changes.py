"""What was asked about and what stands beside it in a step: it runs once and in its place, or not at all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import update

from core.approvals import ApprovalPolicy
from core.errors import ToolError
from core.ledger import Claimed, Frozen
from core.messages import Action, ChannelId, SessionId
from core.ports import Tier
from storage.database import Database
from storage.tables import sessions
from tests.support.scene import BOT, FakeTool, Scene, answer, scene, tool

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
