"""Approvals: one request for one change, decided once, by somebody who may, about exactly what they saw.

    open -> approved | denied | expired | withdrawn | stopped

A request does not hold a coroutine: its turn is suspended, a row, and the worker is free. It is bound to a digest of
the call, to people who may approve (for a call that leaves the company: not to one of those whose words the turn is
about), and to a time. Whatever ends it closes the call truthfully; only `approved`, in time and with the same digest,
lets the call run, and only if nobody stopped or redirected meanwhile.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from core.errors import IllegalMove
from core.messages import UserId
from core.ports import Tier

VALID_S = 900.0


class ApprovalState(StrEnum):
    """Where a request is. Everything but `open` is an end."""

    OPEN = "open"
    APPROVED = "approved"
    DENIED = "denied"
    EXPIRED = "expired"
    WITHDRAWN = "withdrawn"
    STOPPED = "stopped"


class Refusal(StrEnum):
    """Why a decision was not taken."""

    UNKNOWN = "unknown"
    SEVERAL = "several"
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


def digest(tool: str, arguments: Mapping[str, Any]) -> str:
    """What a decision is bound to: the tool and exactly these arguments."""
    said = json.dumps([tool, arguments], ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()


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


def why_not_run(approval: Approval, tool: str, arguments: Mapping[str, Any]) -> str | None:
    """Why a call must not run, in words for the model; None when its request was approved for exactly this."""
    match approval.state:
        case ApprovalState.APPROVED:
            same = digest(tool, arguments) == approval.digest
            return None if same else "what was approved is not what would run"
        case ApprovalState.DENIED:
            why = f": {approval.reason}" if approval.reason else ", without a reason"
            return f"<@{approval.decided_by}> denied it{why}"
        case ApprovalState.WITHDRAWN:
            return "a person redirected the investigation before it was approved"
        case ApprovalState.STOPPED:
            return "a person stopped before it was approved"
        case ApprovalState.EXPIRED | ApprovalState.OPEN:
            return "nobody approved it in time"
