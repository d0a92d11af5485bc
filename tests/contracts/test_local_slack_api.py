"""What the local Slack's Web API accepts, refuses and remembers, asked by the real client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import pytest
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from bot.playground.slack import Channel, Impossible, LocalSlack, Person, Workspace
from bot.playground.slack.people import ALL_SCOPES
from bot.playground.slack.reference import REFERENCE
from bot.playground.slack.typed import as_sent
from bot.playground.slack.web_api import METHODS

INCIDENT = "C0INCIDENT"
ENGINEER = "U0ENGINEER"


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)


class Time:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1_790_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Time:
    return Time()


@pytest.fixture
async def slack(clock: Time) -> AsyncIterator[LocalSlack]:
    workspace = Workspace()
    workspace.channels += [
        Channel("C0CLOSED", "closed", members={ENGINEER}),
        Channel("C0SECRET", "secret", members={ENGINEER}, is_private=True),
    ]
    async with LocalSlack(workspace, clock=clock, retry_schedule_s=(), seed=1) as running:
        yield running


@pytest.fixture
def client(slack: LocalSlack) -> AsyncWebClient:
    return AsyncWebClient(token="xoxb-local", base_url=slack.api_url, retry_handlers=[])


async def error_of(call: Any) -> str:
    with pytest.raises(SlackApiError) as caught:
        await call
    return str(caught.value.response["error"])


def section(text: str) -> dict[str, Any]:
    return {"type": "section", "text": {"type": "mrkdwn", "text": text}}


def button(**changes: Any) -> dict[str, Any]:
    shape = {"type": "button", "action_id": "a", "text": {"type": "plain_text", "text": "Go"}} | changes
    return {"type": "actions", "elements": [shape]}


def table(cell: str, rows: int = 1, columns: int = 1) -> dict[str, Any]:
    return {"type": "table", "rows": [[{"type": "raw_text", "text": cell}] * columns] * rows}


# -- who may call -----------------------------------------------------------------------------------------------


def test_every_method_is_in_the_reference() -> None:
    assert set(METHODS) == set(REFERENCE)


async def test_tokens_are_checked(slack: LocalSlack, client: AsyncWebClient) -> None:
    assert (await client.auth_test())["user_id"] == "U0PILOT"
    assert await error_of(AsyncWebClient("xoxb-wrong", base_url=slack.api_url).auth_test()) == "invalid_auth"
    assert await error_of(AsyncWebClient(base_url=slack.api_url).auth_test()) == "not_authed"
    assert await error_of(client.apps_connections_open(app_token="xapp-wrong")) == "invalid_auth"
    await slack.uninstall()
    assert await error_of(client.auth_test()) == "account_inactive"


async def test_auth_test_tells_scopes_and_time(client: AsyncWebClient) -> None:
    headers = (await client.auth_test()).headers
    assert set(headers["x-oauth-scopes"].split(",")) == ALL_SCOPES
    assert headers["Date"] == "Mon, 21 Sep 2026 14:13:20 GMT"


async def test_each_token_is_told_its_own_scopes_and_a_wrong_one_none(
    slack: LocalSlack, client: AsyncWebClient
) -> None:
    app = slack.workspace.app_token
    assert (await client.apps_connections_open(app_token=app)).headers["x-oauth-scopes"] == "connections:write"
    with pytest.raises(SlackApiError) as wrong:
        await AsyncWebClient("xoxb-wrong", base_url=slack.api_url).auth_test()
    assert "x-oauth-scopes" not in wrong.value.response.headers
    slack.workspace.app_scopes = frozenset({"authorizations:read"})
    with pytest.raises(SlackApiError) as caught:
        await client.apps_connections_open(app_token=app)
    answer = caught.value.response
    assert (answer["error"], answer["needed"], answer["provided"]) == (
        "missing_scope",
        "connections:write",
        "authorizations:read",
    )


async def test_unknown_methods_arguments_and_missing_scopes_are_refused(
    slack: LocalSlack, client: AsyncWebClient
) -> None:
    assert await error_of(client.api_call("chat.command")) == "unknown_method"
    assert await error_of(client.chat_postMessage(channel=INCIDENT, text="x", treadh_ts="1.0")) == "invalid_arg_name"
    assert await error_of(client.api_call("users.info")) == "invalid_arguments"
    slack.workspace.scopes = ALL_SCOPES - {"reactions:write"}
    root = await slack.say(INCIDENT, ENGINEER, "x")
    refused = client.reactions_add(channel=INCIDENT, timestamp=root, name="eyes")
    with pytest.raises(SlackApiError) as caught:
        await refused
    assert caught.value.response["needed"] == "reactions:write"


async def test_roles_are_told_by_users_info(client: AsyncWebClient) -> None:
    guest = (await client.users_info(user="U0GUEST"))["user"]
    assert (guest["is_restricted"], guest["is_bot"]) == (True, False)
    assert (await client.users_info(user="U0MONITOR"))["user"]["is_bot"]
    assert await error_of(client.users_info(user="U0NOBODY")) == "user_not_found"
    assert (await client.usergroups_users_list(usergroup="S0ONCALL"))["users"] == ["U0ONCALL"]


# -- what may be posted -----------------------------------------------------------------------------------------

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "nothing at all": ({}, "no_text"),
    "a section that is too long": ({"blocks": [section("x" * 3001)]}, "invalid_blocks"),
    "an empty section": ({"blocks": [section("")]}, "invalid_blocks"),
    "51 blocks": ({"blocks": [{"type": "divider"}] * 51}, "invalid_blocks"),
    "markdown that becomes 120 blocks": (
        {"blocks": [{"type": "markdown", "text": "# h\n\npara\n\n---\n\n" * 40}]},
        "invalid_blocks",
    ),
    "a markdown block that is too long": (
        {"blocks": [{"type": "markdown", "text": "x" * 12_001}]},
        "invalid_blocks",
    ),
    "two markdown blocks that are too long together": (
        {"blocks": [{"type": "markdown", "text": "x" * 6_001}] * 2},
        "msg_blocks_too_long",
    ),
    "too much text in all": ({"blocks": [section("x" * 3000)] * 5}, "msg_blocks_too_long"),
    "a button with a long value": ({"blocks": [button(value="x" * 2001)]}, "invalid_blocks"),
    "a button with a long label": (
        {"blocks": [button(text={"type": "plain_text", "text": "x" * 76})]},
        "invalid_blocks",
    ),
    "a strange block": ({"blocks": [{"type": "marquee"}]}, "invalid_blocks"),
    "two blocks of one id": ({"blocks": [{"type": "divider", "block_id": "b"}] * 2}, "invalid_blocks"),
    "an empty table cell": ({"blocks": [table("")]}, "invalid_blocks"),
    "a table of 101 rows": ({"blocks": [table("x", rows=101)]}, "invalid_blocks"),
    "a table of 21 columns": ({"blocks": [table("x", columns=21)]}, "invalid_blocks"),
    "tables with too much in them": ({"blocks": [table("x" * 200, 30), table("y" * 200, 30)]}, "invalid_blocks"),
    "a task card whose details are a string": (
        {"blocks": [{"type": "task_card", "task_id": "1", "title": "t", "details": "s"}]},
        "invalid_blocks",
    ),
    "blocks that are no list": ({"blocks": "section"}, "invalid_blocks_format"),
    "markdown beside text": ({"markdown_text": "x", "text": "y"}, "markdown_text_conflict"),
    "markdown that is too long": ({"markdown_text": "x" * 12_001}, "msg_too_long"),
    "101 attachments": ({"attachments": [{"text": "x"}] * 101}, "too_many_attachments"),
    "metadata without a payload": ({"text": "x", "metadata": {"event_type": "t"}}, "invalid_metadata_format"),
    "metadata that is too large": (
        {"text": "x", "metadata": {"event_type": "t", "event_payload": {"k": "x" * 9000}}},
        "metadata_too_large",
    ),
}


@pytest.mark.parametrize("content, error", REFUSED.values(), ids=REFUSED.keys())
async def test_what_slack_refuses_is_refused(
    client: AsyncWebClient, slack: LocalSlack, content: dict[str, Any], error: str
) -> None:
    assert await error_of(client.api_call("chat.postMessage", json={"channel": INCIDENT, **content})) == error
    assert slack.messages(INCIDENT) == []


async def test_a_fault_is_told_with_its_place(client: AsyncWebClient) -> None:
    with pytest.raises(SlackApiError) as caught:
        await client.chat_postMessage(channel=INCIDENT, text="x", blocks=[section("ok"), section("x" * 3001)])
    assert caught.value.response["response_metadata"]["messages"] == [
        "[ERROR] must be less than 3001 characters [json-pointer:/blocks/1/text/text]"
    ]


async def test_posting_cuts_long_text_but_editing_refuses_it(client: AsyncWebClient) -> None:
    posted = await client.chat_postMessage(channel=INCIDENT, text="x" * 40_001)
    assert posted["warning"] == "message_truncated"
    assert len(posted["message"]["text"]) == 40_000
    edit = client.chat_update(channel=INCIDENT, ts=posted["ts"], text="x" * 4_001)
    assert await error_of(edit) == "msg_too_long"


async def test_an_edit_with_text_only_takes_the_blocks_away(slack: LocalSlack, client: AsyncWebClient) -> None:
    posted = await client.chat_postMessage(channel=INCIDENT, text="card", blocks=[section("running")])
    ts = posted["ts"]
    with_blocks = await client.chat_update(channel=INCIDENT, ts=ts, text="card", blocks=[section("done")])
    assert "edited" not in with_blocks["message"]
    text_only = await client.chat_update(channel=INCIDENT, ts=ts, text="done")
    assert "blocks" not in text_only["message"]
    assert text_only["message"]["edited"]["user"] == "U0PILOT"
    versions = slack.versions(INCIDENT, ts)
    assert [(version["what"], version["by"]) for version in versions] == [
        ("posted", "U0PILOT"),
        ("edited", "U0PILOT"),
        ("edited", "U0PILOT"),
    ]
    assert versions[0]["message"]["blocks"][0]["text"]["text"] == "running"


# -- where it may be posted -------------------------------------------------------------------------------------


async def test_channels_that_the_bot_is_not_in_refuse_it(client: AsyncWebClient) -> None:
    assert await error_of(client.chat_postMessage(channel="C0NOWHERE", text="x")) == "channel_not_found"
    assert await error_of(client.chat_postMessage(channel="C0CLOSED", text="x")) == "not_in_channel"
    assert await error_of(client.chat_postMessage(channel="C0SECRET", text="x")) == "channel_not_found"


async def test_an_archived_channel_has_a_name_of_its_own_for_each_call(
    slack: LocalSlack, client: AsyncWebClient
) -> None:
    card = await client.chat_postMessage(channel=INCIDENT, text="card")
    await slack.archive(INCIDENT, ENGINEER)
    assert await error_of(client.chat_postMessage(channel=INCIDENT, text="x")) == "is_archived"
    assert await error_of(client.chat_update(channel=INCIDENT, ts=card["ts"], text="x")) == "is_inactive"
    react = client.reactions_add(channel=INCIDENT, timestamp=card["ts"], name="eyes")
    assert await error_of(react) == "is_archived"


async def test_posting_rules_have_names(slack: LocalSlack, client: AsyncWebClient) -> None:
    slack.workspace.channels[0].posting = "read_only_channel"
    refused = client.chat_postMessage(channel=INCIDENT, text="x")
    assert await error_of(refused) == "restricted_action_read_only_channel"


async def test_only_our_own_messages_can_be_changed(slack: LocalSlack, client: AsyncWebClient) -> None:
    theirs = await slack.say(INCIDENT, ENGINEER, "mine")
    assert await error_of(client.chat_update(channel=INCIDENT, ts=theirs, text="x")) == "cant_update_message"
    assert await error_of(client.chat_delete(channel=INCIDENT, ts=theirs)) == "cant_delete_message"
    ours = (await client.chat_postMessage(channel=INCIDENT, text="card"))["ts"]
    await slack.delete(INCIDENT, ours, "U0ONCALL")
    assert await error_of(client.chat_update(channel=INCIDENT, ts=ours, text="x")) == "message_not_found"
    assert await error_of(client.chat_delete(channel=INCIDENT, ts=ours)) == "message_not_found"


async def test_an_ephemeral_message_is_seen_by_one_person_and_by_no_method(
    slack: LocalSlack, client: AsyncWebClient
) -> None:
    root = await slack.say(INCIDENT, ENGINEER, "hello")
    said = await client.chat_postEphemeral(channel=INCIDENT, user="U0GUEST", text="no", thread_ts=root)
    assert [m["text"] for m in slack.messages(INCIDENT, root)] == ["hello", "no"]
    assert slack.messages(INCIDENT, root)[1]["ephemeral_user"] == "U0GUEST"
    seen = await client.conversations_replies(channel=INCIDENT, ts=root)
    assert [m["text"] for m in seen["messages"]] == ["hello"]
    edit = client.chat_update(channel=INCIDENT, ts=said["message_ts"], text="x")
    assert await error_of(edit) == "message_not_found"
    stranger = client.chat_postEphemeral(channel=INCIDENT, user="U0NOBODY", text="no")
    assert await error_of(stranger) == "user_not_in_channel"


# -- reading ----------------------------------------------------------------------------------------------------


async def test_replies_come_oldest_first_with_the_root_on_the_first_page_only(
    slack: LocalSlack, client: AsyncWebClient
) -> None:
    root = await slack.say(INCIDENT, ENGINEER, "root")
    sent = [await slack.say(INCIDENT, ENGINEER, f"reply {n}", thread_ts=root) for n in range(5)]
    pages = [
        [message["ts"] for message in page["messages"]]
        async for page in await client.conversations_replies(channel=INCIDENT, ts=root, limit=2)
    ]
    assert pages == [[root, sent[0]], sent[1:3], sent[3:5]]
    tail = await client.conversations_replies(channel=INCIDENT, ts=root, oldest=sent[2])
    assert [message["ts"] for message in tail["messages"]] == [root, *sent[3:]]
    assert tail["messages"][1]["parent_user_id"] == ENGINEER
    assert await error_of(client.conversations_replies(channel=INCIDENT, ts="1.000001")) == "thread_not_found"


async def test_history_comes_newest_first_without_replies_but_with_broadcasts(
    slack: LocalSlack, client: AsyncWebClient
) -> None:
    root = await slack.say(INCIDENT, ENGINEER, "root")
    await slack.say(INCIDENT, ENGINEER, "quiet reply", thread_ts=root)
    await slack.say(INCIDENT, ENGINEER, "loud reply", thread_ts=root, broadcast=True)
    await slack.say(INCIDENT, ENGINEER, "later")
    page = await client.conversations_history(channel=INCIDENT)
    assert [message["text"] for message in page["messages"]] == ["later", "loud reply", "root"]


async def test_a_reaction_can_be_given_once(slack: LocalSlack, client: AsyncWebClient) -> None:
    root = await slack.say(INCIDENT, ENGINEER, "root")
    await client.reactions_add(channel=INCIDENT, timestamp=root, name="eyes")
    again = client.reactions_add(channel=INCIDENT, timestamp=root, name="eyes")
    assert await error_of(again) == "already_reacted"
    assert slack.messages(INCIDENT)[0]["reactions"] == [{"name": "eyes", "users": ["U0PILOT"], "count": 1}]
    await client.reactions_remove(channel=INCIDENT, timestamp=root, name="eyes")
    gone = client.reactions_remove(channel=INCIDENT, timestamp=root, name="eyes")
    assert await error_of(gone) == "no_reaction"


# -- sessions, streams, views, files ----------------------------------------------------------------------------


async def test_a_workspace_without_agent_sessions_says_so(slack: LocalSlack, client: AsyncWebClient) -> None:
    root = await slack.say(INCIDENT, ENGINEER, "root")
    set_status: Callable[..., Any] = client.agents_sessions_setStatus
    assert await error_of(set_status(channel_id=INCIDENT, status="processing")) == "thread_ts_required"
    wrong = set_status(channel_id=INCIDENT, thread_ts=root, status="busy")
    assert await error_of(wrong) == "invalid_status"
    slack.workspace.native_stop = False
    refused = set_status(channel_id=INCIDENT, thread_ts=root, status="processing")
    assert await error_of(refused) == "feature_disabled"


async def test_a_stream_is_sealed_after_five_minutes_and_by_a_stop(
    slack: LocalSlack, client: AsyncWebClient, clock: Time
) -> None:
    root = await slack.say(INCIDENT, ENGINEER, "root")
    start: dict[str, Any] = {"channel": INCIDENT, "thread_ts": root}
    assert await error_of(client.chat_startStream(**start)) == "missing_recipient_team_id"
    start |= {"recipient_team_id": "T0LOCAL", "recipient_user_id": ENGINEER}
    first = (await client.chat_startStream(**start, markdown_text="one "))["ts"]
    await client.chat_appendStream(channel=INCIDENT, ts=first, markdown_text="two")
    edit = client.chat_update(channel=INCIDENT, ts=first, text="x")
    assert await error_of(edit) == "streaming_state_conflict"
    clock.now += 301
    late = client.chat_appendStream(channel=INCIDENT, ts=first, markdown_text="three")
    assert await error_of(late) == "message_not_in_streaming_state"
    second = (await client.chat_startStream(**start))["ts"]
    await slack.native_stop(INCIDENT, root, ENGINEER)
    stopped = client.chat_appendStream(channel=INCIDENT, ts=second, markdown_text="x")
    assert await error_of(stopped) == "stopped_by_user"
    assert slack.messages(INCIDENT, root)[1]["text"] == "one two"


async def test_a_trigger_opens_one_view_within_three_seconds(
    slack: LocalSlack, client: AsyncWebClient, clock: Time
) -> None:
    modal = {"type": "modal", "title": {"type": "plain_text", "text": "Redirect"}, "blocks": [section("hi")]}
    assert await error_of(client.views_open(trigger_id="1.2.x", view=modal)) == "invalid_trigger_id"
    trigger = slack.desk.issue_trigger(ENGINEER)
    opened = await client.views_open(trigger_id=trigger, view=modal)
    assert await error_of(client.views_open(trigger_id=trigger, view=modal)) == "exchanged_trigger_id"
    late = slack.desk.issue_trigger(ENGINEER)
    clock.now += 4
    assert await error_of(client.views_open(trigger_id=late, view=modal)) == "expired_trigger_id"
    view = opened["view"]
    await client.views_update(view_id=view["id"], hash=view["hash"], view=modal)
    stale = client.views_update(view_id=view["id"], hash=view["hash"], view=modal)
    assert await error_of(stale) == "hash_conflict"
    long = modal | {"title": {"type": "plain_text", "text": "x" * 25}}
    refused = client.views_open(trigger_id=slack.desk.issue_trigger(ENGINEER), view=long)
    assert await error_of(refused) == "invalid_arguments"
    await client.views_publish(user_id=ENGINEER, view={"type": "home", "blocks": [section("hello")]})
    assert slack.state.homes[ENGINEER].body["blocks"] == [section("hello")]


async def test_a_response_url_works_five_times_in_thirty_minutes(slack: LocalSlack, clock: Time) -> None:
    async with aiohttp.ClientSession() as session:

        async def use(url: str, **body: Any) -> int:
            async with session.post(url, json=body) as answer:
                return answer.status

        url = slack.desk.issue_response_url(INCIDENT, ENGINEER)
        assert [await use(url, text="hi") for _ in range(6)] == [200] * 5 + [404]
        [first, *_] = slack.messages(INCIDENT)
        assert first["ephemeral_user"] == ENGINEER
        url = slack.desk.issue_response_url(INCIDENT, ENGINEER, first)
        assert await use(url, text="changed", replace_original=True) == 200
        assert slack.messages(INCIDENT)[0]["text"] == "changed"
        assert await use(url, delete_original=True) == 200
        assert len(slack.messages(INCIDENT)) == 4
        clock.now += 1801
        assert await use(url, text="late") == 404


async def test_a_file_can_be_uploaded_and_is_downloaded_with_the_token_only(
    slack: LocalSlack, client: AsyncWebClient
) -> None:
    root = await slack.say(INCIDENT, ENGINEER, "root")
    await client.files_upload_v2(
        channel=INCIDENT, thread_ts=root, content=b"\x89PNG", filename="chart.png", initial_comment="the chart"
    )
    shared = slack.messages(INCIDENT, root)[1]
    assert (shared["text"], shared["files"][0]["mimetype"]) == ("the chart", "image/png")
    url = shared["files"][0]["url_private_download"]
    async with aiohttp.ClientSession() as session:
        async with session.get(url, headers={"Authorization": "Bearer xoxb-local"}) as answer:
            assert (await answer.read(), answer.content_type) == (b"\x89PNG", "image/png")
        async with session.get(url) as answer:
            assert (answer.status, answer.content_type) == (200, "text/html")


# -- what goes wrong --------------------------------------------------------------------------------------------


async def test_rate_limits_answer_429_with_retry_after(
    slack: LocalSlack, client: AsyncWebClient, clock: Time
) -> None:
    slack.limits_on()
    for _ in range(3):
        await client.chat_postMessage(channel=INCIDENT, text="x")
    with pytest.raises(SlackApiError) as caught:
        await client.chat_postMessage(channel=INCIDENT, text="x")
    assert caught.value.response.status_code == 429
    assert caught.value.response.headers["Retry-After"] == "1"
    await client.chat_postMessage(channel="C0RANDOM", text="another channel")
    clock.now += 1
    card = await client.chat_postMessage(channel=INCIDENT, text="x")
    edits = [client.chat_update(channel=INCIDENT, ts=card["ts"], text=str(n)) for n in range(51)]
    for edit in edits[:50]:
        await edit
    assert await error_of(edits[50]) == "ratelimited"


async def test_a_script_answers_the_calls_it_is_for(slack: LocalSlack, client: AsyncWebClient) -> None:
    refusal = {"status": 200, "body": {"ok": False, "error": "message_not_found"}}
    slack.script("chat.postMessage", [refusal, "pass"], when=lambda args: args["text"] == "b")
    await client.chat_postMessage(channel=INCIDENT, text="a")
    assert await error_of(client.chat_postMessage(channel=INCIDENT, text="b")) == "message_not_found"
    await client.chat_postMessage(channel=INCIDENT, text="b")
    assert [call.ok for call in slack.called("chat.postMessage")] == [True, False, True]
    with pytest.raises(ValueError, match="unknown scripted response"):
        slack.script("chat.update", ["explode"])


async def test_a_call_can_be_left_without_an_answer(slack: LocalSlack) -> None:
    client = AsyncWebClient(token="xoxb-local", base_url=slack.api_url, timeout=1, retry_handlers=[])
    slack.script("chat.postMessage", ["timeout", "commit_then_timeout"])
    for _ in range(2):
        with pytest.raises(TimeoutError):
            await client.chat_postMessage(channel=INCIDENT, text="x")
    assert len(slack.messages(INCIDENT)) == 1


# -- what people type -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "typed, sent",
    [
        ("@pilot a < b && c", "<@U0PILOT> a &lt; b &amp;&amp; c"),
        ("<@U0PILOT> and @emil, @nobody", "<@U0PILOT> and <@U0ENGINEER>, @nobody"),
        ("@here in #random", "<!here> in <#C0RANDOM|random>"),
        ("see https://x.test/a?b=1&c=2.", "see <https://x.test/a?b=1&amp;c=2>."),
        ("run `kubectl @pilot <pod>`", "run `kubectl @pilot &lt;pod&gt;`"),
        ("mail emil@pilot.test", "mail emil@pilot.test"),
        ("> stop", "&gt; stop"),
    ],
)
def test_typed_text_is_stored_the_way_slack_stores_it(typed: str, sent: str) -> None:
    assert as_sent(typed, Workspace()) == sent


async def test_people_are_told_what_they_cannot_do(slack: LocalSlack, client: AsyncWebClient) -> None:
    ts = await slack.say(INCIDENT, ENGINEER, "mine")
    card = (await client.chat_postMessage(channel=INCIDENT, text="card", blocks=[button()]))["ts"]
    note = await client.chat_postEphemeral(channel=INCIDENT, user=ENGINEER, text="x", blocks=[button()])
    refused = [
        (slack.say(INCIDENT, ENGINEER, "/stop"), "command"),
        (slack.say(INCIDENT, ENGINEER, "  "), "empty"),
        (slack.say("C0CLOSED", "U0GUEST", "x"), "not in"),
        (slack.say(INCIDENT, ENGINEER, "x", thread_ts="1.0"), "no message"),
        (slack.edit(INCIDENT, ts, "U0ONCALL", "x"), "only edit"),
        (slack.delete(INCIDENT, ts, "U0ONCALL"), "only delete"),
        (slack.delete(INCIDENT, card, "U0GUEST"), "only delete"),
        (slack.press(INCIDENT, card, "other", ENGINEER), "no button"),
        (slack.press(INCIDENT, note["message_ts"], "a", "U0GUEST"), "sees no message"),
    ]
    for action, reason in refused:
        with pytest.raises(Impossible, match=reason):
            await action


async def test_somebody_of_another_company_is_marked_as_such(slack: LocalSlack) -> None:
    slack.workspace.people.append(Person("U0EXT", "eve", "Eve", "external", is_stranger=True, team_id="T0OTHER"))
    await slack.share(INCIDENT)
    await slack.say(INCIDENT, "U0EXT", "hello")
    await slack.quiet()
    payload = slack.deliveries[-1][0]["payload"]
    assert payload["is_ext_shared_channel"]
    assert payload["event"]["user_team"] == "T0OTHER"
