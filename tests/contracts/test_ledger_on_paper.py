"""The ledger on paper that the tests of the core work with says what the real one says, decision by decision."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from core.control import Mail
from core.errors import LostLease, Overtaken, Stopped
from core.gateway import CallResult, CallStatus
from core.history import flatten
from core.ledger import Claimed, Frozen, Ledger
from core.messages import Epoch, Level
from core.ports import Tier
from core.remediation import EmptyCause, Rung
from core.settle import Outcome, Reason
from core.turn import Stamp
from storage.database import Database
from tests.core.doubles import STEP, TASK, PaperLedger, answer, call
from tests.support.scene import BOT, scene

Script = Callable[[Ledger, Claimed], Awaitable[object]]

LOOK = answer("I look.", ("look", {}))
ANSWER = Outcome(Reason.COMPLETED, answer=[{"type": "text", "text": "Fine."}], answer_text="Fine.")


def _call(tier: Tier = Tier.READ) -> Any:
    return call("look", tier, position=0, call_id=LOOK.content[1]["id"])


async def opens(ledger: Ledger, turn: Claimed) -> object:
    return await ledger.open(turn, 1, LOOK.content, [_call()], [])


async def intends(ledger: Ledger, turn: Claimed) -> object:
    return await ledger.intend(turn, 1, _call(Tier.WRITE))


def closes(status: CallStatus, probe: Callable[[int], Stamp | None]) -> Script:
    async def script(ledger: Ledger, turn: Claimed) -> object:
        closed = await ledger.close(turn, 1, [CallResult(_call(), status, "x")], probe)
        return closed.stamp, closed.stop and closed.stop.level

    return script


def drops(stamp: Stamp) -> Script:
    async def script(ledger: Ledger, turn: Claimed) -> object:
        closed = await ledger.drop(turn, stamp, [])
        return closed.stamp, closed.stop and closed.stop.level

    return script


async def climbs(ledger: Ledger, turn: Claimed) -> object:
    mail = await ledger.climb(turn, Rung.ASK_AGAIN, EmptyCause.NOTHING, "again", [])
    return mail.stop and mail.stop.level, mail.steers


async def mails(ledger: Ledger, turn: Claimed) -> object:
    mail = await ledger.mail(turn.lease.session, turn.turn)
    return mail.stop and mail.stop.level, mail.steers


async def settles(ledger: Ledger, turn: Claimed) -> object:
    return (await ledger.settle(turn, ANSWER, [])).reason


async def reads_back(ledger: Ledger, turn: Claimed) -> object:
    await ledger.climb(turn, Rung.ASK_AGAIN, EmptyCause.NOTHING, "again", [])
    return [(role, block["text"]) for role, block in flatten(await ledger.history(turn.lease.session))][-1:]


SCRIPTS: dict[str, Script] = {
    "open": opens,
    "intend": intends,
    "close, nobody asks": closes(CallStatus.OK, lambda _steers: None),
    "close, steers are asked for": closes(CallStatus.OK, lambda steers: Stamp.STEER if steers else None),
    "close, draining": closes(CallStatus.OK, lambda steers: Stamp.STEER if steers else Stamp.DRAIN),
    "close, unknown": closes(CallStatus.UNKNOWN, lambda _steers: Stamp.DRAIN),
    "drop for a steer": drops(Stamp.STEER),
    "drop for a drain": drops(Stamp.DRAIN),
    "drop for a stop": drops(Stamp.STOP),
    "climb": climbs,
    "mail": mails,
    "settle": settles,
    "history": reads_back,
}

MAILS = {
    "nothing": Mail(),
    "a steer": Mail(steers=1),
    "a stop of the step": Mail(STEP),
    "a cancel": Mail(TASK),
    "a steer and then a cancel": Mail(TASK),
}
"""A stop takes away the steers that are older than it, so both never wait together."""


async def told(script: Script, ledger: Ledger, turn: Claimed) -> object:
    try:
        return await script(ledger, turn)
    except (Overtaken, Stopped, LostLease) as error:
        return type(error)


@pytest.mark.parametrize("mail", MAILS)
@pytest.mark.parametrize("old_epoch", [False, True], ids=["ours", "lost"])
async def test_paper_and_database_decide_alike(sqlite_database: Database, mail: str, old_epoch: bool) -> None:
    for name, script in SCRIPTS.items():
        async with scene(sqlite_database, [], running=False, name=f"w-{name}") as thread:
            root = f"179000{list(SCRIPTS).index(name):02d}00.000100"
            arrived = await thread.say(f"<@{BOT}> why?", ts=root, thread=root)
            assert arrived.session is not None
            turn = await thread.ledger.claim(arrived.session, f"w-{name}", Frozen("m", "s", []))
            assert turn is not None
            if name.startswith("close"):
                await opens(thread.ledger, turn)
            if "steer" in mail:
                await thread.say("look at the gateway", thread=root, ts=_later(root, 1))
            if "stop" in mail or "cancel" in mail:
                await thread.say("stop" if "stop" in mail else "cancel", thread=root, ts=_later(root, 2))
            held = replace(turn, lease=replace(turn.lease, epoch=Epoch(99))) if old_epoch else turn
            paper = PaperLedger(box=MAILS[mail], lost=old_epoch)
            assert await told(script, paper, held) == await told(script, thread.ledger, held), name


def _later(ts: str, seconds: int) -> str:
    return f"{int(ts[:10]) + seconds}.000100"


def test_the_levels_are_those_of_the_stops_on_paper() -> None:
    assert (STEP.level, TASK.level) == (Level.STEP, Level.TASK)
