"""A test of whole processes may be tried again, and then it must be able to pass."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]


@pytest.fixture(autouse=True)
def no_other_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


SHARED = """
import itertools
import pytest

ROOMS = itertools.count(1)

@pytest.fixture(scope="module")
def room():
    number = next(ROOMS)
    yield number
    print(f"room {number} closed")

def test_passes_in_the_second_room_only(room):
    assert room == 2

def test_that_follows_is_in_the_same_room(room):
    assert room == 2
"""


def run(pytester: pytest.Pytester, folder: str, text: str) -> pytest.RunResult:
    """The tests of a file in `folder`, with the two plugins that are about tries."""
    path = pytester.mkdir(folder) / "test_shared.py"
    path.write_text(text)
    return pytester.runpytest_inprocess("-p", "pytest_rerunfailures", "-p", "tests.support.tries", "-s", str(path))


def test_a_second_try_is_made_in_a_room_of_its_own_and_the_first_is_closed_before(pytester: pytest.Pytester) -> None:
    result = run(pytester, "stories", SHARED)
    assert result.parseoutcomes() == {"passed": 2, "rerun": 1}
    said = result.stdout.str()
    assert said.index("room 1 closed") < said.index("room 2 closed")


def test_what_fails_every_time_fails(pytester: pytest.Pytester) -> None:
    never = SHARED.replace("assert room == 2", "assert room == 0", 1).replace("room == 2", "room == 3")
    assert run(pytester, "e2e", never).parseoutcomes() == {"failed": 1, "rerun": 2, "passed": 1}


def test_a_test_without_real_parts_has_one_try(pytester: pytest.Pytester) -> None:
    assert run(pytester, "core", SHARED).parseoutcomes() == {"failed": 2}
