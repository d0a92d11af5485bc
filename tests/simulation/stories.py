"""The stories in which workers die: what the model plays, what people do, and what must be true at the end."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tests.simulation.clock import EPOCH_S, run_virtual
from tests.simulation.files import Files
from tests.simulation.people import Kind, Person
from tests.simulation.snapshot import Snapshot
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


STORIES = {
    "a turn with a change": Story(works, ask, ["completed"]),
    "a redirection in a batch": Story(works, redirects, ["steered", "completed"]),
    "a redirection of a half answer": Story(works, redirects_while_it_writes, ["steered", "completed"]),
    "a stop while a change runs": Story(works, stops, ["stopped_step", "completed"]),
    "a stop that nobody hears": Story(works, stops_while_it_writes, ["stopped_step"], rings=False),
    "a change that breaks": Story(works, queues, ["failed"], {"change": RuntimeError("gone")}),
    "nothing to say": Story(has_nothing_to_say, an_alert, ["empty"]),
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
    for settle in now["settles"]:
        unknown = now.of("calls", turn_id=settle["turn_id"], status="unknown")
        assert (settle["reason"] == "failed") == bool(unknown), (
            f"{settle['reason']} with {len(unknown)} unknown calls"
        )


def long_ended(stage: Stage) -> set[str]:
    """The calls that had ended a while before their worker died: there was time enough to record them."""
    deaths = [EPOCH_S + life.died_at for life in stage.lives if life.died_at != math.inf]
    return {call for call, at in stage.log.ended.items() if not any(at <= died < at + RECORDED_S for died in deaths)}
