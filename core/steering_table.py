"""The steering policy as one table: (source, marker, who, session state) -> disposition.

The first matching row decides.

Read a row from left to right: its name, which sources and markers it is about, who wrote, what else must hold, and
then one cell for each state of the session: idle, running, suspended, waiting. `None` means any. A cell may hold a
condition and what happens otherwise: "steer if may steer, else queue".

The first part is the control plane. It decides rights, stops, decisions, buttons, edits and deletions, and nothing of
it ever becomes text for the model. Rows that a channel's configuration adds stand between the two parts, so that no
configuration can grant a right or turn control into conversation. The second part is conversation; its last row
catches everything.

A deletion asks for no right: Slack lets only the author and administrators delete, and the request is gone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from core.messages import NO_RIGHTS, Action, Disposition, Marker, Rights, SessionState, Source, Who
from core.notices import Notice


class Effect(StrEnum):
    """What a decision does besides keeping the message."""

    STOP = "stop"
    TOMBSTONE = "tombstone"
    STOP_HELPER = "stop_helper"
    CANCEL_TURN = "cancel_turn"
    DECIDE = "decide"
    WITHDRAW_REQUEST = "withdraw_request"
    REPLACE_TEXT = "replace_text"
    WITHDRAW = "withdraw"
    RETRY = "retry"
    REDIRECT_NOTE = "redirect_note"


@dataclass(frozen=True, slots=True)
class Case:
    """One message in one session, as the policy sees it.

    `bare_stop`: the text is a stop word and nothing else. `is_author`: an edit was made by who wrote the message.
    `consumed`: whether the message that an edit or deletion is about was used by a turn; None if it was never stored.
    `is_trigger`: that message started the turn that is not settled yet. `its_turn_running`: the turn that used it is
    not settled yet. `due`: a helper's report is the last one that its parent waits for.
    """

    source: Source
    marker: Marker
    who: Who
    state: SessionState
    rights: Rights = NO_RIGHTS
    mentioned: bool = False
    bare_stop: bool = False
    is_author: bool = True
    consumed: bool | None = None
    is_trigger: bool = False
    its_turn_running: bool = False
    approval_open: bool = False
    assent: bool = False
    text_changed: bool = True
    action: Action | None = None
    due: bool = True

    @property
    def to_us(self) -> bool:
        """Whether it speaks to us: it mentions us, or it is in a direct message."""
        return self.mentioned or self.source in (Source.MENTION, Source.DIRECT_MESSAGE)


@dataclass(frozen=True, slots=True)
class Condition:
    """A named question about a case."""

    name: str
    holds: Callable[[Case], bool]


@dataclass(frozen=True, slots=True)
class Cell:
    """What happens in one state; with `only_if`, else `otherwise`."""

    disposition: Disposition
    notice: Notice | None = None
    effect: Effect | None = None
    only_if: Condition | None = None
    otherwise: Cell | None = None

    def when(self, condition: Condition, otherwise: Cell) -> Cell:
        """The same cell, if `condition` holds."""
        return Cell(self.disposition, self.notice, self.effect, condition, otherwise)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the policy."""

    name: str
    sources: frozenset[Source] | None
    markers: frozenset[Marker] | None
    who: frozenset[Who] | None
    given: tuple[Condition, ...]
    idle: Cell
    running: Cell
    suspended: Cell
    waiting: Cell

    def cell(self, state: SessionState) -> Cell:
        """The cell of a session's state."""
        cells = {
            SessionState.IDLE: self.idle,
            SessionState.RUNNING: self.running,
            SessionState.SUSPENDED: self.suspended,
            SessionState.WAITING: self.waiting,
        }
        return cells[state]


# -- the words of the table ------------------------------------------------------------------------------------------

MENTION, REPLY, DIRECT = frozenset({Source.MENTION}), frozenset({Source.REPLY}), frozenset({Source.DIRECT_MESSAGE})
TO_US = MENTION | DIRECT
TEXT = TO_US | REPLY
EDIT, DELETE = frozenset({Source.EDIT}), frozenset({Source.DELETE})
BUTTON, REACTION = frozenset({Source.BUTTON}), frozenset({Source.REACTION})
NATIVE, OPERATOR = frozenset({Source.NATIVE_STOP}), frozenset({Source.OPERATOR})
APPROVAL = frozenset({Source.APPROVAL})
PERSONAL = TEXT | EDIT | BUTTON | REACTION | NATIVE | OPERATOR | APPROVAL
AUTOMATIC = frozenset({Source.ALERT, Source.SCHEDULE})
HELPERS = frozenset({Source.HELPER_REPORT, Source.HELPER_QUESTION, Source.HELPER_ANSWER})

STOP_WORDS = frozenset({Marker.STOP_STEP, Marker.CANCEL})
DECISIONS = frozenset({Marker.APPROVE, Marker.DENY})
CONTROL_WORDS = STOP_WORDS | DECISIONS
NONE, NOW, AFTER = frozenset({Marker.NONE}), frozenset({Marker.NOW}), frozenset({Marker.AFTER})
ADDRESSED, NOT_FOR_BOT = frozenset({Marker.ADDRESSED}), frozenset({Marker.NOT_FOR_BOT})

BOT = frozenset({Who.BOT})
PERSON = frozenset(Who) - BOT
STRANGER = frozenset({Who.GUEST, Who.EXTERNAL, Who.BOT})
PARTICIPANT, MEMBER = frozenset({Who.PARTICIPANT}), frozenset({Who.MEMBER})

MAY_ASK = Condition("may ask", lambda case: case.rights.ask)
MAY_STEER = Condition("may steer", lambda case: case.rights.steer)
MAY_STOP = Condition("may stop", lambda case: case.rights.stop)
MAY_APPROVE = Condition("may approve", lambda case: case.rights.approve)
MAY_NOT_ASK = Condition("may not ask", lambda case: not case.rights.ask)
MAY_NOT_STEER = Condition("may not steer", lambda case: not case.rights.steer)
MAY_NOT_STOP = Condition("may not stop", lambda case: not case.rights.stop)
MAY_NOT_APPROVE = Condition("may not approve", lambda case: not case.rights.approve)

SPEAKS_TO_US = Condition("speaks to us", lambda case: case.to_us)
BARE_ASIDE = Condition("a bare stop word, not to us", lambda case: case.bare_stop and not case.to_us)
ASSENTS = Condition("a bare yes while an approval waits", lambda case: case.assent and case.approval_open)
IS_RETRY = Condition("the Retry button", lambda case: case.action is Action.RETRY)
IS_REDIRECT = Condition("the Redirect now button", lambda case: case.action is Action.REDIRECT_NOW)
IS_STOP_HELPER = Condition("the button of one helper", lambda case: case.action is Action.STOP_HELPER)
NOT_ITS_AUTHOR = Condition("not its author", lambda case: not case.is_author)
TEXT_UNCHANGED = Condition("text unchanged", lambda case: not case.text_changed)
UNKNOWN = Condition("the message was never stored", lambda case: case.consumed is None)
NOT_CONSUMED = Condition("not consumed", lambda case: case.consumed is False)
CONSUMED = Condition("consumed", lambda case: case.consumed is True)
TRIGGER = Condition("the trigger of the running turn", lambda case: case.is_trigger)
ITS_TURN_RUNS = Condition("its turn runs", lambda case: case.its_turn_running)
DUE = Condition("due", lambda case: case.due)

IGNORE, NOTE, QUEUE = Cell(Disposition.IGNORE), Cell(Disposition.NOTE), Cell(Disposition.QUEUE)
KEPT = Cell(Disposition.NOTE, Notice.KEPT_AS_NOTE).when(MAY_STEER, otherwise=NOTE)
REFUSE_ASK = Cell(Disposition.REFUSE, Notice.REFUSED_ASK)
REFUSE_STEER = Cell(Disposition.REFUSE, Notice.REFUSED_STEER)
REFUSE_STOP = Cell(Disposition.REFUSE, Notice.REFUSED_STOP)
REFUSE_APPROVE = Cell(Disposition.REFUSE, Notice.REFUSED_APPROVE)
ENDED = Cell(Disposition.REFUSE, Notice.ALREADY_ENDED)
BUSY = Cell(Disposition.REFUSE, Notice.STILL_WORKING)
EXPIRED = Cell(Disposition.REFUSE, Notice.EXPIRED_CONTROL)
NO_DECISION = Cell(Disposition.REFUSE, Notice.NOTHING_TO_DECIDE)
HOW_TO = Cell(Disposition.REFUSE, Notice.HOW_TO_APPROVE)
SEND_AS_NEW = Cell(Disposition.REFUSE, Notice.SEND_AS_NEW)

STOP = Cell(Disposition.CONTROL, effect=Effect.STOP)
TOMBSTONE = Cell(Disposition.CONTROL, effect=Effect.TOMBSTONE)
TOMBSTONE_SAID = Cell(Disposition.CONTROL, Notice.NOTHING_RUNNING, Effect.TOMBSTONE).when(SPEAKS_TO_US, TOMBSTONE)
TOMBSTONE_ENDED = Cell(Disposition.CONTROL, Notice.ALREADY_ENDED, Effect.TOMBSTONE)
STOP_ONE = Cell(Disposition.CONTROL, effect=Effect.STOP_HELPER)
CANCEL = Cell(Disposition.CONTROL, effect=Effect.CANCEL_TURN)
DECIDE = Cell(Disposition.CONTROL, effect=Effect.DECIDE)
RETRY = Cell(Disposition.CONTROL, effect=Effect.RETRY)
REDIRECT = Cell(Disposition.CONTROL, effect=Effect.REDIRECT_NOTE)
REPLACE = Cell(Disposition.CONTROL, effect=Effect.REPLACE_TEXT)
WITHDRAW = Cell(Disposition.CONTROL, effect=Effect.WITHDRAW)
WITHDRAW_WAITING = WITHDRAW.when(NOT_CONSUMED, otherwise=IGNORE)

START = Cell(Disposition.START)
STEER = Cell(Disposition.STEER)
STEER_REQUEST = Cell(Disposition.STEER, effect=Effect.WITHDRAW_REQUEST)
ANY = None


def always(cell: Cell) -> tuple[Cell, Cell, Cell, Cell]:
    """The same in every state."""
    return cell, cell, cell, cell


CONTROL_ROWS: tuple[Row, ...] = (
    #    name, source, marker, who, given
    #        idle, running, suspended, waiting
    Row("bot_control_word", TEXT, CONTROL_WORDS, BOT, (), *always(IGNORE)),
    Row("bot_control", PERSONAL - TEXT, ANY, BOT, (), *always(IGNORE)),
    Row(
        "may_not_stop_aside", PERSONAL, STOP_WORDS, PERSON, (MAY_NOT_STOP, BARE_ASIDE),
        IGNORE, REFUSE_STOP, REFUSE_STOP, REFUSE_STOP,
    ),
    Row("may_not_stop", PERSONAL, STOP_WORDS, PERSON, (MAY_NOT_STOP,), *always(REFUSE_STOP)),
    Row("may_not_approve", PERSONAL, DECISIONS, PERSON, (MAY_NOT_APPROVE,), *always(REFUSE_APPROVE)),
    Row("may_not_steer", REPLY | EDIT | BUTTON, NOW, PERSON, (MAY_NOT_STEER,), *always(REFUSE_STEER)),
    Row("may_not_retry", BUTTON, ANY, PERSON, (IS_RETRY, MAY_NOT_ASK), *always(REFUSE_ASK)),
    Row(
        "may_not_ask", TEXT | EDIT, NONE | NOW | AFTER | ADDRESSED, PERSON, (SPEAKS_TO_US, MAY_NOT_ASK),
        *always(REFUSE_ASK),
    ),
    Row("native_may_not", NATIVE, ANY, ANY, (MAY_NOT_STOP,), *always(REFUSE_STOP)),
    Row(
        "stop_word", TEXT | EDIT | OPERATOR | APPROVAL, STOP_WORDS, ANY, (MAY_STOP,),
        TOMBSTONE_SAID, STOP, STOP, STOP,
    ),
    Row("native_stop", NATIVE, ANY, ANY, (MAY_STOP,), TOMBSTONE_ENDED, STOP, STOP, STOP),
    Row("stop_helper", BUTTON, STOP_WORDS, ANY, (IS_STOP_HELPER,), ENDED, STOP_ONE, STOP_ONE, STOP_ONE),
    Row("stop_button", BUTTON, STOP_WORDS, ANY, (MAY_STOP,), ENDED, STOP, STOP, STOP),
    Row("stop_reaction", REACTION, STOP_WORDS, ANY, (MAY_STOP,), TOMBSTONE_ENDED, STOP, STOP, STOP),
    Row("decision_button", BUTTON, DECISIONS, ANY, (MAY_APPROVE,), ENDED, DECIDE, DECIDE, DECIDE),
    Row("retry_button", BUTTON, ANY, ANY, (IS_RETRY,), RETRY, BUSY, BUSY, BUSY),
    Row("redirect_button", BUTTON, ANY, ANY, (IS_REDIRECT, MAY_STEER), ENDED, REDIRECT, REDIRECT, REDIRECT),
    Row("other_button", BUTTON, ANY, ANY, (), *always(EXPIRED)),
    Row("decision_by_edit", EDIT, DECISIONS, ANY, (), *always(SEND_AS_NEW)),
    Row(
        "decision", TEXT | APPROVAL | OPERATOR, DECISIONS, ANY, (MAY_APPROVE,),
        NO_DECISION, NO_DECISION, DECIDE, NO_DECISION,
    ),
    Row("assent", TEXT | REACTION, ANY, PARTICIPANT | MEMBER, (ASSENTS,), *always(HOW_TO)),
    Row("assent_to_us", TO_US, ANY, PERSON, (ASSENTS,), *always(HOW_TO)),
    Row("edit_by_another", EDIT, ANY, ANY, (NOT_ITS_AUTHOR,), *always(IGNORE)),
    Row("edit_without_change", EDIT, ANY, ANY, (TEXT_UNCHANGED,), *always(IGNORE)),
    Row("edit_withdraws", EDIT, NOT_FOR_BOT, ANY, (NOT_CONSUMED,), *always(WITHDRAW)),
    Row("edit_of_waiting", EDIT, ANY, ANY, (NOT_CONSUMED,), *always(REPLACE)),
    Row(
        "edit_of_consumed", EDIT, ANY, ANY, (CONSUMED, MAY_STEER),
        SEND_AS_NEW, STEER.when(ITS_TURN_RUNS, otherwise=SEND_AS_NEW), STEER_REQUEST, SEND_AS_NEW,
    ),
    Row("edit_too_late", EDIT, ANY, ANY, (CONSUMED,), *always(SEND_AS_NEW)),
    Row("edit_into_question", EDIT, ANY, ANY, (UNKNOWN, SPEAKS_TO_US), *always(SEND_AS_NEW)),
    Row("delete_of_trigger", DELETE, ANY, ANY, (TRIGGER,), WITHDRAW_WAITING, CANCEL, CANCEL, CANCEL),
    Row("delete", DELETE, ANY, ANY, (), *always(WITHDRAW_WAITING)),
    Row("other_control", EDIT | REACTION | NATIVE | APPROVAL, ANY, ANY, (), *always(IGNORE)),
)  # fmt: skip

CONVERSATION_ROWS: tuple[Row, ...] = (
    #    name, source, marker, who, given
    #        idle, running, suspended, waiting
    Row("bot_message", TEXT, ANY, BOT, (), *always(IGNORE)),
    Row("stranger_reply", REPLY, NONE | AFTER | ADDRESSED | NOT_FOR_BOT, STRANGER, (), *always(IGNORE)),
    Row("not_for_bot", TEXT, NOT_FOR_BOT, ANY, (), *always(IGNORE)),
    Row(
        "asked", TO_US, NONE | NOW | ADDRESSED, ANY, (MAY_ASK,),
        START, STEER.when(MAY_STEER, otherwise=QUEUE), STEER_REQUEST.when(MAY_STEER, otherwise=QUEUE), START,
    ),
    Row(
        "reply_now", REPLY, NOW, ANY, (MAY_STEER,),
        START.when(MAY_ASK, otherwise=REFUSE_ASK), STEER, STEER_REQUEST, START.when(MAY_ASK, otherwise=REFUSE_ASK),
    ),
    Row(
        "reply_of_participant", REPLY, NONE, PARTICIPANT, (),
        START.when(MAY_ASK, otherwise=NOTE), STEER.when(MAY_STEER, otherwise=NOTE),
        STEER_REQUEST.when(MAY_STEER, otherwise=NOTE), START.when(MAY_ASK, otherwise=NOTE),
    ),
    Row("reply_of_member", REPLY, NONE, MEMBER, (), NOTE, KEPT, NOTE, NOTE),
    Row("after", TEXT, AFTER, ANY, (MAY_ASK,), START, QUEUE, QUEUE, QUEUE),
    Row("addressed", REPLY, ADDRESSED, ANY, (), *always(NOTE)),
    Row("automatic", AUTOMATIC, ANY, ANY, (), START, QUEUE, QUEUE, QUEUE),
    Row("helper", HELPERS, ANY, ANY, (), START, QUEUE, QUEUE, START.when(DUE, otherwise=QUEUE)),
    Row("anything_else", ANY, ANY, ANY, (), *always(NOTE)),
)  # fmt: skip
