"""How a turn ends: every reason and every source give exactly the rows of the matrix."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from core.messages import Level, Source, UserId
from core.ports import Evidence
from core.settle import AUTOMATED, MATRIX, Automation, Detail, Outcome, Reason, TurnFacts, reason_of, rows
from core.turn import AttemptEnd, Stamp, end_attempt

EVIDENCE = (Evidence("toolu_1", "metrics", "query=up"),)
ANSWER = [{"type": "text", "text": "It is the gateway."}]

STAMPS = {
    Reason.STEERED: Stamp.STEER,
    Reason.STOPPED_STEP: Stamp.STOP,
    Reason.CANCELLED: Stamp.STOP,
    Reason.DISPATCHED: Stamp.DISPATCH,
    Reason.AWAITING: Stamp.AWAIT,
}

# reason: (has a final event, what is posted, diagnosis, automation, its evidence)
EXPECTED: dict[Reason, tuple[bool, str | None, bool, Automation | None, bool]] = {
    Reason.COMPLETED: (True, "It is the gateway.", False, Automation.DONE, True),
    Reason.EMPTY: (False, "No conclusion.", True, Automation.NO_OUTPUT, False),
    Reason.STEERED: (False, None, False, None, False),
    Reason.STOPPED_STEP: (False, None, False, None, False),
    Reason.CANCELLED: (False, None, False, None, False),
    Reason.DISPATCHED: (False, None, False, None, False),
    Reason.AWAITING: (False, None, False, None, False),
    Reason.TIMED_OUT: (False, None, True, Automation.FAILED, False),
    Reason.FAILED: (False, None, True, Automation.FAILED, False),
    Reason.ABANDONED: (False, None, True, Automation.FAILED, False),
}


def outcome(reason: Reason) -> Outcome:
    answered = reason is Reason.COMPLETED
    return Outcome(
        reason,
        detail=Detail.PROVIDER if reason is Reason.FAILED else None,
        stamp=STAMPS.get(reason),
        answer=ANSWER if answered else None,
        answer_text="It is the gateway." if answered else "",
        summary="No conclusion." if reason is Reason.EMPTY else "",
        known="what is known",
        ended_by=UserId("U0ANN") if reason in STAMPS else None,
    )


def test_the_matrix_has_one_line_for_every_reason() -> None:
    assert set(MATRIX) == set(EXPECTED) == set(Reason)


@pytest.mark.parametrize(("reason", "source"), list(product(Reason, Source)))
def test_a_reason_and_a_source_give_exactly_the_rows_of_the_matrix(reason: Reason, source: Source) -> None:
    final, post, diagnosis, automation, evidence = EXPECTED[reason]
    automated = source in (Source.ALERT, Source.SCHEDULE)
    written = rows(TurnFacts(source, EVIDENCE), outcome(reason))
    assert written.reason is reason
    assert (written.answer is not None) is final
    assert written.post == post
    assert (written.diagnosis is not None) is diagnosis
    assert written.automation is (automation if automated else None)
    assert written.automation_evidence == (EVIDENCE if evidence and automated else None)
    assert written.stamp is STAMPS.get(reason)
    assert written.attempt_end is (AttemptEnd.CUT if reason in STAMPS else AttemptEnd.FINISHED)
    assert end_attempt(written.attempt_end, written.stamp)


def test_only_alerts_and_schedules_are_automated() -> None:
    assert {Source.ALERT, Source.SCHEDULE} == AUTOMATED


def test_cut_is_not_empty() -> None:
    for reason in STAMPS:
        written = rows(TurnFacts(Source.ALERT, EVIDENCE), outcome(reason))
        assert (written.answer, written.post, written.diagnosis, written.automation) == (None, None, None, None)


@pytest.mark.parametrize("detail", Detail)
def test_a_diagnosis_is_named_after_the_detail_or_else_the_reason(detail: Detail) -> None:
    failed = Outcome(Reason.FAILED, detail=detail, known="the API said no")
    assert rows(TurnFacts(Source.MENTION, ()), failed).diagnosis == (detail.value, "the API said no")
    late = Outcome(Reason.TIMED_OUT)
    assert rows(TurnFacts(Source.MENTION, ()), late).diagnosis == ("timed_out", "nothing more is known")


@pytest.mark.parametrize(
    ("stamp", "level", "reason"),
    [
        (Stamp.STEER, None, Reason.STEERED),
        (Stamp.STEER, Level.TASK, Reason.STEERED),
        (Stamp.DISPATCH, None, Reason.DISPATCHED),
        (Stamp.AWAIT, None, Reason.AWAITING),
        (Stamp.STOP, Level.STEP, Reason.STOPPED_STEP),
        (Stamp.STOP, None, Reason.STOPPED_STEP),
        (Stamp.STOP, Level.TASK, Reason.CANCELLED),
    ],
)
def test_a_stamp_says_the_reason(stamp: Stamp, level: Level | None, reason: Reason) -> None:
    assert reason_of(stamp, level) is reason


def test_drain_settles_nothing() -> None:
    with pytest.raises(KeyError):
        reason_of(Stamp.DRAIN, None)


@pytest.mark.parametrize(
    "said",
    [
        {"reason": Reason.COMPLETED},
        {"reason": Reason.EMPTY, "answer": ANSWER},
        {"reason": Reason.STEERED, "stamp": Stamp.STEER, "answer": ANSWER},
        {"reason": Reason.FAILED},
        {"reason": Reason.TIMED_OUT, "detail": Detail.PROVIDER},
        {"reason": Reason.STEERED},
        {"reason": Reason.COMPLETED, "answer": ANSWER, "stamp": Stamp.STOP},
        {"reason": Reason.STEERED, "stamp": Stamp.STOP},
        {"reason": Reason.CANCELLED, "stamp": Stamp.DRAIN},
    ],
)
def test_an_outcome_that_says_two_things_at_once_cannot_be_made(said: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        Outcome(**said)
