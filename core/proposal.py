"""What people are asked about: the writes of a step that need approval, each with what it would change.

All of them are asked together, before any of them runs; a write that needs no approval keeps its place among them.
Reading what a write would change is hurried like any read: people can still decide by the arguments alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from core.approvals import (
    AFTER_A_DENIAL,
    NOBODY_MAY,
    ApprovalPolicy,
    Request,
    needs_approval,
    without_approval,
)
from core.cancel import Cancel, let_go
from core.control import Control
from core.errors import LostLease
from core.gateway import AFTER_AN_UNKNOWN, Call, CallResult, CallStatus, Gateway, not_run, recovered
from core.ledger import OpenCall

NOT_READ = "What it would change was not read, because there was no time."


def admitted(calls: Sequence[Call], policy: ApprovalPolicy) -> list[Call]:
    """The calls of a step; where nobody may approve, what would need it is refused."""
    if policy.anybody:
        return list(calls)
    return [replace(call, refusal=NOBODY_MAY) if needs_approval(call, policy) else call for call in calls]


def waiting(calls: Sequence[Call], policy: ApprovalPolicy) -> list[Call]:
    """The calls that don't run now: if one of them needs approval, all writes of the step wait for it."""
    if not any(needs_approval(call, policy) for call in calls):
        return []
    return [call for call in calls if call.writes and call.refusal is None]


def decided(
    found: Sequence[OpenCall], again: Callable[[Call], Call], at: float
) -> tuple[list[Call], list[CallResult]]:
    """Of calls without results: those that were approved and may run, and the true results of the others.

    `again` looks at a call with the tools of now; `at` is the database's time. A denial leaves what stands behind it
    in the step not run; so does a write whose outcome is unknown.
    """
    approved: list[Call] = []
    results: list[CallResult] = []
    denied = unknown = False
    for one in sorted(found, key=lambda one: one.call.position):
        if one.approval is None or one.status != CallStatus.OPEN.value:
            results.append(recovered(one.call, CallStatus(one.status), one.output, one.links, one.duration_s))
            unknown = unknown or results[-1].status is CallStatus.UNKNOWN
            continue
        end = without_approval(one.call, one.approval, at)
        if end is None and (denied or unknown):
            end = not_run(one.call, AFTER_A_DENIAL if denied else AFTER_AN_UNKNOWN)
        if end is None:
            approved.append(again(one.call))
            continue
        denied = denied or end.status is CallStatus.DENIED
        results.append(end)
    return approved, results


async def propose(
    gateway: Gateway, control: Control, calls: Sequence[Call], policy: ApprovalPolicy
) -> tuple[list[Request], list[CallResult]]:
    """The requests for `calls`, and the ends of those that their tools already know to be impossible.

    Raises `LostLease` when the lease is gone.
    """
    tasks = [asyncio.ensure_future(gateway.preview(call)) for call in calls]
    try:
        while pending := {task for task in tasks if not task.done()}:
            why, again = control.hurry_batch()
            if why is Cancel.LEASE or control.lease_lost:
                raise LostLease("the lease of this session ran out before people could be asked")
            if why is not None:
                break
            await control.wait(pending, again)
    finally:
        for task in tasks:
            await let_go(task)
    requests: list[Request] = []
    impossible: list[CallResult] = []
    for call, task in zip(calls, tasks, strict=True):
        preview = task.result() if task.done() and not task.cancelled() else NOT_READ
        if isinstance(preview, CallResult):
            impossible.append(preview)
        else:
            requests.append(Request(call, preview, asks=needs_approval(call, policy)))
    return requests, impossible
