"""What a decision of people has to do, found out from the rows before it and the rows after it."""

from __future__ import annotations

from core.messages import Arrival, Marker, Source
from tests.simulation.snapshot import Row, Snapshot

ENDS = {Marker.APPROVE: "approved", Marker.DENY: "denied"}


def decided_as_said(arrival: Arrival, before: Snapshot, now: Snapshot) -> None:
    """An arrival ends the requests that it is about and no others: decided, taken back or stopped."""
    changed = {
        row["number"]: row["state"]
        for row in now["approvals"]
        if before.one("approvals", number=row["number"]) != row
    }
    if not changed and arrival.marker not in ENDS:
        return
    meant = _meant(arrival, before, now)
    if meant is not None:
        assert changed.pop(meant["number"], None) == ENDS[arrival.marker], f"{arrival} was not taken: {meant}"
        behind = _behind(meant, before) if arrival.marker is Marker.DENY else []
        assert changed == dict.fromkeys(behind, "withdrawn"), f"{arrival} changed {changed}"
        return
    stops = len(now["stops"]) > len(before["stops"])
    assert arrival.marker not in ENDS or not changed, f"{arrival} changed {changed}"
    assert set(changed.values()) <= {"stopped" if stops else "withdrawn"}, f"{arrival} changed {changed}"
    steers = sum(row["disposition"] == "steer" for row in now["messages"])
    before_it = sum(row["disposition"] == "steer" for row in before["messages"])
    assert stops or not changed or steers > before_it, f"{arrival} redirected nothing, but changed {changed}"


def _meant(arrival: Arrival, before: Snapshot, now: Snapshot) -> Row | None:
    """The open request that `arrival` decides; None when it decides nothing."""
    message = now.one("messages", dedupe_key=arrival.dedupe_key)
    if arrival.marker not in ENDS or message is None or before.of("messages", id=message["id"]):
        return None
    if not arrival.rights.approve or arrival.source is Source.EDIT:
        return None
    waiting = before.of("approvals", state="open")
    if arrival.approval_id is not None:
        waiting = [row for row in waiting if f"ap-{row['number']}" == arrival.approval_id]
    in_time = [row for row in waiting if message["arrived_at"] < row["expires_at"]]
    return in_time[0] if len(waiting) == len(in_time) == 1 else None


def _behind(denied: Row, before: Snapshot) -> list[int]:
    """The requests for what the same step would have done after a denied call."""
    call = before.one("calls", id=denied["call_row"])
    assert call is not None
    behind = []
    for row in before.of("approvals", state="open", turn_id=denied["turn_id"]):
        other = before.one("calls", id=row["call_row"])
        if other is not None and other["step"] == call["step"] and other["position"] > call["position"]:
            behind.append(row["number"])
    return behind
