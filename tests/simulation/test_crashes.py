"""A worker may die at any moment: each is tried, one after another, and no law breaks.

The next worker finishes the turn: nothing is bricked, nothing starts twice, no recorded result is lost, no write that
began is taken for done or for undone without knowing, and each turn reaches exactly one settle.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.simulation.files import Files, in_memory
from tests.simulation.stories import STORIES, finished, play, proposes, reasons

ROOT = Path(__file__).parents[2]
PROPOSED = "a change that is approved"


@pytest.fixture
def files(sqlite_template: Path) -> Iterator[Files]:
    with in_memory(sqlite_template) as made:
        yield made


def dies(name: str, files: Files, deaths: Sequence[int], moments: Sequence[str]) -> list[str]:
    """The story with these deaths; why its turns ended."""
    try:
        stage, now = play(name, files, deaths)
        finished(stage, now)
    except AssertionError as error:
        where = ", then ".join(f"{number} ({moments[number - 1]})" for number in deaths if number <= len(moments))
        raise AssertionError(f"{name}, dead at {where}: {error}") from error
    return reasons(now)


@pytest.mark.parametrize("name", STORIES)
def test_a_story_that_nobody_dies_in_ends_as_it_should(name: str, files: Files) -> None:
    stage, now = play(name, files)
    finished(stage, now)
    assert reasons(now) == STORIES[name].ends
    assert not stage.faults
    assert len(now["costs"]) == len(stage.log.requests), "a request was not paid for"


@pytest.mark.parametrize("name", STORIES)
def test_a_worker_may_die_at_any_moment(name: str, files: Files) -> None:
    """Stories that begin as another one does are tried from where people are asked."""
    moments = play(name, files)[0].lives[0].moments
    known = moments.index("after look") if STORIES[name].script is proposes and name != PROPOSED else 0
    for dies_at in range(known + 1, len(moments) + 1):
        dies(name, files, [dies_at], moments)


@pytest.mark.parametrize(
    "name", ["a redirection in a batch", "a stop while a change runs", "a change that is approved"]
)
def test_the_worker_that_takes_over_may_die_too(name: str, files: Files) -> None:
    moments = play(name, files)[0].lives[0].moments
    for first in range(3, len(moments), 11):
        for second in (1, 4, 9, 15):
            dies(name, files, [first, second], moments)


def test_a_turn_that_kills_three_workers_is_given_up(files: Files) -> None:
    moments = play("nothing to say", files)[0].lives[0].moments
    asked = moments.index("in a request") + 1
    ends = dies("nothing to say", files, [asked, asked, asked], moments)
    assert ends == ["abandoned"]


def test_a_batch_that_kills_three_workers_is_closed_and_given_up(files: Files) -> None:
    """Whoever takes over closes the batch as its first decision, and dies of that."""
    moments = play("a turn with a change", files)[0].lives[0].moments
    reads = moments.index("in slow") + 1
    ends = dies("a turn with a change", files, [reads, 3, 3], moments)
    assert ends == ["abandoned"]


DECIDED = {
    "a change that is approved": ["ok"],
    "changes of which one is denied": ["ok", "denied", "not_run"],
    "a change that nobody decides about": ["not_run"],
    "a redirection of an approved change": ["ok"],
    "a redirection that nobody hears": ["not_run"],
    "a stop while people are asked": ["not_run"],
}
"""What becomes of the changes that people are asked about, in stories in which nobody dies."""


@pytest.mark.parametrize("name", DECIDED)
def test_what_people_decided_is_what_is_done(name: str, files: Files) -> None:
    _, now = play(name, files)
    assert [call["status"] for call in now.of("calls", tool="undo")] == DECIDED[name]


def test_an_approved_change_runs_once_unless_its_worker_dies_between_its_intent_and_its_result(files: Files) -> None:
    """Whoever takes over runs it, and asks nobody again; of what had begun nobody knows what became of it."""
    moments = play(PROPOSED, files)[0].lives[0].moments
    intended, recorded = moments.index("before undo"), moments.index("after undo") + 3
    for dies_at in range(intended - 2, recorded + 3):
        stage, now = play(PROPOSED, files, [dies_at])
        unknown = intended <= dies_at < recorded
        assert len(now["approvals"]) == 1
        assert now.of("calls", tool="undo")[0]["status"] == ("unknown" if unknown else "ok")
        assert reasons(now) == ["failed" if unknown else "completed"]
        assert stage.log.began.total() == (1 if dies_at in (intended, intended + 1) else 2)


KILLED = [name for name in STORIES if name not in DECIDED] + ["changes of which one is denied"]


@pytest.mark.process
@pytest.mark.parametrize("name", KILLED)
def test_a_process_may_be_killed_at_any_moment(name: str, files: Files, sqlite_template: Path) -> None:
    """`kill -9`, at every ninth moment; the next process is new and knows only the file."""
    moments = play(name, files)[0].lives[0].moments
    numbers = [str(number) for number in range(3, len(moments), 9)]
    program = [sys.executable, "-m", "tests.simulation.killed", str(files.path.parent), str(sqlite_template), name]
    ended = subprocess.run(
        [*program, *numbers],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
