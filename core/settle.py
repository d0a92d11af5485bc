"""How a turn ends: one pure function from (turn, outcome) to every row that has to be written.

    reason                  final event  ladder     diagnosis  automation row        card
    completed               set          -          -          done, with evidence   answer, asker, cost, feedback
    empty                   null         exhausted  yes        no output             what was looked at, Retry
    steered                 null         no         no         no                    redirected by, continued below
    stopped_step, cancelled null         no         no         no                    stopped by, at which step
    dispatched, awaiting    null         no         no         no                    open until the helpers are done
    timed_out, failed,      null         no         yes        failed                what happened, what is known
    abandoned

A turn settled by a stamp was *cut*. Cut is not empty: the ladder, the diagnosis and the automation ledger never see
it, and the settle row is written all the same, with its final event left null on purpose so that nobody can take it
for evidence of a finished automation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from core.messages import Level, Source, UserId
from core.ports import Evidence
from core.turn import AttemptEnd, Stamp


class Reason(StrEnum):
    """Why a turn ended; the list is closed, and the database holds it."""

    COMPLETED = "completed"
    EMPTY = "empty"
    STEERED = "steered"
    STOPPED_STEP = "stopped_step"
    CANCELLED = "cancelled"
    DISPATCHED = "dispatched"
    AWAITING = "awaiting"
    TIMED_OUT = "timed_out"
    FAILED = "failed"
    ABANDONED = "abandoned"


class Detail(StrEnum):
    """What `failed` means; the list is closed."""

    REFUSED_BY_MODEL = "refused_by_model"
    CHANNEL_ARCHIVED = "channel_archived"
    OUTCOME_UNKNOWN = "outcome_unknown"
    STRUCTURAL_400 = "structural_400"
    PROVIDER = "provider"
    INTERNAL = "internal"


class Automation(StrEnum):
    """What became of an alert or a schedule."""

    DONE = "done"
    NO_OUTPUT = "no_output"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the work of a turn ended, before anything is written.

    `answer` is the content of the final assistant message (only for completed); `summary` is what we say ourselves
    when the ladder is exhausted; `known` is one sentence for people about what is known.
    """

    reason: Reason
    detail: Detail | None = None
    stamp: Stamp | None = None
    answer: Sequence[Mapping[str, object]] | None = None
    answer_text: str = ""
    summary: str = ""
    known: str = ""
    step: int = 0
    ended_by: UserId | None = None

    def __post_init__(self) -> None:
        if (self.reason is Reason.COMPLETED) != (self.answer is not None):
            raise ValueError("an answer belongs to completed, and completed to an answer")
        if (self.reason is Reason.FAILED) != (self.detail is not None):
            raise ValueError("a detail belongs to failed, and failed to a detail")
        if self.stamp is not MATRIX[self.reason].stamp:
            raise ValueError("a stamp belongs to a cut, and each cut has its own")


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of the matrix: which ledgers see a turn that ended for this reason, and the stamp if it was cut."""

    diagnosis: bool
    automation: Automation | None
    stamp: Stamp | None = None


MATRIX: Mapping[Reason, Rule] = {
    Reason.COMPLETED: Rule(diagnosis=False, automation=Automation.DONE),
    Reason.EMPTY: Rule(diagnosis=True, automation=Automation.NO_OUTPUT),
    Reason.STEERED: Rule(diagnosis=False, automation=None, stamp=Stamp.STEER),
    Reason.STOPPED_STEP: Rule(diagnosis=False, automation=None, stamp=Stamp.STOP),
    Reason.CANCELLED: Rule(diagnosis=False, automation=None, stamp=Stamp.STOP),
    Reason.DISPATCHED: Rule(diagnosis=False, automation=None, stamp=Stamp.DISPATCH),
    Reason.AWAITING: Rule(diagnosis=False, automation=None, stamp=Stamp.AWAIT),
    Reason.TIMED_OUT: Rule(diagnosis=True, automation=Automation.FAILED),
    Reason.FAILED: Rule(diagnosis=True, automation=Automation.FAILED),
    Reason.ABANDONED: Rule(diagnosis=True, automation=Automation.FAILED),
}

STAMP_REASONS: Mapping[Stamp, Reason] = {
    Stamp.STEER: Reason.STEERED,
    Stamp.DISPATCH: Reason.DISPATCHED,
    Stamp.AWAIT: Reason.AWAITING,
}
"""A stop's reason depends on its level, and drain settles nothing: `reason_of` knows both."""

AUTOMATED: frozenset[Source] = frozenset({Source.ALERT, Source.SCHEDULE})


def reason_of(stamp: Stamp, level: Level | None) -> Reason:
    """The settle reason of a turn that was cut with `stamp`; `level` is the stop's, for a stop."""
    if stamp is Stamp.STOP:
        return Reason.CANCELLED if level is Level.TASK else Reason.STOPPED_STEP
    return STAMP_REASONS[stamp]


@dataclass(frozen=True, slots=True)
class TurnFacts:
    """What settling needs to know of the turn."""

    source: Source
    evidence: Sequence[Evidence]


@dataclass(frozen=True, slots=True)
class Rows:
    """Everything that is written when a turn settles, in one transaction."""

    reason: Reason
    detail: Detail | None
    attempt_end: AttemptEnd
    stamp: Stamp | None
    answer: Sequence[Mapping[str, object]] | None
    post: str | None
    diagnosis: tuple[str, str] | None
    automation: Automation | None
    automation_evidence: Sequence[Evidence] | None


def rows(turn: TurnFacts, outcome: Outcome) -> Rows:
    """The rows of one settle; pure, so that the whole matrix can be tested in milliseconds."""
    rule = MATRIX[outcome.reason]
    automation = rule.automation if turn.source in AUTOMATED else None
    return Rows(
        reason=outcome.reason,
        detail=outcome.detail,
        attempt_end=AttemptEnd.FINISHED if outcome.stamp is None else AttemptEnd.CUT,
        stamp=outcome.stamp,
        answer=outcome.answer,
        post=_post(outcome),
        diagnosis=_diagnosis(outcome) if rule.diagnosis else None,
        automation=automation,
        automation_evidence=turn.evidence if automation is Automation.DONE else None,
    )


def _post(outcome: Outcome) -> str | None:
    if outcome.reason is Reason.COMPLETED:
        return outcome.answer_text
    if outcome.reason is Reason.EMPTY:
        return outcome.summary
    return None


def _diagnosis(outcome: Outcome) -> tuple[str, str]:
    kind = outcome.detail.value if outcome.detail is not None else outcome.reason.value
    return kind, outcome.known or "nothing more is known"
