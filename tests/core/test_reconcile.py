"""What can be found lying about, and what it is taken for."""

from __future__ import annotations

import pytest

from core import reconcile
from core.messages import SessionState
from core.reconcile import RULES, Find, out_of_date, right_state
from core.settle import MATRIX, Automation, Reason
from core.turn import TurnState


def test_every_find_has_a_rule_and_a_line_in_the_theory() -> None:
    assert list(RULES) == list(Find)
    assert reconcile.__doc__ is not None
    lines = [line.split()[0] for line in reconcile.__doc__.splitlines() if line.startswith("    ") and line[4] != " "]
    assert lines == [find.value for find in Find]


def test_what_operators_read_ends_in_what_to_do_or_to_ask() -> None:
    for rule in RULES.values():
        assert rule.means[0].isupper()
        assert rule.means.endswith(("?", "report it.", "kept."))


@pytest.mark.parametrize(
    ("turn", "helpers", "state"),
    [
        (None, False, SessionState.IDLE),
        (None, True, SessionState.WAITING),
        (TurnState.SETTLED, False, SessionState.IDLE),
        (TurnState.WAITING, False, SessionState.RUNNING),
        (TurnState.RUNNING, True, SessionState.RUNNING),
        (TurnState.SUSPENDED, True, SessionState.SUSPENDED),
    ],
)
def test_the_state_of_a_session_follows_from_its_turn_and_helpers(
    turn: TurnState | None, helpers: bool, state: SessionState
) -> None:
    assert right_state(turn, helpers_at_work=helpers) is state


def test_a_turn_that_nobody_began_ran_out_of_time_and_says_that_nothing_was_run() -> None:
    outcome = out_of_date(2820, behind=0)
    assert outcome.reason is Reason.TIMED_OUT
    assert outcome.known == (
        "Nobody was there to begin: this waited 47 min 0 s, so I ask first. Nothing was run. Is it still wanted?"
    )
    assert MATRIX[outcome.reason].diagnosis
    assert MATRIX[outcome.reason].automation is Automation.FAILED


def test_what_waited_behind_it_is_told_too() -> None:
    assert "One message that waited behind it was not taken up either" in out_of_date(2820, behind=1).known
    assert "3 messages behind it were not taken up either; send again what is still wanted." in (
        out_of_date(2820, behind=3).known
    )
