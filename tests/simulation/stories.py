"""The stories in which workers die: what the model plays, what people do, and what must be true at the end."""

from __future__ import annotations

import math
from collections.abc import Sequence

from core.messages import Action
from tests.simulation.clock import EPOCH_S, run_virtual
from tests.simulation.files import Files
from tests.simulation.laws_of_approvals import CONFIGURATION
from tests.simulation.people import Kind, Person
from tests.simulation.snapshot import Row, Snapshot
from tests.simulation.stage import Stage, Story

RECORDED_S = 0.1
"""After this time a result must be there for the next worker. (`core.batch` takes half of it.)"""


async def ask(stage: Stage) -> None:
    await stage.say(stage.thread.typed(Kind.MENTION, Person.ENGINEER, 1.0))


def works(words: str, step: int) -> str | Sequence[str]:
    """Three reads at once, one of them slow; a change beside reads; an answer. Redirected, a change at once."""
    if words == "w0001":
        return [["look", "read", "slow"], ["look", "change", "slow"], "It was the gateway."][min(step, 2)]
    return [["change"], "It is the gateway."][min(step, 1)]


def has_nothing_to_say(words: str, step: int) -> str | Sequence[str]:
    return ["look"] if step == 0 else ""


async def redirects(stage: Stage) -> None:
    """While the slow read runs somebody knows better."""
    await ask(stage)
    await stage.log.event("slow").wait()
    await stage.say(stage.thread.typed(Kind.REPLY, Person.ONCALL, 1.0))


async def redirects_while_it_writes(stage: Stage) -> None:
    await ask(stage)
    await stage.log.event("asked w0001 1").wait()
    await stage.say(stage.thread.typed(Kind.REPLY, Person.ONCALL, 1.0))


async def stops(stage: Stage) -> None:
    """While the change runs somebody stops it, and goes on from there."""
    await ask(stage)
    await stage.log.event("change").wait()
    await stage.say(stage.thread.typed(Kind.STOP_AND, Person.ONCALL, 1.0))
    await stage.until(lambda now: now["settles"])
    await stage.say(stage.thread.typed(Kind.REPLY, Person.ONCALL, 1.0))


async def stops_while_it_writes(stage: Stage) -> None:
    await ask(stage)
    await stage.log.event("asked w0001 1").wait()
    await stage.say(stage.thread.typed(Kind.STOP, Person.ONCALL, 1.0))


async def queues(stage: Stage) -> None:
    """Something is to be done afterwards: not before a person has looked, if nobody knows what the change did."""
    await ask(stage)
    await stage.log.event("change").wait()
    await stage.say(stage.thread.typed(Kind.AFTER, Person.ENGINEER, 1.0))


async def an_alert(stage: Stage) -> None:
    await stage.say(stage.thread.alert(1.0))


def proposes(words: str, step: int) -> str | Sequence[str]:
    """A change that people are asked about; redirected, an answer at once."""
    if words == "w0001":
        return [["look", "undo"], "It is undone."][min(step, 1)]
    return "It is the gateway."


def proposes_more(words: str, step: int) -> str | Sequence[str]:
    """Several changes beside reads, with one among them that needs no asking."""
    return [["undo", "read", "change", "undo", "undo"], "Some of it is done."][min(step, 1)]


async def asks_for(stage: Stage, requests: int = 1) -> list[str]:
    """Ask, and wait until people are asked: the names of the requests for what needs their approval."""
    await ask(stage)
    await stage.until(lambda now: len(asked_about(now)) >= requests)
    return asked_about(stage.now())


def asked_about(now: Snapshot) -> list[str]:
    return [f"ap-{row['number']}" for row in now["approvals"] if row["decided_by"] != CONFIGURATION]


async def decides(stage: Stage, action: Action, request: str, person: Person = Person.ONCALL) -> None:
    await stage.say(stage.thread.clicked(action, request, person, 1.0))


async def approves(stage: Stage) -> None:
    """Somebody who may not presses first, then two who may at once; a bare yes is none."""
    (request,) = await asks_for(stage)
    await decides(stage, Action.APPROVE, request, Person.ENGINEER)
    await stage.say(stage.thread.typed(Kind.YES, Person.ENGINEER, 1.0))
    await decides(stage, Action.APPROVE, request)
    await decides(stage, Action.DENY, request)


async def denies_one(stage: Stage) -> None:
    first, second, _ = await asks_for(stage, 3)
    await stage.say(stage.thread.ruled(f"approve {first}", Person.ONCALL, 1.0))
    await stage.say(stage.thread.typed(Kind.APPROVE, Person.ONCALL, 1.0))
    await stage.say(stage.thread.ruled(f"deny {second} not now", Person.ONCALL, 1.0))


async def redirects_after_the_approval(stage: Stage) -> None:
    """While the approved change runs somebody knows better."""
    (request,) = await asks_for(stage)
    await decides(stage, Action.APPROVE, request)
    await stage.log.event("undo").wait()
    await stage.say(stage.thread.typed(Kind.REPLY, Person.ONCALL, 1.0))


async def redirects_at_once(stage: Stage) -> None:
    """Approved, and redirected before any worker has heard of it."""
    (request,) = await asks_for(stage)
    await decides(stage, Action.APPROVE, request)
    await stage.say(stage.thread.typed(Kind.REPLY, Person.ONCALL, 1.0))


async def stops_while_asked(stage: Stage) -> None:
    """Stopped while people are asked; the press on the button comes too late."""
    (request,) = await asks_for(stage)
    await stage.say(stage.thread.typed(Kind.STOP, Person.ENGINEER, 1.0))
    await decides(stage, Action.APPROVE, request)


STORIES = {
    "a turn with a change": Story(works, ask, ["completed"]),
    "a redirection in a batch": Story(works, redirects, ["steered", "completed"]),
    "a redirection of a half answer": Story(works, redirects_while_it_writes, ["steered", "completed"]),
    "a stop while a change runs": Story(works, stops, ["stopped_step", "completed"]),
    "a stop that nobody hears": Story(works, stops_while_it_writes, ["stopped_step"], rings=False),
    "a change that breaks": Story(works, queues, ["failed"], {"change": RuntimeError("gone")}),
    "nothing to say": Story(has_nothing_to_say, an_alert, ["empty"]),
    "a change that is approved": Story(proposes, approves, ["completed"]),
    "changes of which one is denied": Story(proposes_more, denies_one, ["completed"]),
    "a change that nobody decides about": Story(proposes, ask, ["completed"], valid_s=8.0),
    "a redirection of an approved change": Story(proposes, redirects_after_the_approval, ["steered", "completed"]),
    "a redirection that nobody hears": Story(proposes, redirects_at_once, ["steered", "completed"], rings=False),
    "a stop while people are asked": Story(proposes, stops_while_asked, ["stopped_step"]),
}


def play(
    name: str, files: Files, deaths: Sequence[int] = (), *, process: str = "", by_signal: bool = False
) -> tuple[Stage, Snapshot]:
    """The story once: from the beginning, or for a later `process` with what the one before it has left."""
    if not process:
        files.fresh()

    async def whole() -> tuple[Stage, Snapshot]:
        stage = Stage(STORIES[name], files, process=process)
        return stage, await stage.play(deaths, by_signal=by_signal)

    return run_virtual(whole())


def reasons(now: Snapshot) -> list[str]:
    """Why the turns ended, in order."""
    return [settle["reason"] for settle in now["settles"]]


def finished(stage: Stage, now: Snapshot) -> None:
    """Every turn has one end, and what is said of every call is true."""
    assert now["turns"], "nothing was asked"
    assert [row["turn_id"] for row in now["settles"]] == [row["id"] for row in now["turns"]], "a turn has no end"
    assert not now["repairs"], "the suture had to mend a history"
    began, kept = stage.log.began, long_ended(stage)
    for call in now["calls"]:
        name, status = call["call_id"], call["status"]
        if status == "ok":
            assert call["output"] == f"{call['tool']} said this to {name}", f"{name} did not say that"
        if status in ("ok", "unknown", "error", "timeout"):
            assert began[name] == 1 or status == "unknown", f"{name} is {status}, but never began"
        assert name not in kept or status == "ok" or stage.story.faults, f"{name} had its result, and it was lost"
        if call["tier"] == "write" and began[name]:
            assert status in ("ok", "unknown"), f"{name} began, and is said to be {status}"
    for request in now.of("approvals", state="approved"):
        assert runs_or_may_not(now, request), f"ap-{request['number']} was approved, and not run"
    for settle in now["settles"]:
        unknown = now.of("calls", turn_id=settle["turn_id"], status="unknown")
        assert (settle["reason"] == "failed") == bool(unknown), (
            f"{settle['reason']} with {len(unknown)} unknown calls"
        )


def runs_or_may_not(now: Snapshot, request: Row) -> bool:
    """Whether what was approved has run, or had a reason not to: words of people, its time, or what was before."""
    call = now.one("calls", id=request["call_row"])
    settle = now.one("settles", turn_id=request["turn_id"])
    assert call is not None and settle is not None
    if call["status"] in ("ok", "unknown") or settle["reason"] not in ("completed", "failed"):
        return True
    before = [row for row in now.of("calls", turn_id=call["turn_id"], step=call["step"]) if row["id"] < call["id"]]
    kept = any(row["status"] in ("denied", "unknown") for row in before)
    return kept or bool(call["ended_at"] >= request["expires_at"])


def long_ended(stage: Stage) -> set[str]:
    """The calls that had ended a while before their worker died: there was time enough to record them."""
    deaths = [EPOCH_S + life.died_at for life in stage.lives if life.died_at != math.inf]
    return {call for call, at in stage.log.ended.items() if not any(at <= died < at + RECORDED_S for died in deaths)}
