"""*claim*: a worker takes a session and its unsettled turn, and the turn takes its words.

A claim by somebody new raises the epoch: whatever the worker before it still tries to write is refused from then on.
An attempt that was found unended crashed. A turn that is found stamped or stopped is handed out to be closed and
settled only. One that waits for people is taken when nothing is open any more, or when a stop or a steer came.

System prompt and tools of a session stay as they were when it began, whatever a release brings: thinking is bound
to them. The model follows the configuration, because old models are retired; no model reads another one's thinking,
so it is taken out once, with an entry from which the projection begins, between two steps and never inside one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Float, String, bindparam, case, func, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from core.approvals import Approval
from core.control import StopFact
from core.gateway import Call, CallStatus
from core.history import BEGINNINGS, Entry, EntryKind, calls_of, has_thinking, project, user_block, without_thinking
from core.ledger import Claimed, Frozen, Lease, OpenCall, Surroundings, Wanted
from core.messages import ChannelId, Epoch, FileRef, SessionId, SlackTs, Source, TurnId, UserId
from core.ports import Evidence
from core.remediation import EmptyCause, Rung
from core.repeats import looked_at
from core.turn import Stamp, TurnMove, TurnState, move_turn
from storage.database import now
from storage.ledger import requests
from storage.ledger.common import Row, asked_text, dump, fingerprint, lock, mail_of, one, rows, stop_of, unsettled
from storage.ledger.open import NEW_ENTRY, add_entry
from storage.tables import attempts, calls, entries, messages, sessions, turns
from storage.words import spoken

UNREADABLE_CHARS = 2_000

_SESSION, _TURN = bindparam("session", type_=String), bindparam("turn", type_=String)

LEASE = (
    update(sessions)
    .where(sessions.c.id == _SESSION)
    .values(
        lease_owner=bindparam("worker"),
        lease_until=now() + bindparam("lease_s", type_=Float),
        epoch=bindparam("fencing"),
        state="running",
        next_seq=bindparam("seq"),
        version=sessions.c.version + 1,
        context_read=bindparam("read"),
    )
)
FREEZE = update(sessions).where(sessions.c.id == _SESSION)
LAST_ATTEMPT = (
    select(attempts.c.number, attempts.c.ended, attempts.c.stamp)
    .where(attempts.c.turn_id == _TURN)
    .order_by(attempts.c.number.desc())
    .limit(1)
)
CRASHED = (
    update(attempts)
    .where(attempts.c.turn_id == _TURN, attempts.c.number == bindparam("attempt"))
    .values(ended="crashed", ended_at=now())
)
NEW_ATTEMPT = insert(attempts).values(started_at=now())
RUN = update(turns).where(turns.c.id == _TURN).values(state="running", crashes=bindparam("crashed"))
_BEGINNING = (
    select(func.max(entries.c.seq))
    .where(entries.c.session_id == _SESSION, entries.c.kind.in_([kind.value for kind in sorted(BEGINNINGS)]))
    .scalar_subquery()
)
HISTORY = (
    select(entries.c.id, entries.c.turn_id, entries.c.kind, entries.c.step, entries.c.body)
    .where(
        entries.c.session_id == _SESSION,
        or_(entries.c.seq >= func.coalesce(_BEGINNING, 0), entries.c.turn_id == _TURN),
    )
    .order_by(entries.c.seq)
)
"""What the projection needs, and everything that the turn itself has written."""
CALLS = select(calls).where(calls.c.turn_id == _TURN).order_by(calls.c.step, calls.c.position)
WRITTEN_AT = case((messages.c.policy_row == "redirect_button", messages.c.target_ts), else_=messages.c.slack_ts)
"""Words are read in the order in which they were written, whenever they were made a redirection."""

WORDS = (
    select(messages)
    .where(
        messages.c.session_id == _SESSION,
        messages.c.state == "waiting",
        or_(messages.c.turn_id == _TURN, messages.c.disposition.in_(["note", "steer"])),
    )
    .order_by(WRITTEN_AT)
)
CONSUME = (
    update(messages)
    .where(messages.c.id.in_(bindparam("words", expanding=True)))
    .values(state="consumed", turn_id=_TURN)
)
GROW = update(turns).where(turns.c.id == _TURN).values(newest_ts=bindparam("newest"), asked_text=bindparam("asked"))


async def claim(
    tx: AsyncConnection,
    session_id: SessionId,
    worker: str,
    frozen: Frozen,
    *,
    lease_s: float,
    surroundings: Surroundings | None = None,
    holding: Lease | None = None,
) -> Claimed | None:
    """See `core.ledger.Ledger.claim`. `holding` is the lease of a worker that claims again (its words grew)."""
    session = await lock(tx, session_id)
    if session is None or not _free(session, worker, holding):
        return None
    turn = await unsettled(tx, session_id)
    if turn is None:
        return None
    turn_id = TurnId(turn["id"])
    stop = await stop_of(tx, session_id, turn_id)
    if stop is None and holding is None and turn["start_after"] > session["now"]:
        return None
    suspended = turn["state"] == TurnState.SUSPENDED.value
    if suspended and not await _woken(tx, session, turn_id, stop):
        return None
    epoch = Epoch(session["epoch"] + (holding is None))
    move_turn(TurnState(turn["state"]), TurnMove.RESUME if suspended else TurnMove.CLAIM)
    attempt, stamp, crashes = await _attempt(tx, turn, worker, epoch, fresh=holding is None)
    freeze = _freeze(session, frozen)
    claimed = Claimed(
        lease=Lease(session_id, worker, epoch),
        turn=turn_id,
        attempt=attempt,
        source=Source(turn["source"]),
        asked_by=UserId(turn["asked_by"]),
        channel=ChannelId(session["channel"]),
        thread_ts=SlackTs(session["thread_ts"]),
        frozen=Frozen(freeze["model"], freeze["system"], json.loads(freeze["tools"])),
        running_s=turn["running_s"],
        rung=Rung(turn["rung"]),
        rung_cause=EmptyCause(turn["rung_cause"]) if turn["rung_cause"] else None,
        crashes=crashes,
        created_at=turn["created_at"],
        stop=stop,
        stamp=stamp,
        at=session["now"],
    )
    history = await _history(tx, session_id, turn_id)
    _place(claimed, history)
    next_seq = session["next_seq"]
    if _under_way(history, turn_id):
        claimed.steers = (await mail_of(tx, session_id, turn_id)).steers
    elif stop is None and stamp is None:
        words = await _words(tx, session_id, turn_id)
        claimed.wanted = _wanted(session, words) if surroundings is None else None
        if claimed.wanted is None and words:
            around = surroundings or Surroundings()
            entry = await _consume(tx, session, turn, words, around, epoch)
            history.append(entry)
            next_seq += 1
    claimed.messages = project(entry for _, entry in history)
    await _recall(tx, claimed, history)
    if session["model"] not in (None, frozen.model):
        next_seq += await _switch_model(tx, session, claimed, frozen, next_seq)
    await tx.execute(
        LEASE,
        {
            "session": session_id,
            "worker": worker,
            "lease_s": lease_s,
            "fencing": epoch,
            "seq": next_seq,
            "read": session["context_read"] or (claimed.wanted is None and surroundings is not None),
        },
    )
    if session["system"] is None:
        await tx.execute(FREEZE, {"session": session_id, **freeze})
    return claimed


async def _woken(tx: AsyncConnection, session: Row, turn: TurnId, stop: StopFact | None) -> bool:
    """Whether a suspended turn goes on: nothing is open any more, or a stop or a steer came."""
    steers = (await mail_of(tx, session["id"], turn)).steers
    if stop is None and not steers and await requests.still_waits(tx, turn):
        return False
    await requests.wake(tx, turn, session["now"], stopped=stop is not None, steered=steers > 0)
    return True


async def _switch_model(tx: AsyncConnection, session: Row, claimed: Claimed, frozen: Frozen, seq: int) -> int:
    """Go on with the configured model, if a request may leave; returns how many entries that took."""
    if claimed.open_calls or claimed.wanted is not None or claimed.stop is not None or claimed.stamp is not None:
        return 0
    claimed.frozen = replace(claimed.frozen, model=frozen.model)
    await tx.execute(FREEZE, {"session": session["id"], "model": frozen.model})
    if not has_thinking(claimed.messages):
        return 0
    claimed.messages = without_thinking(claimed.messages)
    await add_entry(tx, claimed, seq, EntryKind.MENDED.value, claimed.steps, claimed.messages)
    return 1


def _free(session: Row, worker: str, holding: Lease | None) -> bool:
    if holding is not None:
        return bool(session["epoch"] == holding.epoch and session["lease_owner"] == holding.worker)
    owner = session["lease_owner"]
    return owner is None or owner == worker or session["lease_until"] <= session["now"]


def _freeze(session: Row, frozen: Frozen) -> dict[str, str]:
    if session["system"] is not None:
        return {"model": session["model"], "system": session["system"], "tools": session["tools"]}
    tools = dump(list(frozen.tools))
    return {
        "model": frozen.model,
        "system": frozen.system,
        "tools": tools,
        "fingerprint": fingerprint(frozen.system, tools),
    }


async def _attempt(
    tx: AsyncConnection, turn: Row, worker: str, epoch: Epoch, *, fresh: bool
) -> tuple[int, Stamp | None, int]:
    """The attempt of this claim: (number, a stamp that was never settled, crashes so far)."""
    last = await one(tx, LAST_ATTEMPT, turn=turn["id"])
    crashes: int = turn["crashes"]
    if last is not None and not fresh:
        return last["number"], None, crashes
    if last is not None and last["ended"] == "cut":
        return last["number"], Stamp(last["stamp"]), crashes
    if last is not None and last["ended"] is None:
        crashes += 1
        await tx.execute(CRASHED, {"turn": turn["id"], "attempt": last["number"]})
    number = 1 if last is None else last["number"] + 1
    await tx.execute(NEW_ATTEMPT, {"turn_id": turn["id"], "number": number, "worker": worker, "epoch": epoch})
    if turn["state"] != "running" or crashes != turn["crashes"]:
        await tx.execute(RUN, {"turn": turn["id"], "crashed": crashes})
    return number, None, crashes


async def _history(tx: AsyncConnection, session: SessionId, turn: str) -> list[tuple[str, Entry]]:
    found = await rows(tx, HISTORY, session=session, turn=turn)
    return [
        (row["turn_id"], Entry(row["id"], EntryKind(row["kind"]), row["step"], _body(row["body"]))) for row in found
    ]


def _body(stored: str) -> list[Any]:
    """The blocks of an entry. What can't be read is one text: the suture marks it, and the session lives on."""
    try:
        found = json.loads(stored)
    except (ValueError, RecursionError):
        found = stored[:UNREADABLE_CHARS]
    return found if isinstance(found, list) else [found]


async def history(tx: AsyncConnection, session: SessionId) -> list[dict[str, Any]]:
    """The projected history of a session."""
    return project(entry for _, entry in await _history(tx, session, ""))


def _under_way(found: Sequence[tuple[str, Entry]], turn: TurnId) -> bool:
    """Whether the turn has taken a step or a rung: then words that come are not its own any more."""
    own = BEGINNINGS | {EntryKind.USER}
    return any(owner == turn and entry.kind not in own for owner, entry in found)


def _place(claimed: Claimed, found: Sequence[tuple[str, Entry]]) -> None:
    """How many steps the turn has taken."""
    own = [entry for owner, entry in found if owner == claimed.turn]
    claimed.steps = max((entry.step for entry in own if entry.kind is EntryKind.ASSISTANT), default=0)


async def _recall(tx: AsyncConnection, claimed: Claimed, found: Sequence[tuple[str, Entry]]) -> None:
    """What earlier attempts looked at, and the calls that have no result yet."""
    if claimed.steps == 0:
        return
    known = await rows(tx, CALLS, turn=claimed.turn)
    last = found[-1][1]
    waiting = {str(block.get("id")) for block in calls_of(last.body)} if last.kind is EntryKind.ASSISTANT else set()
    asked = await requests.approvals_of(tx, claimed.turn) if waiting else {}
    opened: list[OpenCall] = []
    for row in known:
        if row["step"] == last.step and row["call_id"] in waiting:
            opened.append(_open_call(row, asked.get(row["id"])))
            continue
        claimed.looked.append(looked_at(_call(row), CallStatus(row["status"]), row["output"] or "", row["step"]))
        if row["status"] == CallStatus.OK.value:
            claimed.evidence.append(Evidence(row["call_id"], row["tool"], row["input_summary"], _links(row)))
    claimed.open_calls = opened


def _open_call(row: Row, approval: Approval | None) -> OpenCall:
    took = (row["duration_ms"] or 0.0) / 1000
    return OpenCall(_call(row), row["status"], row["output"], _links(row), took, approval)


def _links(row: Row) -> tuple[tuple[str, str], ...]:
    return tuple((str(title), str(url)) for title, url in json.loads(row["links"]))


def _call(row: Row) -> Call:
    return Call(
        position=row["position"],
        call_id=row["call_id"],
        tool=row["tool"],
        arguments=json.loads(row["arguments"]),
        tier=row["tier"],
        interruptible=row["tier"] == "read",
        summary=row["input_summary"],
        refusal=row["output"] if row["status"] == CallStatus.REFUSED.value else None,
    )


async def _words(tx: AsyncConnection, session: SessionId, turn: TurnId) -> Sequence[Row]:
    """What the turn is about: its own messages, notes that were kept, and steers that came before it began."""
    return await rows(tx, WORDS, session=session, turn=turn)


def _wanted(session: Row, words: Sequence[Row]) -> Wanted | None:
    """What Slack has to be asked before these words make sense."""
    files = [FileRef(**file) for word in words for file in json.loads(word["files"])]
    inside = any(word["slack_ts"] != session["thread_ts"] for word in words)
    thread = bool(not session["context_read"] and inside and session["next_seq"] == 1)
    if not thread and not files:
        return None
    asked = [word for word in words if word["disposition"] != "note"] or words
    return Wanted(
        ChannelId(session["channel"]),
        SlackTs(session["thread_ts"]),
        SlackTs(min(str(word["slack_ts"]) for word in asked)),
        thread,
        files,
    )


async def _consume(
    tx: AsyncConnection,
    session: Row,
    turn: Row,
    words: Sequence[Row],
    around: Surroundings,
    epoch: Epoch,
) -> tuple[str, Entry]:
    body: list[dict[str, Any]] = [user_block(around.thread)] if around.thread else []
    body += [user_block(spoken(_plain(word))) for word in words]
    body += [dict(block) for block in around.blocks]
    entry = Entry(f"{turn['id']}.{session['next_seq']}", EntryKind.USER, 0, body)
    await tx.execute(
        NEW_ENTRY,
        {
            "id": entry.id,
            "session_id": session["id"],
            "turn_id": turn["id"],
            "seq": session["next_seq"],
            "kind": entry.kind.value,
            "step": 0,
            "body": dump(body),
            "epoch": epoch,
        },
    )
    await tx.execute(CONSUME, {"words": [word["id"] for word in words], "turn": turn["id"]})
    asked = [word for word in words if word["disposition"] != "note"]
    if any(word["turn_id"] is None for word in asked):
        newest = max([turn["newest_ts"], *(str(word["slack_ts"]) for word in asked)])
        await tx.execute(GROW, {"turn": turn["id"], "newest": newest, "asked": asked_text(asked)})
    return turn["id"], entry


def _plain(word: Row) -> Mapping[str, str]:
    return {key: str(word[key]) for key in ("source", "author", "text", "disposition")}
