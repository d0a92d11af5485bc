"""One turn as a timeline: a line for everything that was committed, in the order in which it happened.

Pure: from the rows that `storage.reports.turn_story` reads to lines that an operator can follow at night. What was
committed in one transaction has one time; then the order is that of cause and effect (`Rank`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from bot.commands.output import shorten
from core.approvals import BY_CONFIGURATION, approval_id
from core.card_words import ended_at

Row = Mapping[str, Any]

WORDS = 160
"""How much of a text a line shows, in characters."""


class Rank(IntEnum):
    """What comes first among things of one moment."""

    MESSAGE = 0
    STOP = 1
    BEGIN = 2
    ATTEMPT = 3
    WORDS = 4
    ANSWER = 5
    CALL_ENDED = 6
    RESULTS = 7
    REPAIR = 8
    ATTEMPT_ENDED = 9
    SETTLE = 10
    AFTER_SETTLE = 11
    POST = 12
    CARD = 13


@dataclass(frozen=True, slots=True)
class Event:
    """One line: when (seconds since the epoch), what kind of thing, and what happened."""

    at: float
    rank: Rank
    what: str
    words: str


def timeline(story: Mapping[str, Any]) -> list[Event]:
    """Everything of one turn, in order."""
    parts = (
        *(_begin, _messages, _stops, _attempts, _entries, _calls, _approvals, _repairs),
        *(_settle, _after, _posts, _card),
    )
    events = [event for part in parts for event in part(story)]
    return sorted(events, key=lambda event: (event.at, event.rank))


def _begin(story: Mapping[str, Any]) -> Iterator[Event]:
    turn = story["turn"]
    follows = f", goes on from {turn['predecessor_id']}" if turn["predecessor_id"] else ""
    waits = turn["start_after"] - turn["created_at"]
    quiet = f", waits {waits:.1f} s for a quiet thread" if waits > 0.05 else ""
    yield Event(turn["created_at"], Rank.BEGIN, "turn", f"turn {turn['number']} of the session{follows}{quiet}")
    for helper in story["helpers"]:
        yield Event(helper["created_at"], Rank.CALL_ENDED, "helper", f"{helper['id']} started")


def _messages(story: Mapping[str, Any]) -> Iterator[Event]:
    own = story["turn"]["id"]
    for row in story["messages"]:
        marker = "" if row["marker"] == "none" else f", marker {row['marker']}"
        said = f' "{shorten(row["text"], WORDS)}"' if row["text"].strip() else ""
        became = _became(row, own)
        by = f" by @{row['author']}" if row["author"] else ""
        words = f"{row['source']}{by} ({row['who']}{marker}){said}"
        decided = f"-> {row['disposition']} by row {row['policy_row'] or '-'}; {became}"
        yield Event(row["arrived_at"], Rank.MESSAGE, "message", f"{words} {decided}")


def _became(row: Row, own: str) -> str:
    if row["state"] == "waiting":
        return "not consumed yet" if row["turn_id"] in (None, own) else f"waits for {row['turn_id']}"
    if row["state"] == "consumed" and row["turn_id"] != own:
        return f"consumed by {row['turn_id']}"
    return str(row["state"])


def _stops(story: Mapping[str, Any]) -> Iterator[Event]:
    own = story["turn"]["id"]
    for row in story["stops"]:
        aim = (
            "" if row["turn_id"] == own else ", a tombstone" if row["turn_id"] is None else f", for {row['turn_id']}"
        )
        words = f"stop of the {row['level']} by {_who(row['author'])} ({row['source']}, ts {row['slack_ts']}){aim}"
        yield Event(row["arrived_at"], Rank.STOP, "stop", words)


def _attempts(story: Mapping[str, Any]) -> Iterator[Event]:
    for row in story["attempts"]:
        number = f"attempt {row['number']}"
        begun = f"{number} on {row['worker']}, epoch {row['epoch']}"
        yield Event(row["started_at"], Rank.ATTEMPT, "attempt", begun)
        if row["ended_at"] is None:
            continue
        if row["stamp"] is None:
            yield Event(row["ended_at"], Rank.ATTEMPT_ENDED, "attempt", f"{number} {row['ended']}, no stamp")
        else:
            words = f"{number} {row['ended']}, stamp {row['stamp']}{_where_cut(row, story)}"
            yield Event(row["ended_at"], Rank.ATTEMPT_ENDED, "cut", words)


def _where_cut(attempt: Row, story: Mapping[str, Any]) -> str:
    for step, at in _closed(story).items():
        if at == attempt["ended_at"]:
            return f", at the safe point behind step {step}"
    dropped = any(row["estimated"] for row in story["costs"])
    return ", the answer that was being written was thrown away" if dropped else ""


def _closed(story: Mapping[str, Any]) -> dict[int, float]:
    """When the batch of each step was closed: its results, its calls' ends and the cut are one transaction."""
    done = {row["step"] for row in story["entries"] if row["kind"] == "results"}
    ends = [(row["step"], row["ended_at"]) for row in story["calls"] if row["ended_at"] is not None]
    return {
        step: max(at for of, at in ends if of == step) for step in sorted(done) if any(of == step for of, _ in ends)
    }


HISTORY_NOW = {
    "mended": "the history goes on from what could be sent of it ({} messages)",
    "condensed": "the history was long or refused, and goes on from a shorter form of it ({} messages)",
}


def _entries(story: Mapping[str, Any]) -> Iterator[Event]:
    final = story["settle"]["final_event_id"] if story["settle"] else None
    spent, closed = _spent(story["costs"]), _closed(story)
    for row in story["entries"]:
        said = shorten(_text(row["body"]), WORDS)
        match row["kind"]:
            case "user":
                yield Event(row["created_at"], Rank.WORDS, "entry", f"the model is told: {said}")
            case "ladder":
                yield Event(row["created_at"], Rank.WORDS, "ladder", f"the model is told: {said}")
            case "results":
                count = len(row["body"]) if isinstance(row["body"], list) else 1
                words = f"step {row['step']}: {count} result{'s' if count != 1 else ''} committed, nothing is open"
                yield Event(closed.get(row["step"], row["created_at"]), Rank.RESULTS, "step", words)
            case "mended" | "condensed" as kind:
                yield Event(row["created_at"], Rank.REPAIR, kind, HISTORY_NOW[kind].format(len(row["body"])))
            case _ if row["id"] == final:
                at = story["settle"]["created_at"]
                yield Event(at, Rank.ANSWER, "answer", f"{said} (final event {final})")
            case _:
                yield _step(row, story["calls"], spent.get(row["step"], ""))


def _step(row: Row, calls: Sequence[Row], spent: str) -> Event:
    asked = [f"{call['tool']}({shorten(call['input_summary'], 60)})" for call in calls if call["step"] == row["step"]]
    text = _text(row["body"])
    said = f' "{shorten(text, 80)}"' if text else ""
    wants = f" asks for {len(asked)} call{'s' if len(asked) != 1 else ''}: {', '.join(asked)}" if asked else ""
    return Event(
        row["created_at"], Rank.ANSWER, "step", f"step {row['step']}: the model{wants or ' wrote'}{said}{spent}"
    )


def _spent(costs: Sequence[Row]) -> dict[int, str]:
    found: dict[int, str] = {}
    for step in {row["step"] for row in costs}:
        rows = [row for row in costs if row["step"] == step]
        tokens = sum(row["input_tokens"] for row in rows), sum(row["output_tokens"] for row in rows)
        found[step] = f" [{tokens[0]} tokens in, {tokens[1]} out, ${sum(row['usd'] for row in rows):.4f}]"
    return found


def _calls(story: Mapping[str, Any]) -> Iterator[Event]:
    opened = {row["step"]: row["created_at"] for row in story["entries"] if row["kind"] == "assistant"}
    for number, row in enumerate(story["calls"], 1):
        name = f"#{number} step {row['step']}: {row['tool']}({shorten(row['input_summary'], 60)})"
        if row["ended_at"] is None:
            tier = f", {row['tier']}" if row["tier"] != "read" else ""
            at = max(row["started_at"] or 0.0, opened.get(row["step"], 0.0))
            yield Event(at, Rank.CALL_ENDED, "call", f"{name} {row['status']}{tier}: no result yet")
            continue
        took = "" if row["duration_ms"] is None else f" after {row['duration_ms'] / 1000:.2f} s"
        result = shorten(row["output_summary"] or "", WORDS)
        yield Event(row["ended_at"], Rank.CALL_ENDED, "call", f"{name} {row['status']}{took}: {result}")


def _approvals(story: Mapping[str, Any]) -> Iterator[Event]:
    for row in story["approvals"]:
        name = f"{approval_id(row['number'])} for {row['tool']} of step {row['step']}"
        if row["decided_by"] == BY_CONFIGURATION:
            yield Event(row["created_at"], Rank.CALL_ENDED, "approval", f"{name} approved by the configuration")
            continue
        yield Event(row["created_at"], Rank.CALL_ENDED, "approval", f"{name} asked; digest {row['digest'][:12]}")
        if row["ended_at"] is not None:
            by = f" by {_who(row['decided_by'])}" if row["decided_by"] else ""
            why = f": {shorten(row['reason'], WORDS)}" if row["reason"] else ""
            yield Event(row["ended_at"], Rank.STOP, "approval", f"{name} {row['state']}{by}{why}")


def _repairs(story: Mapping[str, Any]) -> Iterator[Event]:
    for row in story["repairs"]:
        yield Event(row["created_at"], Rank.REPAIR, "repair", f"rule {row['rule']} at {row['path']}: {row['what']}")


def _settle(story: Mapping[str, Any]) -> Iterator[Event]:
    row = story["settle"]
    if row is None:
        return
    detail = f" ({row['detail']})" if row["detail"] else ""
    by = f" by {_who(row['ended_by'])}" if row["ended_by"] else ""
    final = f"final event {row['final_event_id']}" if row["final_event_id"] else "no final event"
    known = f"; known: {shorten(row['known'], WORDS)}" if row["known"] else ""
    looked = f", evidence of {len(row['evidence'])} call{'s' if len(row['evidence']) != 1 else ''}"
    words = f"{row['reason']}{detail}{by}{ended_at(row['step'])}: {final}{looked}, ${row['cost_usd']:.4f}{known}"
    yield Event(row["created_at"], Rank.SETTLE, "settle", words)


def _after(story: Mapping[str, Any]) -> Iterator[Event]:
    diagnosis, automation = story["diagnosis"], story["automation"]
    if diagnosis is not None:
        words = f"{diagnosis['kind']}: {shorten(diagnosis['text'], 2 * WORDS)}"
        yield Event(diagnosis["created_at"], Rank.AFTER_SETTLE, "diagnosis", words)
    if automation is not None:
        words = f"{automation['source']}: {automation['outcome']}"
        yield Event(automation["created_at"], Rank.AFTER_SETTLE, "automation", words)


def _posts(story: Mapping[str, Any]) -> Iterator[Event]:
    for row in story["posts"]:
        name = row["kind"] + (f" part {row['part']}" if row["part"] else "")
        whom = f" for {row['person']}" if row["person"] else ""
        said = shorten(_body_text(row["body"]), 80)
        yield Event(row["created_at"], Rank.POST, "outbox", f"{name}{whom} is to be sent: {said}")
        if row["ended_at"] is not None:
            where = f" as {row['message_ts']}" if row["message_ts"] else ""
            error = f": {row['error']}" if row["error"] else ""
            yield Event(row["ended_at"], Rank.POST, "outbox", f"{name} {row['state']}{where}{error}")
        elif row["error"]:
            at = row["sending_at"] or row["created_at"]
            words = f"{name} is still {row['state']} after {row['tries']} tries: {row['error']}"
            yield Event(at, Rank.POST, "outbox", words)


def _card(story: Mapping[str, Any]) -> Iterator[Event]:
    row = story["card"]
    if row is None:
        return
    yield Event(row["opened_at"], Rank.CARD, "card", "opened")
    where = f" as {row['message_ts']}" if row["message_ts"] else ", never posted"
    if row["released_at"] is not None:
        error = f" ({row['error']})" if row["error"] else ""
        yield Event(row["released_at"], Rank.CARD, "card", f"released{where}{error}")
    elif row["sent_at"] is not None:
        yield Event(row["sent_at"], Rank.CARD, "card", f"last shown{where}")
    elif row["error"]:
        yield Event(row["sending_at"] or row["opened_at"], Rank.CARD, "card", f"not shown yet: {row['error']}")


def _who(author: str | None) -> str:
    return f"@{author}" if author else "an operator"


def _text(body: Any) -> str:
    """The texts of an entry; what a damaged one holds is shown as it is."""
    if not isinstance(body, list) or not all(isinstance(block, dict) for block in body):
        return f"(not readable) {body}"
    return " ".join(str(block.get("text")) for block in body if block.get("type") == "text").strip()


def _body_text(body: Row) -> str:
    for name in ("text", "markdown", "status"):
        if name in body:
            return str(body[name])
    return f":{body['name']}:" if "name" in body else " ".join(body)
