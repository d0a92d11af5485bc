"""The laws of approvals, checked as the others are: by an independent reader of the database.

One tool of the simulation, `undo`, runs only when a person has approved it; `change` is approved by configuration,
and keeps its place behind what people are asked about.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator

from tests.simulation.snapshot import Row, Snapshot

ASKS = "undo"
CONFIGURATION = "configuration"
BEGUN = frozenset({"intent", "ok", "unknown"})
"""What the status of a write says once its intent was committed. An error is here what its tool knew beforehand."""

NOT_BEGUN = frozenset({"open", "denied", "not_run"})
STATES = {"waiting": "running", "running": "running", "suspended": "suspended"}
"""The state of a session by that of its unsettled turn."""


def sessions_and_turns_agree(now: Snapshot) -> Iterator[str]:
    for session in now["sessions"]:
        unsettled = [row for row in now.of("turns", session_id=session["id"]) if row["state"] != "settled"]
        wanted = STATES[unsettled[-1]["state"]] if unsettled else "idle"
        if session["state"] != wanted:
            yield f"{session['id']}: is {session['state']}, its turns say {wanted}"


def who_waits_for_people_holds_no_worker(now: Snapshot) -> Iterator[str]:
    for turn in now.of("turns", state="suspended"):
        session = now.one("sessions", id=turn["session_id"])
        assert session is not None
        if session["lease_owner"] is not None or session["lease_until"] is not None:
            yield f"{turn['id']}: waits for people, and {session['lease_owner']} holds it"
        if now.of("attempts", turn_id=turn["id"])[-1]["ended"] != "suspended":
            yield f"{turn['id']}: waits for people in an attempt that goes on"


def a_wait_is_open_while_a_request_is(now: Snapshot) -> Iterator[str]:
    for turn in now["turns"] if now["suspensions"] else ():
        asked = now.of("approvals", turn_id=turn["id"], state="open")
        waits = now.of("suspensions", turn_id=turn["id"], ended_at=None)
        if len(waits) != bool(asked):
            yield f"{turn['id']}: {len(asked)} open requests and {len(waits)} open waits"
        if asked and turn["state"] != "suspended":
            yield f"{turn['id']}: is {turn['state']} with open requests"
        if asked and any(stop["slack_ts"] != "0" for stop in now.stops_in_scope(turn)):
            yield f"{turn['id']}: people are asked though a stop reaches it"
        if asked and now.of("messages", session_id=turn["session_id"], disposition="steer", state="waiting"):
            yield f"{turn['id']}: people are asked though it was redirected"


def requests_are_shown_as_they_are(now: Snapshot) -> Iterator[str]:
    """Each request is posted once, and drawn anew once for its one end; what needs no asking is not posted."""
    if not now["approvals"]:
        return
    said = [row["dedupe_key"].split(":") for row in now["outbox"] if row["kind"] in ("request", "rewrite")]
    for request in now["approvals"]:
        number = str(request["number"])
        posts = said.count(["request", number])
        drawn = [key[2] for key in said if key[:2] == ["rewrite", number] and key[2] != "outcome"]
        asks = request["decided_by"] != CONFIGURATION
        if posts != asks:
            yield f"ap-{number}: {request['state']} by {request['decided_by']}, posted {posts} times"
        if drawn != ([request["state"]] if asks and request["state"] != "open" else []):
            yield f"ap-{number}: is {request['state']}, drawn anew as {drawn}"


def a_call_ends_as_its_request_did(now: Snapshot) -> Iterator[str]:
    for request in now["approvals"]:
        call = now.one("calls", id=request["call_row"])
        assert call is not None
        if request["state"] != "approved" and call["status"] not in NOT_BEGUN:
            yield f"{call['id']}: is {call['status']}, its request {request['state']}"
        if (call["status"] == "denied") != (request["state"] == "denied") and call["status"] != "open":
            yield f"{call['id']}: is {call['status']}, its request {request['state']}"
        said = json.dumps(
            [call["tool"], json.loads(call["arguments"])], ensure_ascii=False, sort_keys=True, separators=(",", ":")
        )
        if request["digest"] != hashlib.sha256(said.encode()).hexdigest():
            yield f"{call['id']}: its request was about something else"


def a_change_begins_only_as_approved(now: Snapshot) -> Iterator[str]:
    for call in now["calls"]:
        if call["tier"] == "write" and call["status"] in BEGUN:
            yield from _approved(now, call)
            yield from _in_its_place(now, call)
            yield from _not_redirected(now, call)


def _approved(now: Snapshot, call: Row) -> Iterator[str]:
    request, began = now.one("approvals", call_row=call["id"]), call["started_at"]
    if request is None:
        if call["tool"] == ASKS:
            yield f"{call['id']}: began, and nobody was asked"
        return
    if request["state"] != "approved" or not request["ended_at"] <= began < request["expires_at"]:
        yield f"{call['id']}: began at {began}, but {request}"
    if call["tool"] == ASKS and request["decided_by"] == CONFIGURATION:
        yield f"{call['id']}: was approved by nobody"


def _in_its_place(now: Snapshot, call: Row) -> Iterator[str]:
    """Nothing begins behind a denial, or behind a change of which nobody knows what became of it."""
    for before in now.of("calls", turn_id=call["turn_id"], step=call["step"]):
        request = now.one("approvals", call_row=before["id"])
        if before["position"] >= call["position"]:
            continue
        if before["status"] in ("intent", "unknown", "denied") or (request and request["state"] == "denied"):
            yield f"{call['id']}: began behind {before['id']}, which is {before['status']}"


def _not_redirected(now: Snapshot, call: Row) -> Iterator[str]:
    for steer in now.of("messages", session_id=call["session_id"], disposition="steer"):
        taken_back = steer["state"] in ("withdrawn", "stopped")
        if not taken_back and steer["turn_id"] != call["turn_id"] and _asked_in(now, steer, call):
            yield f"{call['id']}: began after {steer['text']!r} had redirected its turn"


def _asked_in(now: Snapshot, steer: Row, call: Row) -> bool:
    """Whether these words were a redirection before the call began, and came after those of its own turn."""
    turn = now.one("turns", id=call["turn_id"])
    later = now.one("turns", id=steer["turn_id"]) if steer["turn_id"] else None
    assert turn is not None
    said_at: float = steer["arrived_at"]
    if steer["policy_row"] == "redirect_button":
        clicks = now.of("messages", slack_ts=steer["slack_ts"], policy_row="redirect_button", source="button")
        said_at = clicks[0]["arrived_at"]
    return said_at < call["started_at"] and (later is None or later["number"] > turn["number"])


def the_wait_is_not_the_time_of_the_turn(now: Snapshot) -> Iterator[str]:
    for turn in now["turns"]:
        ended = [row for row in now.of("attempts", turn_id=turn["id"]) if row["ended"] not in (None, "crashed")]
        ran = sum(row["ended_at"] - row["started_at"] for row in ended)
        if abs(ran - turn["running_s"]) > 1e-3:
            yield f"{turn['id']}: ran {ran} s, the turn tells {turn['running_s']}"


LAWS_OF_APPROVALS: tuple[Callable[[Snapshot], Iterator[str]], ...] = (
    sessions_and_turns_agree,
    who_waits_for_people_holds_no_worker,
    a_wait_is_open_while_a_request_is,
    requests_are_shown_as_they_are,
    a_call_ends_as_its_request_did,
    a_change_begins_only_as_approved,
    the_wait_is_not_the_time_of_the_turn,
)
