"""What Slack delivers, and what becomes of it before anything is stored."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bot.slack.identity import Me, Person, who_is, with_person
from bot.slack.normalise import Ignored, Listening, OwnPostGone, normalise_event
from bot.slack.normalise_interaction import Expired, normalise_action, normalise_command
from core.messages import Action, Arrival, Level, Marker, Place, Rights, SlackTs, Source, UserId, Who

steady = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
ME = Me("U0BOT0001", "B0SELF001", "A0APP0001", "T0HOME001")
US = "<@U0BOT0001>"
ROOT = "1790000000.000100"
CARD = "1790000005.000200"
MAY = Rights(ask=True, steer=True, stop=True)


def envelope(event: Any, **outer: Any) -> dict[str, Any]:
    return {
        "type": "event_callback",
        "team_id": "T0HOME001",
        "event_id": "Ev0001",
        "authorizations": [{"enterprise_id": None, "team_id": "T0HOME001", "user_id": "U0BOT0001"}],
        "is_ext_shared_channel": False,
        "event": event,
        **outer,
    }


def message(text: str, ts: str = "1790000010.000300", **fields: Any) -> dict[str, Any]:
    return {
        "type": "message",
        "channel": "C0INC0001",
        "channel_type": "channel",
        "user": "U0ANN0001",
        "text": text,
        "ts": ts,
        "event_ts": ts,
        **fields,
    }


def reply(text: str, **fields: Any) -> dict[str, Any]:
    return message(text, thread_ts=ROOT, **fields)


def arrive(event: Any, listening: Listening | None = None, **outer: Any) -> Arrival:
    found = normalise_event(envelope(event, **outer), ME, listening)
    assert isinstance(found, Arrival), found
    return found


def ignored(event: Any, **outer: Any) -> str:
    found = normalise_event(envelope(event, **outer), ME)
    assert isinstance(found, Ignored), found
    return found.reason


# -- messages --------------------------------------------------------------------------------------------------------


def test_message_and_app_mention_of_one_text_are_the_same_arrival() -> None:
    plain = arrive(reply(f"{US} also check redis", client_msg_id="cm-1"))
    mention = arrive({**reply(f"{US} also check redis"), "type": "app_mention", "channel_type": None}, event_id="Ev2")
    assert plain == mention
    assert plain.dedupe_key == "msg:T0HOME001:C0INC0001:1790000010.000300"
    assert (plain.source, plain.marker, plain.mentioned) == (Source.MENTION, Marker.NONE, True)
    assert plain.text == "also check redis"


def test_a_mention_opens_a_thread_at_its_own_ts_and_one_in_a_thread_belongs_to_its_root() -> None:
    fresh = arrive(message(f"{US} is the api down?"))
    assert (fresh.thread_ts, fresh.only_in_session) == (fresh.ts, False)
    under_an_alert = arrive(reply(f"{US} what is this?"))
    assert under_an_alert.thread_ts == ROOT


def test_a_reply_counts_only_in_a_session() -> None:
    found = arrive(reply("look at the db instead"))
    assert (found.source, found.only_in_session, found.thread_ts) == (Source.REPLY, True, ROOT)


def test_what_neither_mentions_us_nor_is_in_a_thread_is_not_ours() -> None:
    assert ignored(message("lunch?")) == "neither mentions us nor is in a thread"


def test_a_direct_message_needs_no_mention_and_opens_a_thread_at_its_own_ts() -> None:
    found = arrive(message("db is slow", channel="D0ANN0001", channel_type="im"))
    assert (found.source, found.thread_ts, found.mentioned) == (Source.DIRECT_MESSAGE, found.ts, False)
    assert arrive(message("and now?", channel="D0ANN0001", thread_ts=ROOT)).thread_ts == ROOT


def test_a_group_message_is_a_channel_and_not_a_direct_message() -> None:
    assert ignored(message("hi all", channel="G0MPIM001", channel_type="mpim"))


@pytest.mark.parametrize("subtype", ["thread_broadcast", "file_share", "me_message"])
def test_subtypes_that_people_write_are_ordinary_replies(subtype: str) -> None:
    assert arrive(reply("look at eu-west", subtype=subtype)).text == "look at eu-west"


def test_a_reply_with_only_a_file_has_a_text() -> None:
    file = {"id": "F0LOG0001", "name": "pod.log", "mimetype": "text/plain", "size": 900, "url_private_download": "u"}
    found = arrive(reply("", subtype="file_share", files=[file]))
    assert found.text == "[attachment: pod.log, text/plain, 900 bytes]"
    assert [(ref.id, ref.size, ref.url) for ref in found.files] == [("F0LOG0001", 900, "u")]


def test_a_mention_without_words_still_has_a_text_and_an_empty_reply_is_nothing() -> None:
    assert arrive(reply(US)).text == "(mentioned without any words)"
    assert ignored(reply("")) == "nothing in it"


def test_a_mention_that_only_the_blocks_show_is_a_mention() -> None:
    block = {
        "type": "rich_text",
        "elements": [
            {
                "type": "rich_text_section",
                "elements": [{"type": "user", "user_id": "U0BOT0001"}, {"type": "text", "text": " status?"}],
            }
        ],
    }
    found = arrive(message("", blocks=[block]))
    assert (found.source, found.mentioned) == (Source.MENTION, True)
    assert "status?" in found.text


@pytest.mark.parametrize(
    "event",
    [
        message("archived the channel", user="USLACK", channel="D0ANN0001", channel_type="im"),
        message("This message was deleted.", user="USLACKBOT", thread_ts=ROOT),
        message("joined", subtype="channel_join", thread_ts=ROOT),
        message("", subtype="message_replied"),
        {"type": "member_joined_channel", "user": "U0BOT0001", "channel": "C0INC0001"},
        {"type": "message", "channel": "C0INC0001", "ts": ROOT, "thread_ts": ROOT},
        {"type": "message"},
        {},
        None,
        [],
    ],
)
def test_system_notices_and_incomplete_events_are_ignored_without_an_error(event: Any) -> None:
    assert ignored(event)


@pytest.mark.parametrize(
    "own",
    [
        {"user": "U0BOT0001"},
        {"user": None, "subtype": "bot_message", "bot_id": "B0SELF001"},
        {"user": None, "subtype": "bot_message", "bot_id": "B0SELF001", "app_id": "A0APP0001"},
    ],
)
def test_our_own_posts_are_recognised_by_user_bot_and_app(own: dict[str, Any]) -> None:
    assert ignored(reply(f"{US} final report", **own)) == "our own post"


def test_without_a_bot_id_of_our_own_the_app_id_tells() -> None:
    event = reply("report", user=None, subtype="bot_message", bot_id="B0SELF001", bot_profile={"app_id": "A0APP0001"})
    found = normalise_event(envelope(event), Me("U0BOT0001", app_id="A0APP0001", team_id="T0HOME001"))
    assert found == Ignored("our own post")


def test_other_bots_are_bots_and_alerts_only_if_the_configuration_names_them() -> None:
    alert = message(
        "",
        user=None,
        subtype="bot_message",
        bot_id="B0MON0001",
        attachments=[{"title": "HighLatency", "text": "p99"}],
    )
    assert ignored(alert) == "neither mentions us nor is in a thread"
    named = Listening(alert_bots=frozenset({"B0MON0001"}))
    found = arrive(alert, named)
    assert (found.source, found.who, found.author) == (Source.ALERT, Who.BOT, "B0MON0001")
    assert found.text == "HighLatency\np99"
    thanks = reply(f"Thanks {US}, all good!", user="U0OTHBOT1", bot_id="B0MON0001")
    assert arrive(thanks, named).source is Source.MENTION
    assert arrive(thanks, named).who is Who.BOT


def test_the_words_of_an_alert_are_never_a_stop() -> None:
    alert = message("stop: disk is full", user=None, subtype="bot_message", bot_id="B0MON0001")
    found = arrive(alert, Listening(alert_bots=frozenset({"B0MON0001"})))
    assert (found.marker, found.text) == (Marker.NONE, "stop: disk is full")


# -- markers and stops -----------------------------------------------------------------------------------------------


def test_a_stop_carries_its_level_and_no_words_of_the_stop() -> None:
    found = arrive(reply("刹车，先停一下，我还没确认范围"))
    assert (found.marker, found.level, found.bare) == (Marker.STOP_STEP, Level.STEP, False)
    assert found.text == found.rest == "我还没确认范围"
    bare = arrive(reply(f"{US} CANCEL!!"))
    assert (bare.marker, bare.level, bare.bare, bare.text) == (Marker.CANCEL, Level.TASK, True, "")


def test_a_stop_in_a_quote_is_a_reply() -> None:
    assert arrive(reply("&gt; stop\nno, please go on")).marker is Marker.NONE


def test_a_stop_outside_a_thread_names_no_session() -> None:
    assert arrive(message("stop")).place is Place.OUTSIDE
    assert arrive(message(f"{US} stop")).place is Place.OUTSIDE
    assert arrive(message("stop", channel="D0ANN0001", channel_type="im")).place is Place.OUTSIDE
    assert arrive(reply("stop")).place is Place.THREAD


def test_the_stop_word_of_a_bot_outside_a_thread_is_not_ours() -> None:
    assert ignored(message("stop", user="U0OTHBOT1", bot_id="B0OTH0001"))


def test_markers_are_taken_off_the_text() -> None:
    assert (arrive(reply("+ also check the db")).marker, arrive(reply("+ also check the db")).text) == (
        Marker.AFTER,
        "also check the db",
    )
    assert arrive(reply("<@U0BEN0001> can you join?")).text == "@U0BEN0001 can you join?"
    decision = arrive(reply("deny ap-7 wrong &amp; late"))
    assert (decision.marker, decision.approval_id, decision.reason, decision.text) == (
        Marker.DENY,
        "ap-7",
        "wrong & late",
        "",
    )


def test_a_bare_yes_is_marked() -> None:
    assert arrive(reply(":+1:")).assent
    assert not arrive(reply("ok, look at redis")).assent


# -- edits and deletions ---------------------------------------------------------------------------------------------


def edit(before: str | None, after: str, **fields: Any) -> dict[str, Any]:
    ts = "1790000014.000100"
    base = {"type": "message", "user": "U0ANN0001", "ts": ts, "thread_ts": ROOT}
    event = {
        "type": "message",
        "subtype": "message_changed",
        "hidden": True,
        "channel": "C0INC0001",
        "ts": "1790000016.000100",
        "event_ts": "1790000016.000100",
        "message": {**base, "text": after, "edited": {"user": "U0ANN0001", "ts": "1790000016.000000"}, **fields},
    }
    return event if before is None else {**event, "previous_message": {**base, "text": before}}


def test_an_edit_means_the_message_that_it_changes() -> None:
    found = arrive(edit("look at web-3", "look at the gateway"))
    assert (found.source, found.target_ts, found.ts) == (Source.EDIT, "1790000014.000100", "1790000016.000100")
    assert (found.text, found.thread_ts, found.by_author) == ("look at the gateway", ROOT, True)
    assert found.dedupe_key == "edit:T0HOME001:C0INC0001:1790000014.000100:1790000016.000000"


def test_a_preview_that_slack_adds_is_not_an_edit() -> None:
    text = "see https://graf.test/d/1"
    assert ignored(edit(text, text, attachments=[{"from_url": "https://graf.test/d/1", "title": "Latency"}]))


def test_a_message_edited_into_a_stop_is_a_stop_at_the_time_of_the_edit() -> None:
    found = arrive(edit("hm", "stop"))
    assert (found.source, found.marker, found.level) == (Source.EDIT, Marker.STOP_STEP, Level.STEP)
    assert (found.ts, found.text) == ("1790000016.000100", "")


def test_an_edited_stop_is_not_a_second_stop_unless_it_became_a_cancel() -> None:
    assert ignored(edit("stop", "stop!"))
    assert ignored(edit("cancel", "stop"))
    assert arrive(edit("stop", "cancel")).level is Level.TASK


def test_the_second_app_mention_of_an_edit_is_left_to_the_edit() -> None:
    event = {**message(f"{US} restart web"), "type": "app_mention", "edited": {"user": "U0ANN0001", "ts": "1.0"}}
    assert ignored(event) == "an edit, which comes as message_changed"


def test_edits_by_programs_and_edits_without_a_user_are_ignored() -> None:
    assert ignored(edit("x", "y", user=None, bot_id="B0MON0001"))
    assert ignored(edit("x", "y", user="U0BOT0001"))
    assert ignored(edit(None, "y", user=None))
    assert ignored({"type": "message", "subtype": "message_changed", "channel": "C0INC0001", "ts": "1.0"})


def test_deletion_and_tombstone_of_one_message_are_the_same_deletion() -> None:
    previous = {"type": "message", "user": "U0ANN0001", "text": f"{US} check", "ts": ROOT, "thread_ts": ROOT}
    base = {"type": "message", "channel": "C0INC0001", "ts": "1790000017.000100", "event_ts": "1790000017.000100"}
    deleted = arrive({**base, "subtype": "message_deleted", "deleted_ts": ROOT, "previous_message": previous})
    tombstone = {**previous, "subtype": "tombstone", "user": "USLACKBOT", "text": "This message was deleted."}
    gone = arrive({**base, "subtype": "message_changed", "message": tombstone, "previous_message": previous})
    assert deleted == gone
    assert (gone.source, gone.target_ts, gone.author, gone.text) == (Source.DELETE, ROOT, "U0ANN0001", "")


def test_a_card_of_ours_that_a_person_deletes_is_reported() -> None:
    event = {
        "type": "message",
        "subtype": "message_deleted",
        "channel": "C0INC0001",
        "ts": "1790000017.000100",
        "deleted_ts": CARD,
        "previous_message": {"user": "U0BOT0001", "bot_id": "B0SELF001", "ts": CARD, "thread_ts": ROOT},
    }
    assert normalise_event(envelope(event), ME) == OwnPostGone("T0HOME001", "C0INC0001", CARD)  # type: ignore[arg-type]


# -- reactions, native stop ------------------------------------------------------------------------------------------


def reaction(name: str, **fields: Any) -> dict[str, Any]:
    return {
        "type": "reaction_added",
        "user": "U0ANN0001",
        "reaction": name,
        "item": {"type": "message", "channel": "C0INC0001", "ts": CARD},
        "item_user": "U0BOT0001",
        "event_ts": "1790000039.000100",
        **fields,
    }


def test_a_stop_sign_on_a_card_ends_the_step_of_whatever_the_card_shows() -> None:
    found = arrive(reaction("octagonal_sign"))
    assert (found.source, found.marker, found.level) == (Source.REACTION, Marker.STOP_STEP, Level.STEP)
    assert (found.place, found.target_ts, found.only_in_session) == (Place.TARGET, CARD, True)


def test_a_thumb_on_our_post_is_a_bare_yes_and_on_others_nothing() -> None:
    assert arrive(reaction("+1::skin-tone-3")).assent
    assert ignored(reaction("+1", item_user="U0BEN0001"))
    assert ignored(reaction("eyes"))
    assert ignored(reaction("octagonal_sign", user="U0BOT0001"))
    assert ignored(reaction("octagonal_sign", item={"type": "file", "file": "F1"}))


def test_the_native_stop_cancels_the_task_unless_configured_otherwise() -> None:
    event = {
        "type": "agent_session_stopped",
        "channel": "C0INC0001",
        "thread_ts": ROOT,
        "user": "U0ANN0001",
        "streaming_message_ts": [],
        "event_ts": "1790000037.000100",
    }
    found = arrive(event)
    assert (found.source, found.marker, found.level) == (Source.NATIVE_STOP, Marker.CANCEL, Level.TASK)
    assert (found.thread_ts, found.ts, found.place) == (ROOT, "1790000037.000100", Place.THREAD)
    assert arrive(event, Listening(native_stop=Level.STEP)).marker is Marker.STOP_STEP
    assert arrive({**event, "thread_ts": None}).place is Place.OUTSIDE


# -- buttons and commands --------------------------------------------------------------------------------------------


def click(action_id: str, value: str, **fields: Any) -> dict[str, Any]:
    return {
        "type": "block_actions",
        "team": {"id": "T0HOME001"},
        "user": {"id": "U0ANN0001", "team_id": "T0HOME001"},
        "channel": {"id": "C0INC0001"},
        "response_url": "https://hooks.slack.test/actions/x",
        "container": {"type": "message", "message_ts": CARD, "thread_ts": ROOT, "channel_id": "C0INC0001"},
        "message": {"ts": CARD, "thread_ts": ROOT, "user": "U0BOT0001"},
        "actions": [{"action_id": action_id, "value": value, "action_ts": "1790000030.000000"}],
        **fields,
    }


def press(action_id: str, value: str, **fields: Any) -> Arrival:
    found = normalise_action(click(action_id, value, **fields), ME)
    assert isinstance(found, Arrival), found
    return found


@pytest.mark.parametrize(
    ("action", "marker", "level"),
    [
        (Action.STOP_STEP, Marker.STOP_STEP, Level.STEP),
        (Action.CANCEL_TASK, Marker.CANCEL, Level.TASK),
        (Action.STOP_HELPER, Marker.STOP_STEP, None),
        (Action.RETRY, Marker.NONE, None),
        (Action.REDIRECT_NOW, Marker.NOW, None),
        (Action.APPROVE, Marker.APPROVE, None),
        (Action.DENY, Marker.DENY, None),
    ],
)
def test_each_of_our_buttons_is_understood(action: Action, marker: Marker, level: Level | None) -> None:
    found = press(action.value, "x-1")
    assert (found.source, found.action, found.marker, found.level) == (Source.BUTTON, action, marker, level)
    assert (found.subject, found.thread_ts, found.ts) == ("x-1", ROOT, "1790000030.000000")
    assert (found.turn_id is not None) == (action in (Action.STOP_STEP, Action.CANCEL_TASK, Action.RETRY))
    assert (found.approval_id is not None) == (action in (Action.APPROVE, Action.DENY))


def test_a_button_on_an_ephemeral_finds_its_thread_in_the_container() -> None:
    found = press("redirect_now", "m-1", message=None)
    assert (found.thread_ts, found.target_ts) == (ROOT, CARD)


@pytest.mark.parametrize(
    ("action_id", "value"),
    [("retired_button", "t-1"), ("approve", '{"v":1,"id":"old"}'), ("stop_step", ""), ("deny", "x" * 101)],
)
def test_an_old_or_unreadable_button_is_expired_and_never_an_error(action_id: str, value: str) -> None:
    found = normalise_action(click(action_id, value), ME)
    assert isinstance(found, Expired)
    assert (found.channel, found.thread_ts, found.user) == ("C0INC0001", ROOT, "U0ANN0001")


def test_other_interactions_and_clicks_by_nobody_are_ignored() -> None:
    assert isinstance(normalise_action({"type": "view_submission"}, ME), Ignored)
    assert isinstance(normalise_action(click("approve", "ap-1", user=None), ME), Ignored)
    assert isinstance(normalise_action(click("approve", "ap-1", actions=[]), ME), Ignored)


def test_a_slash_command_stops_the_persons_only_running_turn() -> None:
    def command(name: str, text: str = "") -> Arrival | Ignored:
        payload = {
            "command": name,
            "text": text,
            "channel_id": "C0INC0001",
            "user_id": "U0ANN0001",
            "trigger_id": "1.2",
        }
        return normalise_command({**payload, "team_id": "T0HOME001"}, ME, SlackTs("1790000040.000000"))

    found = command("/sre-cancel")
    assert isinstance(found, Arrival)
    assert (found.level, found.place, found.ts, found.mentioned) == (
        Level.TASK,
        Place.OUTSIDE,
        "1790000040.000000",
        True,
    )
    stop = command("/pilot", "stop please")
    assert isinstance(stop, Arrival)
    assert (stop.level, stop.dedupe_key) == (Level.STEP, "cmd:T0HOME001:1.2")
    assert isinstance(command("/pilot", "look at redis"), Ignored)


# -- who -------------------------------------------------------------------------------------------------------------


def person(**facts: Any) -> Person:
    user = {"id": "U0ANN0001", "team_id": "T0HOME001", **facts}
    return Person.from_users_info(user, MAY)


@pytest.mark.parametrize(
    ("facts", "who"),
    [
        ({}, Who.MEMBER),
        ({"is_restricted": True}, Who.GUEST),
        ({"is_ultra_restricted": True}, Who.GUEST),
        ({"deleted": True}, Who.GUEST),
        ({"is_email_confirmed": False}, Who.GUEST),
        ({"is_stranger": True}, Who.EXTERNAL),
        ({"team_id": "T0OTHER01"}, Who.EXTERNAL),
        ({"is_bot": True}, Who.BOT),
    ],
)
def test_an_account_is_taken_for_the_least_that_it_may_be(facts: dict[str, Any], who: Who) -> None:
    assert who_is(person(**facts), Who.MEMBER, ME) is who


def test_what_the_event_shows_is_not_undone_by_the_account() -> None:
    assert who_is(person(), Who.EXTERNAL, ME) is Who.EXTERNAL
    assert who_is(person(), Who.BOT, ME) is Who.BOT


def test_rights_come_with_the_person_and_end_with_the_account() -> None:
    arrival = arrive(reply("look at eu-west"))
    assert with_person(arrival, person(), ME).rights == MAY
    assert with_person(arrival, person(deleted=True), ME).rights == Rights()


def test_a_person_of_another_company_is_external_and_our_own_people_in_a_shared_channel_are_not() -> None:
    shared = {"is_ext_shared_channel": True}
    assert arrive(reply("stop", user="U0EXT0001", user_team="T0OTHER01"), **shared).who is Who.EXTERNAL
    assert arrive(reply("stop", user_team="T0HOME001"), **shared).who is Who.MEMBER
    assert press("stop_step", "t-1", user={"id": "U0EXT0001", "team_id": "T0OTHER01"}).who is Who.EXTERNAL
    assert press("stop_step", "t-1", user={"id": "U0EXT", "team_id": "T0O"}, team={"id": "T0O"}).who is Who.EXTERNAL


def test_an_org_wide_installation_works_in_the_workspace_of_the_event() -> None:
    org = {
        "team_id": "T0GRIDWS1",
        "enterprise_id": "E0GRID001",
        "authorizations": [{"enterprise_id": "E0GRID001", "team_id": None, "is_enterprise_install": True}],
    }
    grid = Me("U0BOT0001", enterprise_id="E0GRID001")
    found = normalise_event(envelope(message(f"{US} hi", user_team="T0GRIDWS2"), **org), grid)
    assert isinstance(found, Arrival)
    assert (found.team, found.who) == ("T0GRIDWS1", Who.MEMBER)
    colleague = Person(UserId("U1"), "T0GRIDWS2", "E0GRID001")
    assert who_is(colleague, found.who, Me("U0BOT0001", team_id="T0GRIDWS1", enterprise_id="E0GRID001")) is Who.MEMBER


# -- anything --------------------------------------------------------------------------------------------------------

INNER = "type text user ts thread_ts channel blocks elements attachments files id message previous_message subtype"
OUTER = "user text thread_ts blocks attachments files message previous_message item bot_id bot_profile edited"
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=8)
    | st.sampled_from([ROOT, "U0ANN0001", US, "stop"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(f"{INNER} edited item actions container fields rows".split()), inner, max_size=5
        )
    ),
    max_leaves=12,
)
events = st.builds(
    lambda sort, subtype, rest: {**rest, "type": sort, "subtype": subtype, "channel": "C0INC0001", "ts": ROOT},
    st.sampled_from(["message", "app_mention", "reaction_added", "agent_session_stopped"]),
    st.sampled_from([None, "message_changed", "message_deleted", "file_share", "bot_message"]),
    st.dictionaries(
        st.sampled_from(f"{OUTER} deleted_ts event_ts reaction team user_team".split()), json_values, max_size=8
    ),
)


@steady
@given(events)
def test_no_event_whatever_is_missing_or_odd_in_it_raises(event: dict[str, Any]) -> None:
    found = normalise_event(envelope(event), ME)
    if isinstance(found, Arrival):
        assert found.ts
        assert found.dedupe_key


@steady
@given(json_values, json_values, json_values)
def test_no_click_raises(user: Any, actions: Any, message: Any) -> None:
    payload = click("stop_step", "t-1", user=user, actions=actions, message=message, container=message, team=user)
    normalise_action(payload, ME)
