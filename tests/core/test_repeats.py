"""A model that asks for the same thing again and again gets what it has, and is told so."""

from __future__ import annotations

from typing import Any

import pytest

from core.frame import framed
from core.gateway import Call, CallStatus, Gateway
from core.limits import Limits
from core.ports import Tier
from core.remediation import Looked
from core.repeats import EXCERPT_CHARS, looked_at, without_repeats
from tests.core.doubles import call, tool
from tests.support.virtual_time import in_virtual_time, now

UP: dict[str, Any] = {"query": "up", "limit": 5}
SAME: dict[str, Any] = {"limit": 5, "query": "up"}


def done(
    step: int, status: CallStatus = CallStatus.OK, *, tier: Tier = Tier.READ, text: str = "", **asked: Any
) -> Looked:
    """A call that ended in `step`."""
    return looked_at(call(tier=tier, arguments=UP, **asked), status, text or f"what step {step} said", step)


def again(**asked: Any) -> Call:
    return call(arguments=SAME, **asked)


def known(calls: list[Call], *looked: Looked) -> list[str | None]:
    return [one.known.text if one.known is not None else None for one in without_repeats(calls, looked)]


@pytest.mark.parametrize(
    ("looked", "answer"),
    [
        ((), None),
        ((done(1),), None),
        ((done(1), done(2)), "what step 2 said"),
        ((done(1), done(2), done(3)), "what step 2 said"),
        ((done(1), done(2, CallStatus.ERROR)), None),
        ((done(1), done(2, CallStatus.TIMEOUT)), None),
        ((done(1), done(2, CallStatus.CANCELLED)), None),
        ((done(1), done(2, CallStatus.ERROR), done(3)), "what step 3 said"),
        ((done(1), done(2, name="logs")), None),
        ((done(1), looked_at(call(arguments={"query": "up"}), CallStatus.OK, "x", 2)), None),
    ],
)
def test_the_third_time_is_answered_with_what_was_well_before(looked: tuple[Looked, ...], answer: str | None) -> None:
    assert known([again()], *looked) == [answer]


def test_after_a_change_the_same_question_has_another_answer() -> None:
    changed = done(3, name="restart", tier=Tier.WRITE)
    assert known([again()], done(1), done(2), changed) == [None]
    assert known([again()], done(1), done(2), changed, done(4)) == [None]
    assert known([again()], done(1), done(2), changed, done(4), done(5)) == ["what step 5 said"]
    for never in (CallStatus.DENIED, CallStatus.NOT_RUN, CallStatus.REFUSED):
        tried = done(3, never, name="restart", tier=Tier.WRITE)
        assert known([again()], done(1), done(2), tried) == ["what step 2 said"]


def test_a_change_is_never_answered_from_evidence_nor_what_is_refused() -> None:
    writes = [done(step, tier=Tier.WRITE) for step in (1, 2)]
    assert known([again(tier=Tier.WRITE)], *writes) == [None]
    assert known([again(refusal="No.")], done(1), done(2)) == [None]


def test_in_one_step_what_has_no_answer_yet_runs_and_the_rest_is_known() -> None:
    assert known([again(), again(), again()]) == [None, None, None]
    assert known([again(), again(), again()], done(1)) == [None, "what step 1 said", "what step 1 said"]


def test_of_a_long_answer_the_beginning_is_told_and_where_the_rest_stands() -> None:
    [found] = known([again()], done(1), done(2, text="x" * 50_000))
    assert found == f"{'x' * EXCERPT_CHARS}\n[… the rest stands in the result of step 2]"


@in_virtual_time
async def test_what_is_known_is_not_run_and_the_model_is_told_from_which_step_it_has_it() -> None:
    counted = tool("metrics")
    [spins] = without_repeats([again()], [done(1), done(4)])
    result = await Gateway([counted], Limits(), now).run(spins)
    assert (result.status, counted.began) == (CallStatus.OK, 0)
    hint, data = result.said.split("\n", 1)
    assert hint == (
        "You have this already, from step 4: it is the same call with the same arguments, so it was not run again. "
        "Use what it said, ask for something else, or answer now."
    )
    assert data == framed("metrics", "what step 4 said")
    assert result.summary.startswith("You have this already, from step 4")
