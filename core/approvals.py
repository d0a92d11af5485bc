"""Approvals: one request for one change, decided once, by somebody who may, about exactly what they saw.

    open -> approved | denied | expired | withdrawn | stopped

A request does not hold a coroutine: its turn is suspended, a row, and the worker is free. It is bound to a digest of
the call, to people who may approve (for a call that leaves the company: not to one of those whose words the turn is
about), and to a time. Whatever ends it closes the call truthfully; only `approved`, in time and with the same digest,
lets the call run, and only if nobody stopped or redirected meanwhile. A denial also ends the requests for what the
same step would have done after it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from core.errors import IllegalMove
from core.evidence import whole
from core.gateway import Call, CallResult, CallStatus, not_run
from core.limits import Limits
from core.messages import UserId
from core.ports import Tier

BY_CONFIGURATION = "configuration"
"""Who approved what needs no approval of a person."""


class ApprovalState(StrEnum):
    """Where a request is. Everything but `open` is an end."""

    OPEN = "open"
    APPROVED = "approved"
    DENIED = "denied"
    EXPIRED = "expired"
    WITHDRAWN = "withdrawn"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class ApprovalPolicy:
    """How changes are decided about in one channel.

    `anybody`: whether the configuration names anybody who may approve. Tools in `preapproved` run without asking.
    """

    anybody: bool = False
    preapproved: frozenset[str] = frozenset()
    valid_s: float = Limits().approval_s


class Refusal(StrEnum):
    """Why a decision was not taken."""

    DECIDED = "decided"
    EXPIRED = "expired"
    ASKED_FOR_IT = "asked_for_it"


@dataclass(frozen=True, slots=True)
class Approval:
    """One request, as the gateway needs it. Times are seconds since the epoch."""

    id: str
    state: ApprovalState
    digest: str
    expires_at: float
    decided_by: UserId | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Request:
    """One call that waits. `preview` is what it would change, as far as its tool can say.

    `asks` is false for a tool that the configuration approves: it only keeps its place behind what people decide.
    """

    call: Call
    preview: str = ""
    asks: bool = True


def approval_id(number: int) -> str:
    """What people read and write: `ap-7`."""
    return f"ap-{number}"


def number_of(approval: str | None) -> int | None:
    """The number of an id that somebody gave; None when it can't be one of ours."""
    digits = (approval or "").removeprefix("ap-")
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 10 else None


def digest(tool: str, arguments: Mapping[str, Any]) -> str:
    """What a decision is bound to: the tool and exactly these arguments, as they are kept (`core.evidence.whole`)."""
    said = whole(json.dumps([tool, arguments], ensure_ascii=False, sort_keys=True, separators=(",", ":")))
    return hashlib.sha256(said.encode("utf-8")).hexdigest()


def end(state: ApprovalState, to: ApprovalState) -> ApprovalState:
    """The end of an open request; raises `IllegalMove` for a second one."""
    if state is not ApprovalState.OPEN or to is ApprovalState.OPEN:
        raise IllegalMove(f"a request that is {state.value} can't become {to.value}")
    return to


def may_decide(
    state: ApprovalState,
    *,
    tier: Tier,
    by: UserId,
    authors: Collection[str],
    expires_at: float,
    now: float,
) -> Refusal | None:
    """Whether `by`, who holds the right to approve, may decide now. `authors` wrote what the turn is about."""
    if state is ApprovalState.EXPIRED or (state is ApprovalState.OPEN and now >= expires_at):
        return Refusal.EXPIRED
    if state is not ApprovalState.OPEN:
        return Refusal.DECIDED
    if tier is Tier.EXTERNAL and by in authors:
        return Refusal.ASKED_FOR_IT
    return None


def why_not_run(approval: Approval, tool: str, arguments: Mapping[str, Any], now: float) -> str | None:
    """Why a call must not run, in words for the model; None when its request was approved for exactly this."""
    match approval.state:
        case ApprovalState.APPROVED:
            if digest(tool, arguments) != approval.digest:
                return "what was approved is not what would run"
            return (
                None if now < approval.expires_at else "it was approved, but the approval ran out before it could run"
            )
        case ApprovalState.DENIED:
            why = f": {approval.reason}" if approval.reason else ", without a reason"
            return f"<@{approval.decided_by}> denied it{why}"
        case ApprovalState.WITHDRAWN:
            return approval.reason or "a person redirected the investigation before it was approved"
        case ApprovalState.STOPPED:
            return "a person stopped before it was approved"
        case ApprovalState.EXPIRED | ApprovalState.OPEN:
            return "nobody approved it in time"


AFTER_A_DENIAL = "a change before it in the same step was denied"
NOBODY_MAY = (
    "Nothing was run: a change needs the approval of a person, and nobody may approve in this channel. "
    "Say what you would change and how people can do it themselves."
)


def needs_approval(call: Call, policy: ApprovalPolicy) -> bool:
    """Whether people are asked before `call` runs; what is refused anyhow is not asked about."""
    return call.writes and call.refusal is None and call.tool not in policy.preapproved


def without_approval(call: Call, approval: Approval, now: float) -> CallResult | None:
    """The true result of a call whose request ended without an approval that counts; None: it may run."""
    why = why_not_run(approval, call.tool, call.arguments, now)
    if why is None:
        return None
    if approval.state is ApprovalState.DENIED:
        text = f"Denied, so it was not run: {why}. Nothing was changed by it. Don't ask for the same again."
        return CallResult(call, CallStatus.DENIED, text)
    return not_run(call, why)
