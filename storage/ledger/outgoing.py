"""What we say in Slack, as outbox rows: written in the transaction that decides it, sent by the writer.

A row's `body` is JSON. Kinds and their bodies:

    answer      {"markdown", "asked_by"}            a post in the thread, split into parts by the writer
    notice      {"text"}                            a short post in the thread
    ephemeral   {"notice", ...}                     words for one person, sent at most once
    reaction    {"name", "add"}                     a sign on somebody's message
    direct      {"text"}                            a direct message
    status      {"status"}                          the thread's agent session, fenced by turn
    request     {"approval"}                        the post that asks for approval, drawn when it is sent
    rewrite     {"approval"}                        that post once more, as the rows are then
    picture     {"picture", "title", "text"}        a row of `pictures` as a file in the thread; "file" is its id at
                                                    Slack once its bytes are there

Order: stop acknowledgements, answers, final cards, new cards, progress (`Priority`).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

from core.control import Closed
from core.ledger import Claimed
from core.redaction import redact
from storage.ledger.common import dump


class Priority(IntEnum):
    """What is sent first."""

    STOP = 0
    ANSWER = 1
    FINAL_CARD = 2
    NEW_CARD = 3
    SIGN = 4
    PROGRESS = 5


def answer_row(claimed: Claimed, markdown: str, at: float) -> dict[str, Any]:
    """The answer of a turn, as a whole and without secrets; the writer splits it into parts."""
    return {
        "session_id": claimed.lease.session,
        "turn_id": claimed.turn,
        "kind": "answer",
        "priority": Priority.ANSWER.value,
        "dedupe_key": f"answer:{claimed.turn}:0",
        "channel": claimed.channel,
        "thread_ts": claimed.thread_ts,
        "body": dump({"markdown": redact(markdown), "asked_by": claimed.asked_by}),
        "state": "waiting",
        "created_at": at,
    }


def picture_row(claimed: Claimed, picture: str, title: str, alt: str, at: float) -> dict[str, Any]:
    """A picture of the table `pictures`, to be posted in the thread of a turn."""
    return {
        "session_id": claimed.lease.session,
        "turn_id": claimed.turn,
        "kind": "picture",
        "priority": Priority.SIGN.value,
        "dedupe_key": f"picture:{picture}",
        "channel": claimed.channel,
        "thread_ts": claimed.thread_ts,
        "body": dump({"picture": picture, "title": title, "text": alt}),
        "state": "waiting",
        "created_at": at,
    }


def row(
    kind: str,
    dedupe_key: str,
    body: Mapping[str, Any],
    *,
    session: Mapping[str, Any],
    at: float,
    priority: Priority = Priority.SIGN,
    turn: str | None = None,
    person: str | None = None,
    target_ts: str | None = None,
) -> dict[str, Any]:
    """Any other outbox row of a session (id, channel, thread_ts)."""
    return {
        "session_id": session["id"],
        "turn_id": turn,
        "kind": kind,
        "priority": priority.value,
        "dedupe_key": dedupe_key,
        "channel": session["channel"],
        "thread_ts": session["thread_ts"],
        "target_ts": target_ts,
        "person": person,
        "body": dump(dict(body)),
        "state": "waiting",
        "created_at": at,
    }


def request_row(claimed: Claimed, approval: int, at: float) -> dict[str, Any]:
    """The post that asks for approval of request number `approval`."""
    session = {"id": claimed.lease.session, "channel": claimed.channel, "thread_ts": claimed.thread_ts}
    key, body = request_keys(approval)[0], {"approval": approval}
    return row("request", key, body, session=session, at=at, priority=Priority.ANSWER, turn=claimed.turn)


def request_again_row(session: Mapping[str, Any], turn: str, approval: int, at: float) -> dict[str, Any]:
    """The same post once more, for one that was deleted; there is never a third."""
    key, body = request_keys(approval)[1], {"approval": approval}
    return row("request", key, body, session=session, at=at, priority=Priority.ANSWER, turn=turn)


def request_keys(approval: int) -> tuple[str, str]:
    """The keys of the rows that post request number `approval`."""
    return f"request:{approval}", f"request:{approval}:again"


def rewrite_row(session: Mapping[str, Any], turn: str, approval: int, why: str, at: float) -> dict[str, Any]:
    """The post of request number `approval` once more; `why` tells one rewriting from another."""
    key, body = f"rewrite:{approval}:{why}", {"approval": approval}
    return row("rewrite", key, body, session=session, at=at, priority=Priority.STOP, turn=turn)


WHY_CLOSED: Mapping[Closed, str] = {
    Closed.ARCHIVED: "the channel is archived",
    Closed.CHANNEL: "the channel takes no messages from me",
    Closed.THREAD: "the thread was deleted or locked",
}
NO_PLACE = (
    "I ended my work in #{{{channel}}}: {why}, so there is no place to show it. Nothing goes on in the background. "
    "Ask again where I may write."
)


def no_place_row(claimed: Claimed, closed: Closed, at: float) -> dict[str, Any]:
    """What who asked is told directly when the place of a turn takes no more messages."""
    return {
        "session_id": claimed.lease.session,
        "turn_id": claimed.turn,
        "kind": "direct",
        "priority": Priority.ANSWER.value,
        "dedupe_key": f"direct:{claimed.turn}:unreachable",
        "channel": claimed.channel,
        "person": claimed.asked_by,
        "body": dump({"text": NO_PLACE.format(channel=claimed.channel, why=WHY_CLOSED[closed])}),
        "state": "waiting",
        "created_at": at,
    }
