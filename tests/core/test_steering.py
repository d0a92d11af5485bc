"""The steering policy: each line of the design as a line here, and what must hold for every case there is."""

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.errors import BadInput
from core.messages import NO_RIGHTS, Action, Disposition, Marker, Rights, SessionState, Source, Who
from core.notices import SENTENCES, Notice
from core.steering import (
    DEFAULT_RIGHTS,
    Case,
    Decision,
    Effect,
    Override,
    case_of,
    dispose,
    explain,
    rows,
    say,
)
from core.steering_table import CONTROL_ROWS, CONVERSATION_ROWS, PERSONAL, STOP_WORDS

steady = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
IDLE, RUNNING, SUSPENDED, WAITING = SessionState
MENTION, REPLY, DM, EDIT, DELETE = (
    Source.MENTION,
    Source.REPLY,
    Source.DIRECT_MESSAGE,
    Source.EDIT,
    Source.DELETE,
)
STOP, CANCEL, APPROVE, DENY = Marker.STOP_STEP, Marker.CANCEL, Marker.APPROVE, Marker.DENY
NOW, AFTER, NONE, ADDRESSED, NOT_FOR_BOT = (
    Marker.NOW,
    Marker.AFTER,
    Marker.NONE,
    Marker.ADDRESSED,
    Marker.NOT_FOR_BOT,
)
MEMBER, PARTICIPANT, GUEST, EXTERNAL, BOT = Who.MEMBER, Who.PARTICIPANT, Who.GUEST, Who.EXTERNAL, Who.BOT
ALL = Rights(ask=True, steer=True, stop=True, approve=True)
APPROVER = Rights(approve=True)

POLICY = [
    # source, marker, who: idle, running, suspended, waiting
    (REPLY, STOP, MEMBER, "control control control control"),
    (MENTION, CANCEL, PARTICIPANT, "control control control control"),
    (DM, STOP, MEMBER, "control control control control"),
    (EDIT, STOP, MEMBER, "control control control control"),
    (REPLY, STOP, GUEST, "ignore refuse refuse refuse"),
    (REPLY, CANCEL, EXTERNAL, "ignore refuse refuse refuse"),
    (MENTION, STOP, GUEST, "refuse refuse refuse refuse"),
    (REPLY, APPROVE, MEMBER, "refuse refuse refuse refuse"),
    (REPLY, NOW, GUEST, "refuse refuse refuse refuse"),
    (MENTION, NONE, GUEST, "refuse refuse refuse refuse"),
    (MENTION, NONE, EXTERNAL, "refuse refuse refuse refuse"),
    (DM, NONE, GUEST, "refuse refuse refuse refuse"),
    (REPLY, NONE, GUEST, "ignore ignore ignore ignore"),
    (REPLY, NONE, EXTERNAL, "ignore ignore ignore ignore"),
    (REPLY, NONE, BOT, "ignore ignore ignore ignore"),
    (REPLY, AFTER, GUEST, "ignore ignore ignore ignore"),
    (REPLY, STOP, BOT, "ignore ignore ignore ignore"),
    (MENTION, NONE, BOT, "ignore ignore ignore ignore"),
    (Source.BUTTON, NONE, MEMBER, "refuse control control control"),
    (Source.REACTION, NONE, MEMBER, "control control control control"),
    (Source.NATIVE_STOP, NONE, MEMBER, "control control control control"),
    (Source.BUTTON, NONE, GUEST, "refuse refuse refuse refuse"),
    (Source.NATIVE_STOP, NONE, EXTERNAL, "refuse refuse refuse refuse"),
    (MENTION, NONE, MEMBER, "start steer steer start"),
    (MENTION, NOW, PARTICIPANT, "start steer steer start"),
    (DM, NONE, MEMBER, "start steer steer start"),
    (REPLY, NOW, MEMBER, "start steer steer start"),
    (REPLY, NONE, PARTICIPANT, "start steer steer start"),
    (REPLY, NONE, MEMBER, "note note note note"),
    (MENTION, AFTER, MEMBER, "start queue queue queue"),
    (REPLY, AFTER, MEMBER, "start queue queue queue"),
    (DM, AFTER, PARTICIPANT, "start queue queue queue"),
    (REPLY, ADDRESSED, MEMBER, "note note note note"),
    (REPLY, ADDRESSED, PARTICIPANT, "note note note note"),
    (REPLY, NOT_FOR_BOT, PARTICIPANT, "ignore ignore ignore ignore"),
    (Source.ALERT, NONE, BOT, "start queue queue queue"),
    (Source.SCHEDULE, NONE, BOT, "start queue queue queue"),
    (Source.HELPER_REPORT, NONE, BOT, "start queue queue start"),
    (Source.HELPER_QUESTION, NONE, BOT, "start queue queue start"),
    (Source.HELPER_ANSWER, NONE, BOT, "start queue queue start"),
    (Source.SYSTEM, NONE, MEMBER, "note note note note"),
]


@pytest.mark.parametrize(("source", "marker", "who", "expected"), POLICY)
def test_the_policy_of_the_design_line_by_line(source: Source, marker: Marker, who: Who, expected: str) -> None:
    found = [dispose(case_of(source, marker, who, state)).disposition for state in SessionState]
    assert found == [Disposition(word) for word in expected.split()]


def decide(source: Source, marker: Marker, who: Who, state: SessionState, **facts: object) -> Decision:
    return dispose(replace(case_of(source, marker, who, state), **facts))  # type: ignore[arg-type]


# -- stops -----------------------------------------------------------------------------------------------------------


def test_a_stop_while_idle_is_kept_as_a_tombstone_and_answered_only_if_we_were_mentioned() -> None:
    assert decide(REPLY, STOP, MEMBER, IDLE) == Decision(Disposition.CONTROL, "stop_word", None, Effect.TOMBSTONE)
    mentioned = decide(MENTION, STOP, MEMBER, IDLE)
    assert (mentioned.notice, mentioned.effect) == (Notice.NOTHING_RUNNING, Effect.TOMBSTONE)
    assert decide(REPLY, STOP, MEMBER, RUNNING).effect is Effect.STOP


def test_an_outsider_who_says_stop_is_told_why_not_while_something_runs_and_left_alone_otherwise() -> None:
    assert decide(REPLY, STOP, EXTERNAL, RUNNING).notice is Notice.REFUSED_STOP
    assert decide(REPLY, STOP, GUEST, IDLE).disposition is Disposition.IGNORE
    assert decide(REPLY, STOP, GUEST, IDLE, bare_stop=False).notice is Notice.REFUSED_STOP


def test_a_button_of_an_ended_turn_says_so_and_leaves_no_tombstone() -> None:
    assert decide(Source.BUTTON, STOP, MEMBER, IDLE) == Decision(
        Disposition.REFUSE, "stop_button", Notice.ALREADY_ENDED
    )


def test_a_native_stop_that_comes_before_its_question_stays_true() -> None:
    assert decide(Source.NATIVE_STOP, CANCEL, MEMBER, IDLE).effect is Effect.TOMBSTONE
    assert decide(Source.REACTION, STOP, MEMBER, IDLE).effect is Effect.TOMBSTONE


# -- buttons and decisions -------------------------------------------------------------------------------------------


def test_a_decision_counts_only_while_the_turn_is_suspended_and_only_from_who_may() -> None:
    assert decide(REPLY, APPROVE, MEMBER, SUSPENDED, rights=APPROVER).effect is Effect.DECIDE
    assert decide(MENTION, DENY, MEMBER, SUSPENDED, rights=ALL).effect is Effect.DECIDE
    assert decide(REPLY, DENY, MEMBER, RUNNING, rights=APPROVER).notice is Notice.NOTHING_TO_DECIDE
    assert decide(REPLY, APPROVE, MEMBER, SUSPENDED).notice is Notice.REFUSED_APPROVE
    assert decide(Source.BUTTON, APPROVE, MEMBER, SUSPENDED).notice is Notice.REFUSED_APPROVE


def test_nobody_approves_by_editing_a_message() -> None:
    assert decide(EDIT, APPROVE, MEMBER, SUSPENDED, rights=ALL) == Decision(
        Disposition.REFUSE, "decision_by_edit", Notice.SEND_AS_NEW
    )


def test_a_bare_yes_while_an_approval_waits_is_told_how_to_approve_and_steers_nothing() -> None:
    for source, who in [(REPLY, PARTICIPANT), (REPLY, MEMBER), (MENTION, MEMBER), (Source.REACTION, MEMBER)]:
        case = Case(source, NONE, who, SUSPENDED, ALL, assent=True, approval_open=True)
        assert dispose(case).notice is Notice.HOW_TO_APPROVE, source
    assert dispose(Case(REPLY, NONE, GUEST, SUSPENDED, assent=True, approval_open=True)).notice is None
    assert dispose(Case(REPLY, NONE, PARTICIPANT, RUNNING, ALL, assent=True)).disposition is Disposition.STEER


def test_the_buttons_do_what_they_say_and_never_start_a_turn_by_themselves() -> None:
    def press(action: Action, state: SessionState, rights: Rights = ALL, marker: Marker = NONE) -> Decision:
        return dispose(Case(Source.BUTTON, marker, MEMBER, state, rights, action=action))

    assert press(Action.RETRY, IDLE).effect is Effect.RETRY
    assert press(Action.RETRY, RUNNING).notice is Notice.STILL_WORKING
    assert press(Action.RETRY, IDLE, NO_RIGHTS).notice is Notice.REFUSED_ASK
    assert press(Action.REDIRECT_NOW, RUNNING, marker=NOW).effect is Effect.REDIRECT_NOTE
    assert press(Action.REDIRECT_NOW, IDLE, marker=NOW).notice is Notice.ALREADY_ENDED
    assert press(Action.REDIRECT_NOW, RUNNING, NO_RIGHTS, NOW).notice is Notice.REFUSED_STEER
    assert press(Action.STOP_HELPER, WAITING, marker=STOP).effect is Effect.STOP_HELPER
    assert press(Action.STOP_HELPER, WAITING, NO_RIGHTS, STOP).notice is Notice.REFUSED_STOP
    assert dispose(Case(Source.BUTTON, NONE, MEMBER, RUNNING, ALL)).notice is Notice.EXPIRED_CONTROL


# -- words -----------------------------------------------------------------------------------------------------------


def test_who_may_ask_but_not_steer_is_queued_behind_the_running_turn() -> None:
    ask = Rights(ask=True)
    assert decide(MENTION, NONE, MEMBER, RUNNING, rights=ask).disposition is Disposition.QUEUE
    assert decide(MENTION, NONE, MEMBER, SUSPENDED, rights=ask).disposition is Disposition.QUEUE
    assert decide(REPLY, NONE, PARTICIPANT, RUNNING, rights=ask).disposition is Disposition.NOTE


def test_who_may_steer_but_not_ask_starts_nothing() -> None:
    steer = Rights(steer=True)
    assert decide(REPLY, NOW, MEMBER, RUNNING, rights=steer).disposition is Disposition.STEER
    assert decide(REPLY, NOW, MEMBER, IDLE, rights=steer).notice is Notice.REFUSED_ASK


def test_a_steer_that_meets_an_approval_withdraws_the_request() -> None:
    for source, marker, who in [(MENTION, NONE, MEMBER), (REPLY, NOW, MEMBER), (REPLY, NONE, PARTICIPANT)]:
        assert decide(source, marker, who, SUSPENDED).effect is Effect.WITHDRAW_REQUEST


def test_the_chatter_of_a_member_is_kept_and_offered_a_button_only_while_a_turn_runs() -> None:
    assert decide(REPLY, NONE, MEMBER, RUNNING).notice is Notice.KEPT_AS_NOTE
    assert decide(REPLY, NONE, MEMBER, IDLE).notice is None
    assert decide(REPLY, NONE, MEMBER, RUNNING, rights=NO_RIGHTS).notice is None


def test_a_helper_report_that_is_not_the_last_waits() -> None:
    assert decide(Source.HELPER_REPORT, NONE, BOT, WAITING, due=False).disposition is Disposition.QUEUE


# -- edits and deletions ---------------------------------------------------------------------------------------------


def test_an_edit_replaces_what_nobody_has_read_yet() -> None:
    for state in SessionState:
        assert decide(EDIT, NONE, MEMBER, state, consumed=False).effect is Effect.REPLACE_TEXT


def test_an_edit_of_words_in_use_steers_their_running_turn_and_is_too_late_otherwise() -> None:
    used = {"consumed": True, "its_turn_running": True}
    assert decide(EDIT, NONE, MEMBER, RUNNING, **used).disposition is Disposition.STEER
    assert decide(EDIT, NONE, MEMBER, SUSPENDED, consumed=True).disposition is Disposition.STEER
    assert decide(EDIT, NONE, MEMBER, RUNNING, consumed=True).notice is Notice.SEND_AS_NEW
    assert decide(EDIT, NONE, MEMBER, IDLE, **used).notice is Notice.SEND_AS_NEW
    assert decide(EDIT, NONE, MEMBER, WAITING, **used).notice is Notice.SEND_AS_NEW
    assert decide(EDIT, NONE, MEMBER, RUNNING, rights=NO_RIGHTS, **used).notice is Notice.SEND_AS_NEW


def test_an_edit_that_changes_nothing_or_is_not_the_authors_is_ignored() -> None:
    used = {"consumed": True, "its_turn_running": True}
    assert decide(EDIT, NONE, MEMBER, RUNNING, text_changed=False, **used).disposition is Disposition.IGNORE
    assert decide(EDIT, NONE, MEMBER, RUNNING, is_author=False, **used).disposition is Disposition.IGNORE


def test_an_edit_that_adds_our_mention_starts_nothing() -> None:
    found = decide(EDIT, NONE, MEMBER, IDLE, consumed=None, mentioned=True)
    assert (found.disposition, found.notice) == (Disposition.REFUSE, Notice.SEND_AS_NEW)


def test_a_waiting_message_that_is_marked_as_not_for_us_afterwards_is_withdrawn() -> None:
    assert decide(EDIT, NOT_FOR_BOT, MEMBER, RUNNING, consumed=False).effect is Effect.WITHDRAW


def test_deleting_the_request_cancels_it_and_deleting_an_unread_reply_withdraws_it() -> None:
    assert decide(DELETE, NONE, MEMBER, RUNNING, consumed=True, is_trigger=True).effect is Effect.CANCEL_TURN
    assert decide(DELETE, NONE, MEMBER, RUNNING, consumed=False).effect is Effect.WITHDRAW
    assert decide(DELETE, NONE, MEMBER, IDLE, consumed=False).effect is Effect.WITHDRAW
    assert decide(DELETE, NONE, MEMBER, RUNNING, consumed=True).disposition is Disposition.IGNORE


# -- what channels may change ----------------------------------------------------------------------------------------


def test_a_channel_can_make_mentions_queue_instead_of_steer() -> None:
    override = Override(Disposition.QUEUE, source=MENTION, state=RUNNING)
    assert dispose(case_of(MENTION, NONE, MEMBER, RUNNING), [override]) == Decision(Disposition.QUEUE, "channel:1")
    assert dispose(case_of(MENTION, NONE, MEMBER, IDLE), [override]).row == "asked"


def test_a_channel_row_is_named_by_its_place_and_explained() -> None:
    overrides = [Override(Disposition.IGNORE, source=DM), Override(Disposition.STEER, source=REPLY, marker=NONE)]
    found = explain(case_of(REPLY, NONE, MEMBER, RUNNING), overrides)
    assert found.decision == Decision(Disposition.STEER, "channel:2")
    assert ("channel:1", "source is reply, the row is about direct_message") in found.passed


def test_no_override_grants_a_right() -> None:
    for to in (Disposition.START, Disposition.STEER, Disposition.QUEUE):
        found = dispose(case_of(REPLY, NONE, GUEST, RUNNING), [Override(to)])
        assert found == Decision(Disposition.IGNORE, "stranger_reply")
    assert dispose(case_of(MENTION, NONE, GUEST, IDLE), [Override(Disposition.START)]).row == "may_not_ask"


def test_no_override_touches_control() -> None:
    everything = [Override(Disposition.NOTE)]
    assert dispose(case_of(REPLY, STOP, MEMBER, RUNNING), everything).row == "stop_word"
    assert dispose(case_of(Source.HELPER_REPORT, NONE, BOT, RUNNING), everything).row == "helper"
    with pytest.raises(BadInput, match="can't redefine stop words"):
        Override(Disposition.NOTE, marker=STOP)
    with pytest.raises(BadInput, match="can't redefine stop words"):
        Override(Disposition.CONTROL)
    with pytest.raises(BadInput, match="source button"):
        Override(Disposition.STEER, source=Source.BUTTON)


def test_an_override_can_only_do_what_the_state_allows() -> None:
    case = case_of(REPLY, NONE, MEMBER, RUNNING)
    assert dispose(case, [Override(Disposition.START)]).disposition is Disposition.QUEUE
    assert dispose(replace(case, state=IDLE), [Override(Disposition.STEER)]).disposition is Disposition.START
    assert dispose(replace(case, state=SUSPENDED), [Override(Disposition.STEER)]).effect is Effect.WITHDRAW_REQUEST


# -- what must hold for every case -----------------------------------------------------------------------------------

OVERRIDES = [
    [],
    [Override(Disposition.START)],
    [Override(Disposition.STEER, who=GUEST), Override(Disposition.NOTE, source=REPLY)],
    [Override(Disposition.QUEUE, marker=NONE), Override(Disposition.REFUSE)],
]
NAMES = {row.name for row in (*CONTROL_ROWS, *CONVERSATION_ROWS)}
cases = st.builds(
    Case,
    st.sampled_from(Source),
    st.sampled_from(Marker),
    st.sampled_from(Who),
    st.sampled_from(SessionState),
    st.builds(Rights, st.booleans(), st.booleans(), st.booleans(), st.booleans()),
    mentioned=st.booleans(),
    bare_stop=st.booleans(),
    is_author=st.booleans(),
    consumed=st.sampled_from([None, False, True]),
    is_trigger=st.booleans(),
    its_turn_running=st.booleans(),
    approval_open=st.booleans(),
    assent=st.booleans(),
    text_changed=st.booleans(),
    action=st.sampled_from([None, *Action]),
    due=st.booleans(),
)


def check(case: Case, overrides: list[Override]) -> None:
    found = dispose(case, overrides)
    to, effect, rights = found.disposition, found.effect, case.rights
    assert found.row in NAMES or found.row.startswith("channel:")
    assert (to is Disposition.REFUSE) <= (found.notice is not None), "a refusal is visible"
    if case.source not in PERSONAL:
        return
    if case.marker in STOP_WORDS or case.marker in (APPROVE, DENY):
        assert to in (Disposition.CONTROL, Disposition.REFUSE, Disposition.IGNORE), "control is not conversation"
    for granted, right in [
        (to in (Disposition.START, Disposition.QUEUE) or effect is Effect.RETRY, rights.ask),
        (to is Disposition.STEER or effect is Effect.REDIRECT_NOTE, rights.steer),
        (effect in (Effect.STOP, Effect.TOMBSTONE, Effect.STOP_HELPER), rights.stop),
        (effect is Effect.DECIDE, rights.approve),
    ]:
        assert right or not granted, f"{found} without the right"
    if case.who is BOT and case.source in (MENTION, REPLY, DM, EDIT) and not found.row.startswith("channel:"):
        assert to is Disposition.IGNORE, "a bot's words do nothing"


def test_every_combination_gets_one_decision_by_a_named_row_within_the_rights() -> None:
    some = [NO_RIGHTS, Rights(ask=True), Rights(steer=True), Rights(stop=True), Rights(approve=True), ALL]
    for source, marker, who, state, rights in product(Source, Marker, Who, SessionState, some):
        check(Case(source, marker, who, state, rights), [])


@steady
@given(cases, st.sampled_from(OVERRIDES))
def test_no_circumstance_breaks_the_laws_of_the_policy(case: Case, overrides: list[Override]) -> None:
    check(case, overrides)


@steady
@given(cases, st.sampled_from(OVERRIDES))
def test_an_explanation_decides_as_the_policy_does(case: Case, overrides: list[Override]) -> None:
    found = explain(case, overrides)
    assert found.decision == dispose(case, overrides)
    order = [row["row"] for row in rows(overrides)]
    assert [name for name, _ in found.passed] == order[: order.index(found.decision.row)]
    assert all(why for _, why in found.passed)


# -- what people read ------------------------------------------------------------------------------------------------


def test_the_printed_policy_has_every_row_once_and_the_channels_rows_between_control_and_conversation() -> None:
    printed = rows([Override(Disposition.QUEUE, source=MENTION)])
    names = [row["row"] for row in printed]
    assert len(names) == len(set(names)) == len(NAMES) + 1
    assert names[len(CONTROL_ROWS)] == "channel:1"
    asked = next(row for row in printed if row["row"] == "asked")
    assert asked["source"] == "mention, direct_message"
    assert asked["running"] == "steer if may steer, else queue"
    assert asked["suspended"] == "steer (withdraw_request) if may steer, else queue"


def test_every_notice_has_a_sentence_that_needs_nothing_else() -> None:
    assert set(SENTENCES) == set(Notice)
    for notice in Notice:
        text = say(notice)
        assert text.endswith(".")
        assert "{" not in text


def test_a_refusal_says_what_happened_who_may_and_what_to_do() -> None:
    assert say(Notice.REFUSED_STOP, who_may="people on call for this channel") == (
        "I did not stop: only people on call for this channel can stop me here, and nothing has changed. "
        "Ask one of them to press Stop or to write `stop` in this thread."
    )
    assert say(Notice.HOW_TO_APPROVE, who_may="the people on call", approval="ap-7") == (
        "That did not approve anything, and nothing has run. The people on call can press Approve or Deny on the "
        "request, or write `approve ap-7` or `deny ap-7 why`."
    )


def test_default_rights_let_members_do_all_but_approve_and_everybody_else_nothing() -> None:
    assert DEFAULT_RIGHTS[MEMBER] == DEFAULT_RIGHTS[PARTICIPANT] == Rights(ask=True, steer=True, stop=True)
    assert DEFAULT_RIGHTS[GUEST] == DEFAULT_RIGHTS[EXTERNAL] == DEFAULT_RIGHTS[BOT] == NO_RIGHTS
