"""*arrive*: what came in is written down with what the policy makes of it, before it is acknowledged.

The session's row is locked, the policy table decides over the state that is true at that moment, and everything that
follows is written in the same transaction: a turn with its card, a stop, a note, the sign on the person's message.
A duplicate writes nothing. Listeners do only this.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from sqlalchemy import and_, bindparam, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from core.approvals import ApprovalState
from core.card_words import person
from core.control import StopFact
from core.messages import (
    Arrival,
    Disposition,
    MessageId,
    Place,
    SessionId,
    SessionState,
    Source,
    TurnId,
)
from core.notices import Notice
from core.steering import Case, Decision, Effect, dispose
from core.stop import Fate, Waiting, fate_of
from storage.dialect import insert_ignore
from storage.ledger import requests
from storage.ledger import stops as stopping
from storage.ledger.common import STOPS, Ids, begin_turn, dump, lock, one, rows, strongest, unsettled
from storage.ledger.early_stops import adopt
from storage.ledger.retry import RETRY_ROW, retry_key
from storage.ledger.scene import Scene, early_stop, find, is_alone, new_session, target, who
from storage.ledger.signs import (
    BEFORE_START,
    SIGNS,
    ChannelPolicy,
    add_sign,
    notice,
    outside,
    sign,
    tell,
)
from storage.tables import messages, sessions, stops, turns

STATES: Mapping[Disposition, str] = {
    Disposition.START: "waiting",
    Disposition.STEER: "waiting",
    Disposition.QUEUE: "waiting",
    Disposition.NOTE: "waiting",
    Disposition.CONTROL: "control",
    Disposition.REFUSE: "refused",
    Disposition.IGNORE: "ignored",
}


@dataclass(frozen=True, slots=True)
class Arrived:
    """What became of an arrival. Nothing was stored when `session` is None or it is a duplicate."""

    session: SessionId | None
    disposition: Disposition | None = None
    row: str = ""
    notice: Notice | None = None
    message: MessageId | None = None
    turn: TurnId | None = None
    duplicate: bool = False


DOUBLE = select(messages.c.id).where(messages.c.dedupe_key == bindparam("key"))
NEWER_STOPS = STOPS.where(stops.c.session_id == bindparam("session"), stops.c.slack_ts > bindparam("ts")).order_by(
    stops.c.slack_ts
)


async def arrive(tx: AsyncConnection, ids: Ids, dialect: str, arrival: Arrival, policy: ChannelPolicy) -> Arrived:
    """Decide about one arrival and write everything that follows from it."""
    if await one(tx, DOUBLE, key=arrival.dedupe_key):
        return Arrived(None, duplicate=True)
    found = await find(tx, arrival)
    if found is None and arrival.place is Place.OUTSIDE:
        return Arrived(None, notice=await outside(tx, dialect, arrival, policy))
    if found is None and not _founds(arrival):
        return Arrived(None)
    known, fresh = (found, False) if found is not None else await new_session(tx, ids, dialect, arrival)
    session = await lock(tx, known)
    assert session is not None
    scene = Scene(session, None, None, arrival.who, fresh)
    if not fresh:
        scene.turn = await unsettled(tx, known)
        scene.target = await target(tx, session, arrival)
        scene.who = await who(tx, session, arrival)
        scene.alone = await is_alone(tx, scene.target)
    scene.fresh = not await adopt(tx, ids, dialect, scene, arrival) and fresh
    if arrival.assent and session["state"] == SessionState.SUSPENDED.value:
        scene.requests = [row["number"] for row in await requests.open_requests(tx, known)]
    decision = dispose(_case(scene, arrival), policy.overrides)
    return await _write(tx, ids, dialect, scene, arrival, decision, policy)


def _founds(arrival: Arrival) -> bool:
    """Whether an arrival may found a session."""
    return early_stop(arrival) or not (arrival.only_in_session or arrival.place is Place.TARGET)


def _case(scene: Scene, arrival: Arrival) -> Case:
    target, turn = scene.target, scene.turn
    mine = turn is not None and target is not None and target["turn_id"] == turn["id"]
    trigger = mine and target is not None and (target["disposition"] in ("start", "queue") or scene.alone)
    return Case(
        source=arrival.source,
        marker=arrival.marker,
        who=scene.who,
        state=SessionState(scene.session["state"]),
        rights=arrival.rights,
        mentioned=arrival.mentioned,
        bare_stop=arrival.bare,
        is_author=arrival.by_author and (target is None or target["author"] == arrival.author),
        consumed=None if target is None else target["state"] == "consumed",
        is_trigger=trigger,
        its_turn_running=mine,
        assent=arrival.assent,
        approval_open=bool(scene.requests),
        text_changed=target is None or target["text"] != arrival.text,
        action=arrival.action,
    )


# -- what is written


async def _write(
    tx: AsyncConnection,
    ids: Ids,
    dialect: str,
    scene: Scene,
    arrival: Arrival,
    decision: Decision,
    policy: ChannelPolicy,
) -> Arrived:
    disposition, state, stop = await _tombstoned(tx, scene, arrival, decision.disposition)
    message = MessageId(ids("m"))
    written = await tx.execute(
        insert_ignore(messages, dialect), _message(message, scene, arrival, disposition, decision.row, state)
    )
    if written.rowcount == 0:
        return Arrived(None, duplicate=True)
    turn, instead = await _apply(tx, ids, dialect, scene, arrival, decision, disposition, state, message, policy)
    said = instead or (decision.notice if decision.disposition is not Disposition.START else None)
    await sign(tx, dialect, scene, arrival, disposition, state, message, taken=said is None)
    if stop is not None and state == "stopped":
        await tell(tx, dialect, scene, arrival, message, {"text": BEFORE_START.format(who=person(stop.author))})
    elif said is not None and not await _heard_already(tx, scene, arrival, said):
        await notice(tx, dialect, scene, arrival, message, said, policy)
    return Arrived(SessionId(scene.session["id"]), disposition, decision.row, said, message, turn)


async def _heard_already(tx: AsyncConnection, scene: Scene, arrival: Arrival, said: Notice) -> bool:
    """Whether "already ended" would be said to somebody whose own stop has just ended it, or of nothing at all."""
    if said is not Notice.ALREADY_ENDED:
        return False
    unknown = early_stop(arrival) and scene.session["next_turn"] == 1
    return unknown or await stopping.is_double(tx, scene, arrival)


async def _tombstoned(
    tx: AsyncConnection, scene: Scene, arrival: Arrival, disposition: Disposition
) -> tuple[Disposition, str, StopFact | None]:
    """A stop that is newer than this message also stops what has not started yet."""
    state = STATES[disposition]
    if scene.fresh or disposition not in (Disposition.START, Disposition.STEER, Disposition.QUEUE):
        return disposition, state, None
    stop = strongest(await rows(tx, NEWER_STOPS, session=scene.session["id"], ts=arrival.ts))
    if stop is None:
        return disposition, state, None
    fate = fate_of(Waiting(disposition.value), arrival.ts, stop)
    if fate is Fate.STOPPED:
        return disposition, "stopped", stop
    if fate is Fate.BECOMES_NOTE:
        return Disposition.NOTE, "waiting", stop
    return disposition, state, None


def _message(
    message: MessageId, scene: Scene, arrival: Arrival, disposition: Disposition, policy_row: str, state: str
) -> dict[str, Any]:
    control = disposition in (Disposition.CONTROL, Disposition.REFUSE)
    return {
        "id": message,
        "session_id": scene.session["id"],
        "dedupe_key": arrival.dedupe_key,
        "source": arrival.source.value,
        "marker": arrival.marker.value,
        "who": scene.who.value,
        "author": arrival.author,
        "text": arrival.text,
        "slack_ts": arrival.ts,
        "target_ts": arrival.target_ts,
        "files": "[]" if control else dump([asdict(file) for file in arrival.files]),
        "disposition": disposition.value,
        "policy_row": policy_row,
        "state": state,
        "arrived_at": scene.at,
    }


async def _apply(
    tx: AsyncConnection,
    ids: Ids,
    dialect: str,
    scene: Scene,
    arrival: Arrival,
    decision: Decision,
    disposition: Disposition,
    state: str,
    message: MessageId,
    policy: ChannelPolicy,
) -> tuple[TurnId | None, Notice | None]:
    """Do what the decision says; the turn that it started, and a notice that replaces the decision's."""
    match decision.effect:
        case Effect.STOP | Effect.TOMBSTONE | Effect.CANCEL_TURN:
            return None, await stopping.stop(tx, ids, dialect, scene, arrival, decision, message)
        case Effect.WITHDRAW:
            await _change(tx, scene, state="withdrawn")
            if await _nobody_asks(tx, scene):
                cancel = replace(decision, effect=Effect.CANCEL_TURN)
                return None, await stopping.stop(tx, ids, dialect, scene, arrival, cancel, message)
        case Effect.RETRY:
            return await _retry(tx, ids, dialect, scene, arrival)
        case Effect.REDIRECT_NOTE:
            return None, await _redirect(tx, dialect, scene, arrival)
        case Effect.DECIDE:
            return None, await requests.decide(tx, scene, arrival)
        case Effect.STOP_HELPER:
            return None, Notice.EXPIRED_CONTROL  # the ledger knows no helper of this id
        case _:
            await _touch(tx, scene, arrival, decision.effect, state)
    if state != "waiting":
        return None, None
    if disposition is Disposition.START:
        words = [{**_message(message, scene, arrival, disposition, "", state)}]
        turn = await begin_turn(tx, ids, scene.session, words, at=scene.at, start_after=scene.at, predecessor=None)
        return turn, None
    if disposition is Disposition.STEER:
        await _wait_for_quiet(tx, scene, policy)
    return None, None


async def _touch(tx: AsyncConnection, scene: Scene, arrival: Arrival, effect: Effect | None, state: str) -> None:
    """What a decision does to words and requests that are there already."""
    if effect is Effect.REPLACE_TEXT:
        await _change(tx, scene, text=arrival.text, files=dump([asdict(file) for file in arrival.files]))
    elif effect is Effect.WITHDRAW_REQUEST and state == "waiting":
        await _withdraw_requests(tx, scene)
    elif arrival.source is Source.DELETE:
        await _show_again(tx, scene)


async def _withdraw_requests(tx: AsyncConnection, scene: Scene) -> None:
    """Whoever redirects takes back what the turn asked for."""
    if scene.turn is not None:
        await requests.end_open(tx, scene.turn["id"], ApprovalState.WITHDRAWN, scene.at)


async def _change(tx: AsyncConnection, scene: Scene, **values: str) -> None:
    if scene.target is not None:
        await tx.execute(
            update(messages)
            .where(messages.c.id == scene.target["id"], messages.c.state == "waiting")
            .values(**values)
        )


async def _nobody_asks(tx: AsyncConnection, scene: Scene) -> bool:
    """Whether a turn that has not begun has no words left; one whose words are being read has not begun either."""
    if scene.turn is None:
        return False
    mine = and_(messages.c.turn_id == scene.turn["id"], messages.c.state.in_(["waiting", "consumed"]))
    return await one(tx, select(messages.c.id).where(mine).limit(1)) is None


async def _show_again(tx: AsyncConnection, scene: Scene) -> None:
    """The card has something to say: words that its turn had read are gone."""
    if scene.turn is not None and scene.target is not None and scene.target["turn_id"] == scene.turn["id"]:
        await tx.execute(
            update(sessions).where(sessions.c.id == scene.session["id"]).values(version=sessions.c.version + 1)
        )


async def _wait_for_quiet(tx: AsyncConnection, scene: Scene, policy: ChannelPolicy) -> None:
    """A turn that waits for a quiet thread waits a little longer, but not for ever."""
    turn = scene.turn
    if turn is None or turn["state"] != "waiting" or turn["start_after"] <= turn["first_at"]:
        return
    later = min(turn["first_at"] + policy.quiet_max_s, scene.at + policy.quiet_s)
    if later > turn["start_after"]:
        await tx.execute(update(turns).where(turns.c.id == turn["id"]).values(start_after=later))


async def _retry(
    tx: AsyncConnection, ids: Ids, dialect: str, scene: Scene, arrival: Arrival
) -> tuple[TurnId | None, Notice | None]:
    """The question of an ended turn once more, in the words of whoever asked it."""
    ended = await one(tx, select(turns).where(turns.c.id == (arrival.turn_id or arrival.subject or "")))
    if ended is None:
        return None, Notice.EXPIRED_CONTROL
    again = MessageId(ids("m"))
    asked = await rows(
        tx,
        select(messages.c.text, messages.c.files)
        .where(messages.c.turn_id == ended["id"], messages.c.disposition != "note")
        .order_by(messages.c.slack_ts),
    )
    values = {
        **_message(again, scene, arrival, Disposition.START, RETRY_ROW, "waiting"),
        "dedupe_key": retry_key(ended["id"], arrival.ts),
        "source": "mention",
        "text": "\n".join(word["text"] for word in asked) or ended["asked_text"],
        "files": dump([file for word in asked for file in json.loads(word["files"])]),
    }
    await tx.execute(insert_ignore(messages, dialect), values)
    turn = await begin_turn(tx, ids, scene.session, [values], at=scene.at, start_after=scene.at, predecessor=None)
    return turn, None


async def _redirect(tx: AsyncConnection, dialect: str, scene: Scene, arrival: Arrival) -> Notice | None:
    """A note becomes a steer, if nobody has read it yet and no stop came after the click.

    It is asked when the button is pressed: a stop between the two does not reach it. Where it stands in Slack is
    kept as its target.
    """
    target = scene.target
    if target is None or target["state"] != "waiting" or target["disposition"] != "note":
        return Notice.ALREADY_ENDED
    if await rows(tx, NEWER_STOPS, session=scene.session["id"], ts=arrival.ts):
        return Notice.ALREADY_ENDED
    await tx.execute(
        update(messages)
        .where(messages.c.id == target["id"])
        .values(disposition="steer", policy_row="redirect_button", slack_ts=arrival.ts, target_ts=target["slack_ts"])
    )
    await _withdraw_requests(tx, scene)
    await add_sign(tx, dialect, scene, f"redirected:{target['id']}", target["slack_ts"], SIGNS[Disposition.STEER])
    return None
