"""Story 11: whatever happens to a session, in whatever order, the laws hold.

People send, Slack delivers late, twice and in the wrong order, two workers claim, open, record, close, drop, climb
and settle, die, sleep through their lease and wake up again. Hypothesis makes up the orders and finds the shortest
one that breaks a law; random walks go further. A run is the same every time, and what failed names its seed:
`SIMULATION_SEED=n` goes other ways, `SIMULATION_EXAMPLES=n` and `SIMULATION_WALKS=n` more of them.
"""

from __future__ import annotations

import os
from collections.abc import Coroutine, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from core.messages import Action, Arrival, SlackTs
from tests.simulation.clock import SharedClock
from tests.simulation.decisions import Decisions
from tests.simulation.files import Files, in_memory
from tests.simulation.people import Kind, Person, Thread
from tests.simulation.world import World

SEED = int(os.environ.get("SIMULATION_SEED", "20261107"))
EXAMPLES = int(os.environ.get("SIMULATION_EXAMPLES", "40"))
WALKS = int(os.environ.get("SIMULATION_WALKS", "25"))
STEPS = 40

persons = st.sampled_from([Person.ENGINEER, Person.ENGINEER, Person.ONCALL, Person.PASSER_BY, Person.GUEST])
kinds = st.sampled_from([Kind.REPLY, Kind.MENTION, Kind.AFTER, Kind.REPLY, *Kind])
pauses = st.sampled_from([1.0, 0.2, 3.0, 40.0])
late = st.sampled_from([False, False, True])
numbers = st.integers(0, 11)
decisions = st.lists(st.tuples(numbers, numbers), min_size=1, max_size=5)
PRESSES = ("redirect", "retry", "redirect", "step", "task", "native", "sign")
BUTTONS = {"step": Action.STOP_STEP, "task": Action.CANCEL_TASK, "retry": Action.RETRY}
SUDDEN = (Kind.STOP, Kind.STOP_AND, Kind.CANCEL, Kind.REPLY)
RULINGS = ("press approve", "press approve", "press approve", "press deny", "approve {name}", "deny {name} no")
breaks = st.sampled_from([0.0, 0.0, 2.0, 26.0])
deciders = st.sampled_from([Person.ONCALL, Person.ONCALL, Person.ONCALL, Person.ENGINEER, Person.GUEST])
STOPS = frozenset({Kind.STOP, Kind.STOP_AND, Kind.STOP_TO_US, Kind.CANCEL})


class Session(RuleBasedStateMachine):
    """One thread, its people, and two workers."""

    files: ClassVar[Files]

    def __init__(self) -> None:
        super().__init__()
        self.loop = SharedClock()
        self.world = World(self.files, self.loop)
        self.decisions = Decisions(self.world)
        self.run(self.world.open())
        self.typed: list[Arrival] = []
        self.wire: list[Arrival] = []

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(work)

    @initialize(at_the_root=st.booleans(), calm=st.booleans())
    def somebody_asks(self, at_the_root: bool, calm: bool) -> None:
        """Some threads begin with the question, some were there before. In a calm one nobody says stop."""
        self.calm = calm
        self.thread = Thread(SlackTs("1789999000.000100"))
        if at_the_root:
            self.thread.root = SlackTs("1790000001.000001")
        self.somebody_types(Kind.MENTION, Person.ENGINEER, 1.0, late=False)

    # -- people

    def calmed(self, kind: Kind) -> Kind:
        return Kind.REPLY if self.calm and kind in STOPS else kind

    def send(self, arrival: Arrival, late: bool) -> None:
        self.wire.append(arrival)
        if not late:
            self.run(self.world.deliver(arrival))

    @rule(kind=kinds, person=persons, after_s=pauses, late=late)
    def somebody_types(self, kind: Kind, person: Person, after_s: float, late: bool) -> None:
        if person is Person.GUEST and kind is Kind.AFTER:
            self.send(self.thread.alert(after_s), late)
            return
        arrival = self.thread.typed(self.calmed(kind), person, after_s)
        self.typed.append(arrival)
        self.send(arrival, late)

    @rule(which=numbers, kind=st.none() | kinds, after_s=pauses)
    def a_message_is_changed(self, which: int, kind: Kind | None, after_s: float) -> None:
        """Edited, or deleted."""
        message = self.typed[-1 - which % len(self.typed)]
        if kind is None:
            self.send(self.thread.deleted(message, after_s), late=False)
        else:
            self.send(self.thread.edited(message, self.calmed(kind), after_s), late=False)

    @rule(how=st.sampled_from(PRESSES), which=numbers, person=persons, late=late)
    def something_is_pressed(self, how: str, which: int, person: Person, late: bool) -> None:
        """A button of ours, Slack's own stop, or a stop sign on a message."""
        thread, now = self.thread, self.world.snapshot()
        match "redirect" if self.calm and how != "retry" else how:
            case "native":
                self.send(thread.native_stop(person, 1.0), late)
            case "sign":
                self.send(thread.stop_reaction(self.typed[-1 - which % len(self.typed)], person, 1.0), late)
            case "redirect":
                notes = now.of("messages", disposition="note")
                if notes:
                    subject = notes[-1 - which % len(notes)]["id"]
                    self.send(thread.clicked(Action.REDIRECT_NOW, subject, person, 1.0), late)
            case button:
                subject = now["cards"][-1 - which % len(now["cards"])]["turn_id"] if now["cards"] else "none"
                self.send(thread.clicked(BUTTONS[button], subject, person, 1.0), late)

    @precondition(lambda self: self.world.snapshot()["approvals"])
    @rule(which=numbers, how=st.sampled_from(RULINGS), person=deciders, late=late)
    def somebody_decides(self, which: int, how: str, person: Person, late: bool) -> None:
        """A button of a request, or words that name one, however old it is."""
        found = self.world.snapshot()["approvals"]
        name = f"ap-{found[-1 - which % len(found)]['number']}" if found else "ap-1"
        match how:
            case "press approve":
                self.send(self.thread.clicked(Action.APPROVE, name, person, 1.0), late)
            case "press deny":
                self.send(self.thread.clicked(Action.DENY, name, person, 1.0), late)
            case words:
                self.send(self.thread.ruled(words.format(name=name), person, 1.0), late)

    @rule(number=st.integers(0, 1), choice=st.sampled_from([4, 5, 6, 7, 13, 15]))
    def a_worker_asks_people(self, number: int, choice: int) -> None:
        if number not in self.world.jobs:
            self.work(number, [(0, 0)])
        for action in ("open", "suspend"):
            job = self.world.jobs.get(number)
            if job is not None and action in job.may() and not self.run(self.decisions.work(job, action, choice)):
                self.give_up(number)

    @precondition(lambda self: self.world.snapshot().of("approvals", state="open"))
    @rule(number=st.integers(0, 1), denied=st.integers(0, 5), goes_on=st.integers(0, 4), pause_s=breaks)
    def everything_is_decided_and_a_worker_goes_on(
        self, number: int, denied: int, goes_on: int, pause_s: float
    ) -> None:
        """All requests are approved, or all but one; the turn is taken up, and sometimes by another one too."""
        for place, row in enumerate(self.world.snapshot().of("approvals", state="open")):
            action = Action.DENY if place == denied else Action.APPROVE
            self.send(self.thread.clicked(action, f"ap-{row['number']}", Person.ONCALL, 1.0), late=False)
        if number not in self.world.jobs:
            self.work(number, [(0, 0)])
        self.loop.pass_time(pause_s)
        for _ in range(goes_on):
            job = self.world.jobs.get(number)
            eager = [action for action in ("intend", "record") if job is not None and action in job.may()]
            if job is not None and eager and not self.run(self.decisions.work(job, eager[0], goes_on)):
                self.give_up(number)
        if pause_s:
            self.a_worker_dies(number, again_as_itself=False, waits_s=16.0)
            self.work(number, [(0, 0)])

    @rule(which=numbers)
    def slack_delivers_late_or_again(self, which: int) -> None:
        self.run(self.world.deliver(self.wire[-1 - which % len(self.wire)]))

    # -- workers

    def work(self, number: int, choices: Sequence[tuple[int, int]]) -> None:
        """Some decisions of one worker in a row, with a claim when it has nothing."""
        for action, choice in choices:
            job = self.world.jobs.get(number)
            if job is None:
                self.run(self.decisions.claim(number, read_on=choice < 11))
            elif not self.run(self.decisions.work(job, job.may()[action % len(job.may())], choice)):
                self.give_up(number)

    def give_up(self, number: int) -> None:
        self.world.stale.append(self.world.jobs.pop(number))

    @rule(choices=decisions)
    def one_worker_works(self, choices: Sequence[tuple[int, int]]) -> None:
        self.work(0, choices)

    @rule(choices=decisions)
    def the_other_worker_works(self, choices: Sequence[tuple[int, int]]) -> None:
        self.work(1, choices)

    @rule(choices=decisions)
    def one_worker_works_again(self, choices: Sequence[tuple[int, int]]) -> None:
        self.work(0, choices)

    @rule(number=st.integers(0, 1), kind=st.sampled_from(SUDDEN), person=persons, choice=numbers)
    def somebody_is_a_little_faster(self, number: int, kind: Kind, person: Person, choice: int) -> None:
        """Words come in just before a worker starts something, or closes it."""
        if number not in self.world.jobs:
            self.work(number, [(0, 0)])
        self.somebody_types(kind=kind, person=person, after_s=1.0, late=False)
        job = self.world.jobs.get(number)
        if job is not None:
            eager = [action for action in ("intend", "suspend", "open", "close", "settle") if action in job.may()]
            if not self.run(self.decisions.work(job, eager[0], choice)):
                self.give_up(number)

    @rule(number=st.integers(0, 1), again_as_itself=st.booleans(), waits_s=st.sampled_from([0.0, 16.0]))
    def a_worker_dies(self, number: int, again_as_itself: bool, waits_s: float) -> None:
        if number in self.world.jobs:
            self.give_up(number)
        if not again_as_itself:
            self.world.names[number] += "'"
        self.loop.pass_time(waits_s)

    @precondition(lambda self: self.world.stale)
    @rule(which=numbers, choices=decisions)
    def a_worker_that_was_given_up_wakes(self, which: int, choices: Sequence[tuple[int, int]]) -> None:
        """It still believes in its lease. Where it is right, it is a worker that only took a long breath."""
        job = self.world.stale[-1 - which % len(self.world.stale)]
        for action, choice in choices:
            if not self.run(self.decisions.is_current(job)):
                may = job.may()
                self.run(self.decisions.work(job, may[action % len(may)], choice))

    @rule(number=st.integers(0, 1), seconds=st.sampled_from([0.0, 2.0, 10.0, 16.0, 90.0]))
    def time_passes(self, number: int, seconds: float) -> None:
        self.loop.pass_time(seconds)
        self.run(self.decisions.renew(number))
        self.run(self.world.sweep())

    # -- what must be true

    @invariant()
    def the_laws_hold(self) -> None:
        self.world.look()

    def teardown(self) -> None:
        try:
            self.run(self.world.deliver_the_rest(self.wire))
            self.run(self.decisions.bring_to_an_end())
        finally:
            self.run(self.world.close())
            self.loop.close()


@pytest.fixture
def session(sqlite_template: Path) -> Iterator[type[Session]]:
    with in_memory(sqlite_template) as files:
        Session.files = files
        yield Session


def test_the_laws_hold_whatever_the_order(session: type[Session]) -> None:
    bounds = settings(
        max_examples=EXAMPLES,
        stateful_step_count=STEPS,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(seed(SEED)(session), settings=bounds)


@pytest.mark.parametrize("walk", range(SEED, SEED + WALKS))
def test_the_laws_hold_on_a_long_way(session: type[Session], walk: int) -> None:
    """Sixty steps at random, all equally likely: further than Hypothesis goes before it tires."""
    random = Random(walk)
    machine = session()
    try:
        machine.somebody_asks(at_the_root=random.random() < 0.5, calm=random.random() < 0.4)
        for _ in range(60):
            step(machine, random)
            machine.world.look()
    except BaseException:
        machine.run(machine.world.close())
        raise
    machine.teardown()


def step(machine: Session, random: Random) -> None:
    """One thing that happens to `machine`."""
    which, late, number = random.randrange(12), random.random() < 0.3, random.randrange(2)
    person = random.choice([*Person, Person.ENGINEER, Person.ENGINEER, Person.ONCALL])
    kind, after_s = random.choice([*Kind, *[Kind.REPLY] * 3]), random.choice([0.2, 1.0, 3.0, 40.0])
    choices = [(random.randrange(12), random.randrange(12)) for _ in range(random.randint(1, 5))]
    match random.randrange(19):
        case 0 | 1 | 2:
            machine.somebody_types(kind=kind, person=person, after_s=after_s, late=late)
        case 3:
            machine.a_message_is_changed(which=which, kind=random.choice([None, kind]), after_s=after_s)
        case 4 | 5:
            machine.something_is_pressed(how=random.choice(PRESSES), which=which, person=person, late=late)
        case 6:
            machine.slack_delivers_late_or_again(which=which)
        case 7 | 8 | 9 | 13:
            machine.one_worker_works(choices=choices)
        case 10:
            machine.the_other_worker_works(choices=choices)
        case 11:
            machine.a_worker_dies(number=number, again_as_itself=late, waits_s=random.choice([0.0, 16.0]))
        case 14 | 15:
            sudden = random.choice(SUDDEN)
            machine.somebody_is_a_little_faster(number=number, kind=sudden, person=person, choice=which)
        case 16 | 17 if machine.world.snapshot().of("approvals", state="open"):
            machine.everything_is_decided_and_a_worker_goes_on(
                number=number,
                denied=which % 6,
                goes_on=random.randrange(5),
                pause_s=random.choice([0.0, 0.0, 2.0, 26.0]),
            )
        case 16 | 17:
            machine.a_worker_asks_people(number=number, choice=random.choice([4, 5, 6, 7, 13, 15]))
        case 18 if machine.world.snapshot()["approvals"]:
            decider = random.choice([Person.ONCALL, Person.ONCALL, person])
            machine.somebody_decides(which=which % 3, how=random.choice(RULINGS), person=decider, late=late)
        case 18:
            machine.one_worker_works(choices=choices)
        case 12 if machine.world.stale:
            machine.a_worker_that_was_given_up_wakes(which=which, choices=choices)
        case _:
            machine.time_passes(number=number, seconds=random.choice([0.0, 2.0, 10.0, 16.0, 90.0]))
