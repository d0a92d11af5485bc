"""What the random orders found, each as the shortest story that shows it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from core.messages import Action, Arrival, SlackTs
from tests.simulation.clock import SharedClock
from tests.simulation.decisions import Decisions
from tests.simulation.files import in_memory
from tests.simulation.people import Kind, Person, Thread
from tests.simulation.snapshot import Row
from tests.simulation.world import World


class Play:
    """One thread, played by hand."""

    def __init__(self, world: World, loop: SharedClock) -> None:
        self.world = world
        self.thread = Thread(SlackTs("1790000001.000001"))
        self._decisions = Decisions(world)
        self._loop = loop

    def types(self, kind: Kind, person: Person, after_s: float, *, late: bool = False) -> Arrival:
        arrival = self.thread.typed(kind, person, after_s)
        if not late:
            self.comes_in(arrival)
        return arrival

    def comes_in(self, arrival: Arrival) -> None:
        self._loop.run_until_complete(self.world.deliver(arrival))
        self.world.look()

    def claims(self, *, read_on: bool = True) -> None:
        self._loop.run_until_complete(self._decisions.claim(0, read_on=read_on))
        self.world.look()

    def does(self, action: str, choice: int = 0) -> None:
        job = self.world.jobs[0]
        assert action in job.may()
        if not self._loop.run_until_complete(self._decisions.work(job, action, choice)):
            del self.world.jobs[0]
        self.world.look()

    def ends(self) -> list[str]:
        """Everything is brought to its end; why the turns ended."""
        self._loop.run_until_complete(self._decisions.bring_to_an_end())
        return [settle["reason"] for settle in self.world.snapshot()["settles"]]

    def message(self, arrival: Arrival) -> Row:
        found = self.world.snapshot().one("messages", dedupe_key=arrival.dedupe_key)
        assert found is not None
        return found


@pytest.fixture
def play(sqlite_template: Path) -> Iterator[Play]:
    loop = SharedClock()
    with in_memory(sqlite_template) as files:
        world = World(files, loop)
        loop.run_until_complete(world.open())
        yield Play(world, loop)
        loop.run_until_complete(world.close())
    loop.close()


def test_a_question_that_comes_late_is_stopped_by_the_double_of_a_stop_too(play: Play) -> None:
    """stop - "! look at the db" (late) - stop: the second click adds nothing but its time, and that counts."""
    play.types(Kind.MENTION, Person.ENGINEER, 1.0)
    play.types(Kind.STOP, Person.ENGINEER, 1.0)
    question = play.types(Kind.NOW, Person.ONCALL, 0.5, late=True)
    play.types(Kind.STOP, Person.ENGINEER, 0.5)
    assert len(play.world.snapshot()["stops"]) == 1
    play.comes_in(question)
    assert play.message(question)["state"] == "stopped"
    assert play.ends() == ["stopped_step"]


def test_a_stop_sign_that_comes_before_its_message_stops_it_and_the_turn_of_its_thread(play: Play) -> None:
    """Slack does not say in which thread the message is, so the sign waits until it comes in."""
    play.types(Kind.MENTION, Person.ENGINEER, 1.0)
    play.claims()
    question = play.types(Kind.REPLY, Person.ENGINEER, 1.0, late=True)
    play.comes_in(play.thread.stop_reaction(question, Person.ONCALL, 1.0))
    play.comes_in(question)
    assert play.message(question)["state"] == "stopped"
    assert play.ends() == ["stopped_step"]


def test_what_is_asked_after_a_stop_sign_that_came_too_soon_is_done(play: Play) -> None:
    play.types(Kind.MENTION, Person.ENGINEER, 1.0)
    question = play.types(Kind.REPLY, Person.ENGINEER, 1.0, late=True)
    play.comes_in(play.thread.stop_reaction(question, Person.ONCALL, 1.0))
    newer = play.types(Kind.REPLY, Person.ENGINEER, 1.0)
    play.claims()
    play.comes_in(question)
    assert play.message(question)["state"] == "stopped"
    assert play.ends() == ["completed"]
    assert play.message(newer)["state"] == "consumed"


def test_a_second_stop_sign_finds_the_thread_of_a_message_that_came_after_the_first(play: Play) -> None:
    play.types(Kind.MENTION, Person.ENGINEER, 1.0)
    question = play.types(Kind.REPLY, Person.ENGINEER, 1.0, late=True)
    play.comes_in(play.thread.stop_reaction(question, Person.ONCALL, 1.0))
    play.comes_in(question)
    assert play.ends() == ["stopped_step"]
    play.types(Kind.REPLY, Person.ENGINEER, 1.0)
    play.claims()
    play.comes_in(play.thread.stop_reaction(question, Person.ONCALL, 60.0))
    assert play.ends() == ["stopped_step", "stopped_step"]


def test_a_second_stop_counts_again_when_something_was_asked_in_between(play: Play) -> None:
    play.types(Kind.MENTION, Person.ENGINEER, 1.0)
    play.types(Kind.STOP, Person.ENGINEER, 1.0)
    play.claims()
    play.does("settle")
    play.types(Kind.NOW, Person.ONCALL, 0.5)
    play.types(Kind.STOP, Person.ENGINEER, 0.5)
    assert play.ends() == ["stopped_step", "stopped_step"]


def test_a_note_that_is_made_a_redirection_after_a_stop_is_not_stopped_by_it(play: Play) -> None:
    """note - stop - Redirect now, before the stopped turn has settled: the click was said after the stop."""
    play.types(Kind.MENTION, Person.ENGINEER, 1.0)
    play.claims()
    note = play.types(Kind.REPLY, Person.PASSER_BY, 1.0)
    assert play.message(note)["disposition"] == "note"
    play.types(Kind.STOP, Person.ENGINEER, 1.0)
    button = Action.REDIRECT_NOW
    play.comes_in(play.thread.clicked(button, str(play.message(note)["id"]), Person.ONCALL, 1.0))
    assert play.ends() == ["stopped_step", "completed"]
    assert play.message(note)["state"] == "consumed"


def test_a_redirection_that_a_newer_stop_has_overtaken_redirects_nothing(play: Play) -> None:
    play.types(Kind.MENTION, Person.ENGINEER, 1.0)
    play.claims()
    note = play.types(Kind.REPLY, Person.PASSER_BY, 1.0)
    click = play.thread.clicked(Action.REDIRECT_NOW, str(play.message(note)["id"]), Person.ONCALL, 1.0)
    play.types(Kind.STOP, Person.ENGINEER, 1.0)
    play.comes_in(click)
    assert play.message(note)["disposition"] == "note"
    assert play.ends() == ["stopped_step"]


@pytest.mark.parametrize("reading", [False, True])
def test_words_that_are_taken_back_before_their_turn_reads_them_leave_no_empty_request(
    play: Play, reading: bool
) -> None:
    play.thread.root = SlackTs("1789999000.000100")
    question = play.types(Kind.MENTION, Person.ENGINEER, 1.0)
    if reading:
        play.claims(read_on=False)
    play.comes_in(play.thread.edited(question, Kind.NOT_FOR_BOT, 1.0))
    assert play.message(question)["state"] == "withdrawn"
    assert play.ends() == ["cancelled"]
    assert not play.world.snapshot()["entries"]


def test_a_click_on_a_card_does_not_stop_what_was_asked_after_it(play: Play) -> None:
    """A click that comes in late: by then the turn has taken words that are newer."""
    play.types(Kind.MENTION, Person.ENGINEER, 1.0)
    turn = str(play.world.snapshot()["turns"][0]["id"])
    click = play.thread.clicked(Action.STOP_STEP, turn, Person.ONCALL, 1.0)
    play.types(Kind.REPLY, Person.ENGINEER, 1.0)
    play.claims()
    play.comes_in(click)
    assert play.ends() == ["completed"]
