"""What a person is told about a message that did not simply start or steer: a closed list and its sentences.

Every sentence says what happened, what is known, and what to do next. They are ephemeral: only who wrote sees them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType


class Notice(StrEnum):
    """What the steering policy has to say to the author."""

    REFUSED_ASK = "refused_ask"
    REFUSED_STEER = "refused_steer"
    REFUSED_STOP = "refused_stop"
    REFUSED_APPROVE = "refused_approve"
    NOTHING_RUNNING = "nothing_running"
    NOTHING_HERE = "nothing_here"
    ALREADY_ENDED = "already_ended"
    STILL_WORKING = "still_working"
    KEPT_AS_NOTE = "kept_as_note"
    SEND_AS_NEW = "send_as_new"
    HOW_TO_APPROVE = "how_to_approve"
    NOTHING_TO_DECIDE = "nothing_to_decide"
    WHICH_REQUEST = "which_request"
    NOT_SEEN_YET = "not_seen_yet"
    ALREADY_DECIDED = "already_decided"
    REQUEST_EXPIRED = "request_expired"
    NEEDS_ANOTHER = "needs_another"
    WITH_A_CONDITION = "with_a_condition"
    EXPIRED_CONTROL = "expired_control"
    WHICH_TURN = "which_turn"


SENTENCES: Mapping[Notice, str] = MappingProxyType(
    {
        Notice.REFUSED_ASK: "I did not start: only {who_may} can ask me here. "
        "Ask one of them to mention me with your question.",
        Notice.REFUSED_STEER: "I did not change course: only {who_may} can redirect me here. "
        "Ask one of them to reply in this thread.",
        Notice.REFUSED_STOP: "I did not stop: only {who_may} can stop me here, and nothing has changed. "
        "Ask one of them to press Stop or to write `stop` in this thread.",
        Notice.REFUSED_APPROVE: "Your decision was not taken: only {who_may} can decide this, and nothing has run. "
        "Ask one of them.",
        Notice.NOTHING_RUNNING: "Nothing is running in this thread, so there was nothing to stop. "
        "I keep your stop: it also ends anything asked before it that has not started yet.",
        Notice.NOTHING_HERE: "Nothing of mine is running here, so there was nothing to stop.",
        Notice.ALREADY_ENDED: "That turn has already ended, so nothing was changed. "
        "To stop what runs in this thread now, write `stop` here; to go on, just write.",
        Notice.STILL_WORKING: "I am already at work in this thread, so I did not start again. "
        "Reply in the thread to redirect me, or stop me first.",
        Notice.KEPT_AS_NOTE: "Kept as a note: I will read it with the next turn, and my work goes on unchanged. "
        "Press *Redirect now* if I should change course, or begin a reply with `!`.",
        Notice.SEND_AS_NEW: "I had already passed that message when you edited it, so the edit changes nothing. "
        "Please send it as a new message.",
        Notice.HOW_TO_APPROVE: "That did not approve anything, and nothing has run. "
        "{Who_may} can press Approve or Deny on the request, or write `approve {approval}` or `deny {approval} why`.",
        Notice.NOTHING_TO_DECIDE: "There is nothing to decide in this thread now: no request is open. "
        "It may have been decided, withdrawn or run out; ask me again if the change is still wanted.",
        Notice.WHICH_REQUEST: "Several requests are open in this thread, so your decision was not taken. "
        "Press Approve or Deny on the one you mean, or write its id, as in `approve ap-7` or `deny ap-7 why`.",
        Notice.NOT_SEEN_YET: "Your decision was not taken: a request in this thread is newer than your words. "
        "Look at it, then press Approve or Deny, or write its id, as in `approve ap-7` or `deny ap-7 why`.",
        Notice.ALREADY_DECIDED: "That request is no longer open, so your decision was not taken: "
        "it was decided, withdrawn or stopped before. Its post says how.",
        Notice.REQUEST_EXPIRED: "That request had run out, so your decision was not taken and nothing has run. "
        "Ask me again if the change is still wanted.",
        Notice.NEEDS_ANOTHER: "Your decision was not taken: this leaves the company, so somebody else than those who "
        "asked must decide. The request stays open for {who_may}.",
        Notice.WITH_A_CONDITION: "That did not approve anything: I run a change now or not at all, and your words "
        "ask or put a condition. Write `approve` with the id and nothing else, press a button, or deny and say why.",
        Notice.EXPIRED_CONTROL: "This control has expired and did nothing. "
        "Write `stop` or `cancel` in the thread to stop me, or mention me to ask.",
        Notice.WHICH_TURN: "I can't tell which of my turns you mean, so nothing was stopped. "
        "These are running: press Stop on the one you mean.",
    }
)

NOBODY = "nobody that I know of"


def say(notice: Notice, *, who_may: str = "", approval: str = "") -> str:
    """The sentence for `notice`.

    `who_may` names the people who hold the right, as in "people on call for this channel"; `approval` is the id of
    the open request, if there is exactly one.
    """
    people = who_may or NOBODY
    return SENTENCES[notice].format(
        who_may=people, Who_may=people[:1].upper() + people[1:], approval=approval or "ID"
    )
