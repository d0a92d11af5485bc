"""`pilothouse stop`, `pause` and `resume`: what operators do to running turns."""

from __future__ import annotations

import asyncio
import random
import subprocess
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from bot.ids import new_id
from bot.prices import cost_usd
from core.agent_loop import Means
from core.gateway import Gateway
from core.ledger import Surroundings, Wanted
from core.limits import Limits
from core.messages import ChannelId, SlackTs
from core.ports import ModelAnswer, ModelRequest, StreamProgress
from core.settle import Outcome, Reason
from core.turn import Stamp
from core.worker import Worker
from storage.database import Database
from storage.doorbell import LocalDoorbell
from storage.ledger.sql import SqlLedger
from storage.reports import list_turns
from tests.support.cli import PROGRAM, REPOSITORY, Run, T, happen, json_of
from tests.support.house import FROZEN, ROOT, House
from tests.support.processes import until

pytest_plugins = ["tests.e2e.cli_fixtures"]


async def _two_running(house: House) -> tuple[str, str]:
    here = await house.say("why?")
    await house.claim(here.session)
    there = await house.say("and here?", channel=ChannelId("C0RANDOM"))
    return str(here.turn), str(there.turn)


@pytest.mark.parametrize(
    ("named", "reaches"),
    [
        (lambda here: [here], [0]),
        (lambda here: [here[:5]], [0]),
        (lambda here: ["--thread", f"C0INCIDENT:{ROOT}"], [0]),
        (lambda here: ["--channel", "C0RANDOM"], [1]),
        (lambda here: ["--all"], [0, 1]),
    ],
)
def test_a_stop_reaches_what_was_named_and_nothing_else(
    cli: Run, place: Path, named: Callable[[str], list[str]], reaches: list[int]
) -> None:
    running = happen(place, _two_running)
    stopped = json_of(cli("stop", *named(running[0]), "--data", place, "--json"))["stopped"]
    assert [row["turn"] for row in stopped] == [running[place] for place in reaches]
    for number, turn in enumerate(running):
        stops = json_of(cli("turns", "show", turn, "--json", "--data", place))["stops"]
        expected = [("task", "operator")] if number in reaches else []
        assert [(stop["level"], stop["source"]) for stop in stops] == expected


def test_a_stop_of_the_step_is_one_and_can_name_who_gave_it(cli: Run, place: Path) -> None:
    turn, _ = happen(place, _two_running)
    _, out, _ = cli("stop", turn, "--step", "--as", "U0ONCALL", "--data", place)
    assert out.splitlines()[1].split()[:3] == [turn, "step", f"C0INCIDENT:{ROOT}"]
    shown = json_of(cli("turns", "show", turn, "--json", "--data", place))
    assert [(stop["level"], stop["author"]) for stop in shown["stops"]] == [("step", "U0ONCALL")]
    control = shown["messages"][-1]
    assert (control["disposition"], control["policy_row"]) == ("control", "stop_word")
    assert control["text"].startswith("stop by ")


def test_a_second_stop_of_the_same_turn_changes_nothing(cli: Run, place: Path) -> None:
    turn, _ = happen(place, _two_running)
    for _ in range(2):
        assert [row["turn"] for row in json_of(cli("stop", turn, "--data", place, "--json"))["stopped"]] == [turn]
    assert len(json_of(cli("turns", "show", turn, "--json", "--data", place))["stops"]) == 1


def test_a_stop_reaches_what_is_known_when_it_is_given_and_never_what_is_said_after_it(cli: Run, place: Path) -> None:
    async def ask(house: House) -> str:
        return str((await house.say("why?", ts=SlackTs("1790000100.000100"), dedupe_key="first")).turn)

    async def go_on(house: House) -> str:
        said = await house.say("now the db", ts=SlackTs("1790000100.000300"), dedupe_key="second")
        stopped = await house.claim(said.session)
        settled = await house.ledger.settle(stopped, Outcome(Reason.CANCELLED, stamp=Stamp.STOP), [])
        return str(settled.next_turn)

    first = happen(place, ask)
    assert cli("stop", first, "--data", place)[0] == 0
    second = happen(place, lambda house: _with_other_ids(house, go_on))
    states = [row["state"] for row in json_of(cli("turns", "list", "--json", "--data", place))]
    assert states == ["settled", "waiting"]
    assert json_of(cli("turns", "show", second, "--json", "--data", place))["stops"] == []
    assert cli("stop", second, "--data", place)[0] == 0
    assert len(json_of(cli("turns", "show", second, "--json", "--data", place))["stops"]) == 1


async def _with_other_ids(house: House, story: Callable[[House], Awaitable[T]]) -> T:
    for _ in range(50):
        house.numbers()
    return await story(house)


def test_a_turn_that_has_ended_is_not_stopped_and_says_how_it_ended(cli: Run, place: Path) -> None:
    turn = happen(place, lambda house: house.completed())
    code, out, _ = cli("stop", turn, "--data", place)
    assert (code, out) == (0, f"{turn} had ended already (completed); nothing was changed.\n")
    code, out, _ = cli("stop", "--all", "--data", place)
    assert (code, out) == (0, "Nothing is running there, so there was nothing to stop.\n")


def test_pause_and_resume_are_seen_by_every_worker(cli: Run, place: Path) -> None:
    assert json_of(cli("pause", "--data", place, "--json")) == {"paused": True}
    assert happen(place, lambda house: house.ledger.paused())
    assert cli("resume", "--data", place)[1] == "Turns start again.\n"
    assert not happen(place, lambda house: house.ledger.paused())


class _Thinks:
    """A model that never answers."""

    async def stream(self, request: ModelRequest, progress: StreamProgress) -> ModelAnswer:
        await asyncio.Event().wait()
        raise AssertionError("nobody wakes it")


class _NothingAround:
    async def read(self, wanted: Wanted) -> Surroundings:
        return Surroundings()


@pytest.mark.process
async def test_a_stop_from_another_process_ends_a_running_turn(place: Path) -> None:
    db = await Database.connect(f"sqlite+aiosqlite:///{place / 'pilothouse.db'}")
    house, limits, bell = House(db), Limits(), LocalDoorbell()
    ledger = SqlLedger(db, bell, limits, worker="w9", ids=new_id, price=cost_usd)
    means = Means(_Thinks(), Gateway([], limits, time.monotonic), ledger, limits, time.monotonic, random.random)
    troubles: list[object] = []
    worker = Worker(
        means,
        ledger,
        bell,
        lambda _session: FROZEN,
        _NothingAround(),
        name="w9",
        slots=4,
        settled=lambda *_: None,
        fault=lambda *what: troubles.append(what),
        trouble=troubles.append,
    )
    working = asyncio.ensure_future(worker.run())
    try:
        turn = (await house.say("why?", thread_ts=SlackTs("1790000001.000100"))).turn
        await until(lambda: _is(db, "state", "running"))
        stopping = await asyncio.create_subprocess_exec(
            *PROGRAM, "stop", str(turn), "--data", str(place), cwd=REPOSITORY, stdout=subprocess.DEVNULL
        )
        assert await stopping.wait() == 0
        await until(lambda: _is(db, "reason", "cancelled"))
        assert troubles == []
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        await worker.drain()
        await db.close()


async def _is(db: Database, column: str, value: str) -> bool:
    async with db.reading() as tx:
        return [row[column] for row in await list_turns(tx)] == [value]
