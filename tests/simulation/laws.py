"""The laws, checked by an independent reader of the database.

Each law is a function of one snapshot that yields what is broken, in words. `Watcher` adds what only two moments can
show: that history is append-only, that what has ended stays as it is, that epochs never fall. The matrices are
written out here again and not imported: a table that checks itself proves nothing.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from core.frame import unframed
from core.gateway import CallStatus, as_read
from core.repair import suture
from core.validator import problems
from tests.simulation.snapshot import Row, Snapshot, body, messages_of, reaches, role

Law = Callable[[Snapshot], Iterator[str]]

DETAILS = frozenset(
    {"refused_by_model", "channel_archived", "outcome_unknown", "structural_400", "provider", "internal", None}
)
STOPPED = frozenset({"stopped_step", "cancelled"})
CUT = frozenset({"steered", "stopped_step", "cancelled", "dispatched", "awaiting"})
DIAGNOSED = frozenset({"empty", "timed_out", "failed", "abandoned"})
REASONS = frozenset({*CUT, *DIAGNOSED, "completed"})
AUTOMATION = {
    "completed": "done",
    "empty": "no_output",
    "timed_out": "failed",
    "failed": "failed",
    "abandoned": "failed",
}
AUTOMATED = frozenset({"alert", "schedule"})
ATTEMPT_STAMPS: dict[str | None, frozenset[str | None]] = {
    None: frozenset({None}),
    "finished": frozenset({None}),
    "cut": frozenset({"steer", "stop", "dispatch", "await"}),
    "drained": frozenset({"drain"}),
    "suspended": frozenset({None}),
    "crashed": frozenset({None}),
}
STAMP_REASONS = {
    "steer": {"steered", "failed"},
    "stop": STOPPED | {"failed"},
    "dispatch": {"dispatched", "failed"},
    "await": {"awaiting", "failed"},
}
"""Stamp and reason say the same; `failed` is of a place that takes no more messages."""

SPEAKER = re.compile(r"^(\[[^\]]*\](?: <@\w+>:)?|<@\w+>:)\s")
"""What stands before a message's own text in the history: who said it, and how."""

ON_THE_WAY = frozenset({"open", "intent"})


# -- law 1: never bricked --------------------------------------------------------------------------------------------


def history_has_no_gap(now: Snapshot) -> Iterator[str]:
    for session in now["sessions"]:
        entries = now.of("entries", session_id=session["id"])
        if [entry["seq"] for entry in entries] != list(range(1, session["next_seq"])):
            yield f"{session['id']}: places {[entry['seq'] for entry in entries]}, next is {session['next_seq']}"
        epochs = [entry["epoch"] for entry in entries]
        if epochs != sorted(epochs) or any(epoch > session["epoch"] for epoch in epochs):
            yield f"{session['id']}: epochs {epochs} in its history, current is {session['epoch']}"


def every_request_is_valid(now: Snapshot) -> Iterator[str]:
    """Wherever the user's side ends, a request may leave; and any prefix can be sewn into one that may."""
    for session in now["sessions"]:
        entries = now.of("entries", session_id=session["id"])
        for end in range(1, len(entries) + 1):
            found = invalid(session, entries[:end])
            if found:
                yield f"{session['id']}: after entry {end}: {found}"


def invalid(session: Row, entries: list[Row]) -> str:
    """Why the request that ends with the last of `entries` would be refused, or nothing."""
    messages = messages_of(entries)
    tools = json.loads(session["tools"])
    if role(entries[-1]) == "user":
        found = problems({"messages": messages, "tools": tools})
        return "; ".join(f"{problem.rule} {problem.path}: {problem.problem}" for problem in found)
    cut_here = [*messages, {"role": "user", "content": [{"type": "text", "text": "go on"}]}]
    sewn = suture(cut_here).messages
    left = problems({"messages": sewn, "tools": tools})
    return f"the suture leaves {left[0]}" if left else ""


# -- law 2: one writer -----------------------------------------------------------------------------------------------


def attempts_follow_each_other(now: Snapshot) -> Iterator[str]:
    for turn in now["turns"]:
        attempts = now.of("attempts", turn_id=turn["id"])
        if [attempt["number"] for attempt in attempts] != list(range(1, len(attempts) + 1)):
            yield f"{turn['id']}: attempts {[attempt['number'] for attempt in attempts]}"
        if any(attempt["ended"] is None for attempt in attempts[:-1]):
            yield f"{turn['id']}: an attempt before the last one has not ended"
        epochs = [attempt["epoch"] for attempt in attempts]
        if len(set(epochs)) != len(epochs) or epochs != sorted(epochs):
            yield f"{turn['id']}: attempts under epochs {epochs}"
        for attempt in attempts:
            if attempt["stamp"] not in ATTEMPT_STAMPS[attempt["ended"]]:
                yield f"{turn['id']}: an attempt ended {attempt['ended']} with the stamp {attempt['stamp']}"
        crashed = sum(attempt["ended"] == "crashed" for attempt in attempts)
        if crashed != turn["crashes"] or crashed > 3:
            yield f"{turn['id']}: {crashed} crashed attempts, {turn['crashes']} counted"
        if turn["state"] == "waiting" and attempts:
            yield f"{turn['id']}: waits, but was tried"
        if any(attempt["ended"] in ("cut", "finished") for attempt in attempts[:-1]):
            yield f"{turn['id']}: went on after it was cut"


def one_unsettled_turn_a_session(now: Snapshot) -> Iterator[str]:
    for session in now["sessions"]:
        turns = now.of("turns", session_id=session["id"])
        unsettled = [turn for turn in turns if turn["state"] != "settled"]
        if len(unsettled) > 1:
            yield f"{session['id']}: {len(unsettled)} unsettled turns"
        if (session["state"] == "idle") != (not unsettled):
            yield f"{session['id']}: {session['state']} with {len(unsettled)} unsettled turns"
        if [turn["number"] for turn in turns] != list(range(1, session["next_turn"])):
            yield f"{session['id']}: turns {[turn['number'] for turn in turns]}"
        if any(turn["state"] != "settled" for turn in turns[:-1]):
            yield f"{session['id']}: a turn before the last one is not settled"


# -- law 3: nothing lost ---------------------------------------------------------------------------------------------


def messages_end_once(now: Snapshot) -> Iterator[str]:
    for message in now["messages"]:
        yield from _message(now, message)


def _message(now: Snapshot, message: Row) -> Iterator[str]:
    turn = now.one("turns", id=message["turn_id"]) if message["turn_id"] else None
    state, disposition, name = message["state"], message["disposition"], f"{message['id']} ({message['text']!r})"
    plane = {"control": "control", "refuse": "refused", "ignore": "ignored"}.get(disposition)
    if plane is not None and (state != plane or turn is not None):
        yield f"{name}: {disposition}, but {state} by {message['turn_id']}"
    if plane is None and state in ("control", "refused", "ignored"):
        yield f"{name}: {state}, but {disposition}"
    if state == "consumed" and (turn is None or turn["state"] == "waiting"):
        yield f"{name}: consumed by a turn that never ran"
    if state == "waiting" and not _may_wait(now, message, turn):
        yield f"{name}: waits as {disposition} for nothing"
    if state == "stopped" and not _was_stopped(now, message, turn):
        yield f"{name}: stopped, but nobody said so"
    if not message["policy_row"]:
        yield f"{name}: no row decided about it"


def _may_wait(now: Snapshot, message: Row, turn: Row | None) -> bool:
    if turn is not None:
        return bool(turn["state"] in ("waiting", "running"))
    if message["disposition"] == "note":
        return True
    session = now.one("sessions", id=message["session_id"])
    assert session is not None
    if session["state"] != "idle":
        return message["disposition"] in ("steer", "queue")
    # After a write whose outcome is not known nothing queued starts until a person writes.
    last = now.of("settles", session_id=message["session_id"])[-1:]
    return message["disposition"] == "queue" and [settle["detail"] for settle in last] == ["outcome_unknown"]


def _was_stopped(now: Snapshot, message: Row, turn: Row | None) -> bool:
    """By a stop that was said after it, or with the turn that it was for."""
    stops = now.of("stops", session_id=message["session_id"])
    if any(stop["slack_ts"] > message["slack_ts"] for stop in stops):
        return True
    settle = now.one("settles", turn_id=turn["id"]) if turn is not None else None
    return settle is not None and settle["reason"] in STOPPED | {"abandoned", "failed"}


def _words_of(text: str) -> str:
    """What was said, without who said it, or out of its frame."""
    data = unframed(text)
    return SPEAKER.sub("", text) if data is None else data.text


def words_are_in_the_history_of_who_consumed_them(now: Snapshot) -> Iterator[str]:
    """Law 3 and law 11 at once: every consumed text is there exactly once, and no other text is."""
    for session in now["sessions"]:
        messages = [row for row in now.of("messages", session_id=session["id"]) if row["text"].strip()]
        consumed = Counter((row["text"], row["turn_id"]) for row in messages if row["state"] == "consumed")
        texts = {row["text"] for row in messages}
        told = Counter(
            (said, entry["turn_id"])
            for entry in now.of("entries", session_id=session["id"], kind="user")
            for block in body(entry)
            if (said := _words_of(str(block.get("text")))) in texts
        )
        for wrong in (consumed - told) + (told - consumed):
            yield f"{session['id']}: {wrong[0]!r} of {wrong[1]}: consumed {consumed[wrong]}, told {told[wrong]} times"


# -- law 4: stop wins ------------------------------------------------------------------------------------------------


def nothing_starts_after_a_stop(now: Snapshot) -> Iterator[str]:
    for turn in now["turns"]:
        for stop in now.stops_in_scope(turn):
            said = stop["arrived_at"]
            for entry in now.of("entries", turn_id=turn["id"]):
                if entry["kind"] in ("user", "assistant") and entry["created_at"] > said:
                    yield f"{turn['id']}: a {entry['kind']} entry was committed after the stop {stop['id']}"
            for call in now.of("calls", turn_id=turn["id"]):
                if call["started_at"] is not None and call["started_at"] > said:
                    yield f"{turn['id']}: {call['id']} started after the stop {stop['id']}"


def a_stop_ends_what_it_reaches_and_nothing_else(now: Snapshot) -> Iterator[str]:
    for settle in now["settles"]:
        turn = now.one("turns", id=settle["turn_id"])
        assert turn is not None
        heard = [stop for stop in now.stops_in_scope(turn) if stop["arrived_at"] < settle["created_at"]]
        levels = {stop["level"] for stop in heard}
        wanted = "cancelled" if "task" in levels else "stopped_step"
        if settle["reason"] in STOPPED and not heard:
            yield f"{turn['id']}: {settle['reason']}, but no stop reaches it"
        if heard and settle["reason"] != wanted and settle["detail"] not in ("outcome_unknown", "channel_archived"):
            yield f"{turn['id']}: {settle['reason']} in spite of {heard[0]['id']}"
        if settle["reason"] in STOPPED and settle["ended_by"] not in {stop["author"] for stop in heard}:
            yield f"{turn['id']}: ended by {settle['ended_by']}, who stopped nothing"


def a_stop_names_what_it_reaches(now: Snapshot) -> Iterator[str]:
    for stop in now["stops"]:
        turn = now.one("turns", id=stop["turn_id"]) if stop["turn_id"] else None
        if turn is not None and not reaches(stop, turn):
            yield f"{stop['id']}: stops {turn['id']}, which knows something newer"


# -- laws 5 and 7: one settle, and cut is not empty ------------------------------------------------------------------


def one_settle_a_turn(now: Snapshot) -> Iterator[str]:
    for turn in now["turns"]:
        settles = now.of("settles", turn_id=turn["id"])
        if len(settles) != (turn["state"] == "settled"):
            yield f"{turn['id']}: {turn['state']} with {len(settles)} settles"
        for settle in settles:
            yield from _settle(now, turn, settle)


def _settle(now: Snapshot, turn: Row, settle: Row) -> Iterator[str]:
    name, reason, detail = turn["id"], settle["reason"], settle["detail"]
    if reason not in REASONS or (detail is not None) != (reason == "failed") or detail not in DETAILS:
        yield f"{name}: settled {reason}, {detail}"
    if (settle["final_event_id"] is not None) != (reason == "completed"):
        yield f"{name}: {reason} with the final event {settle['final_event_id']}"
    own = now.of("entries", turn_id=name)
    if reason == "completed" and (not own or own[-1]["id"] != settle["final_event_id"]):
        yield f"{name}: its final event is not its last entry"
    if reason == "completed" and own and own[-1]["kind"] != "assistant":
        yield f"{name}: its final event is a {own[-1]['kind']} entry"
    if any(call["ended_at"] is None or call["status"] in ON_THE_WAY for call in now.of("calls", turn_id=name)):
        yield f"{name}: settled with an open call"
    last = now.of("attempts", turn_id=name)[-1]
    if last["ended"] != ("cut" if reason in CUT else "finished") and detail != "channel_archived":
        yield f"{name}: {reason}, but its last attempt ended {last['ended']}"
    unknown = now.of("calls", turn_id=name, status="unknown")
    if unknown and detail != "outcome_unknown":
        yield f"{name}: {reason} ({detail}), but what became of {unknown[0]['id']} is unknown"
    if unknown and own[-1]["kind"] != "results":
        yield f"{name}: went on after {unknown[0]['id']}, whose outcome is unknown"
    if last["stamp"] is not None and reason not in STAMP_REASONS[last["stamp"]]:
        yield f"{name}: stamped {last['stamp']}, but {reason}"


def ledgers_follow_the_matrix(now: Snapshot) -> Iterator[str]:
    for turn in now["turns"]:
        settle = now.one("settles", turn_id=turn["id"])
        reason = settle["reason"] if settle else None
        if len(now.of("diagnoses", turn_id=turn["id"])) != (reason in DIAGNOSED):
            yield f"{turn['id']}: {reason} with {len(now.of('diagnoses', turn_id=turn['id']))} diagnoses"
        wanted = AUTOMATION.get(str(reason)) if turn["source"] in AUTOMATED else None
        found = now.one("automation", turn_id=turn["id"])
        if (found["outcome"] if found else None) != wanted:
            yield f"{turn['id']}: {reason} of {turn['source']}, automation {found}"
        if found is not None and (found["evidence"] is not None) != (wanted == "done"):
            yield f"{turn['id']}: automation {wanted} with the evidence {found['evidence']}"
        answers = now.of("outbox", turn_id=turn["id"], kind="answer", part=0)
        if len(answers) != (reason in ("completed", "empty")):
            yield f"{turn['id']}: {reason} with {len(answers)} answers to post"


def every_cost_is_in_its_settle(now: Snapshot) -> Iterator[str]:
    for settle in now["settles"]:
        costs = now.of("costs", turn_id=settle["turn_id"])
        spent = sum(cost["input_tokens"] for cost in costs), sum(cost["output_tokens"] for cost in costs)
        if spent != (settle["input_tokens"], settle["output_tokens"]):
            yield f"{settle['turn_id']}: {spent} tokens are booked, the settle tells others"
        if abs(sum(cost["usd"] for cost in costs) - settle["cost_usd"]) > 1e-9:
            yield f"{settle['turn_id']}: the settle tells another price than its costs"


# -- law 6: cards ----------------------------------------------------------------------------------------------------


def cards_tell_the_truth(now: Snapshot) -> Iterator[str]:
    running: Counter[tuple[Any, ...]] = Counter()
    for turn in now["turns"]:
        cards = now.of("cards", turn_id=turn["id"])
        if len(cards) != 1:
            yield f"{turn['id']}: {len(cards)} cards"
            continue
        if turn["state"] != "settled" and cards[0]["state"] != "open":
            yield f"{turn['id']}: {turn['state']}, but its card is {cards[0]['state']}"
        running[cards[0]["channel"], cards[0]["thread_ts"]] += turn["state"] != "settled"
    for place, count in running.items():
        if count > 1:
            yield f"{place}: {count} cards show a running turn"


# -- law 8: calls ----------------------------------------------------------------------------------------------------


def every_call_is_recorded_and_closed_once(now: Snapshot) -> Iterator[str]:
    for session in now["sessions"]:
        results: dict[str, dict[str, Any]] = {}
        asked: dict[str, Row] = {}
        for entry in now.of("entries", session_id=session["id"]):
            for block in body(entry):
                if block["type"] == "tool_use":
                    asked[block["id"]] = entry
                elif block["type"] == "tool_result":
                    results[block["tool_use_id"]] = block
        calls = now.of("calls", session_id=session["id"])
        if Counter(call["call_id"] for call in calls) != Counter(list(asked)):
            yield f"{session['id']}: calls in the history and in the audit differ"
        for call in calls:
            yield from _call(call, asked.get(call["call_id"]), results.get(call["call_id"]))


def _call(call: Row, entry: Row | None, result: dict[str, Any] | None) -> Iterator[str]:
    if entry is None or (entry["turn_id"], entry["step"]) != (call["turn_id"], call["step"]):
        yield f"{call['id']}: is in the audit of another step than in the history"
    if result is None:
        return
    if call["ended_at"] is None or call["status"] in ON_THE_WAY:
        yield f"{call['id']}: has a result, but the audit says {call['status']}"
    output = call["output"] or ""
    read = as_read(call["tool"], CallStatus(call["status"]), output) if output.strip() else "(no output)"
    hint, _, told = result["content"].partition("\n")
    if result["content"] != read and not (hint.startswith("You have this already") and told == read):
        yield f"{call['id']}: the model read {result['content']!r}, the audit kept {call['output']!r}"
    if bool(result.get("is_error")) != (call["status"] != "ok"):
        yield f"{call['id']}: {call['status']}, but the model was told otherwise"


LAWS: tuple[Law, ...] = (
    history_has_no_gap,
    attempts_follow_each_other,
    one_unsettled_turn_a_session,
    messages_end_once,
    words_are_in_the_history_of_who_consumed_them,
    nothing_starts_after_a_stop,
    a_stop_ends_what_it_reaches_and_nothing_else,
    a_stop_names_what_it_reaches,
    one_settle_a_turn,
    ledgers_follow_the_matrix,
    every_cost_is_in_its_settle,
    cards_tell_the_truth,
    every_call_is_recorded_and_closed_once,
)
"""Every law of one moment but the validity of requests, which is checked for new entries only (`Watcher`)."""
