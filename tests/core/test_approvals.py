"""A request is decided once, by who may, about exactly what was shown."""

from __future__ import annotations

import pytest

from core.approvals import Approval, ApprovalState, Refusal, digest, end, may_decide, why_not_run
from core.errors import IllegalMove
from core.messages import UserId
from core.ports import Tier

ENDS = [state for state in ApprovalState if state is not ApprovalState.OPEN]


@pytest.mark.parametrize("to", ENDS)
def test_an_open_request_ends_once(to: ApprovalState) -> None:
    assert end(ApprovalState.OPEN, to) is to
    for again in ApprovalState:
        with pytest.raises(IllegalMove):
            end(to, again)


def test_the_digest_knows_the_tool_and_every_argument_but_not_their_order() -> None:
    assert digest("scale", {"a": 1, "b": 2}) == digest("scale", {"b": 2, "a": 1})
    assert len({digest("scale", {"a": 1}), digest("scale", {"a": 2}), digest("undo", {"a": 1})}) == 3


def decide(by: str, tier: Tier = Tier.WRITE, state: ApprovalState = ApprovalState.OPEN, now: float = 0) -> object:
    return may_decide(state, tier=tier, by=UserId(by), authors={"U0ASKED"}, expires_at=900, now=now)


def test_who_asked_may_approve_a_write_but_not_what_leaves_the_company() -> None:
    assert decide("U0ASKED") is None
    assert decide("U0ASKED", Tier.EXTERNAL) is Refusal.ASKED_FOR_IT
    assert decide("U0OTHER", Tier.EXTERNAL) is None


def test_a_decision_comes_in_time_and_only_once() -> None:
    assert decide("U0OTHER", now=900) is Refusal.EXPIRED
    assert decide("U0OTHER", state=ApprovalState.EXPIRED) is Refusal.EXPIRED
    assert decide("U0OTHER", state=ApprovalState.APPROVED) is Refusal.DECIDED


def test_only_an_approval_of_exactly_this_lets_a_call_run() -> None:
    given = {"deployment": "gateway", "to_revision": 41}
    approved = Approval("ap-1", ApprovalState.APPROVED, digest("undo", given), 900)
    assert why_not_run(approved, "undo", given, 0) is None
    assert why_not_run(approved, "undo", {**given, "to_revision": 40}, 0) == "what was approved is not what would run"


@pytest.mark.parametrize("state", [state for state in ApprovalState if state is not ApprovalState.APPROVED])
def test_every_other_end_says_why_nothing_was_run(state: ApprovalState) -> None:
    ended = Approval("ap-1", state, digest("undo", {}), 900, UserId("U0OLIVE"), "not during the sale")
    why = why_not_run(ended, "undo", {}, 0)
    assert why
    assert ("not during the sale" in why) == (state in (ApprovalState.DENIED, ApprovalState.WITHDRAWN))
