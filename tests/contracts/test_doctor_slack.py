"""What the doctor says of Slack: tokens, scopes, the clock, and the people and channels of the configuration."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from bot.app import examine
from bot.doctor import channels as channels_doctor
from bot.doctor import slack as slack_doctor
from bot.doctor.finding import Finding
from bot.http import Health
from bot.playground.slack import Channel, Person, Workspace
from bot.playground.slack.people import ALL_SCOPES, default_channels, default_people
from bot.settings import ChannelPart
from core.ports import Tier, ToolSpec
from tests.support import far_ends
from tests.support.far_ends import Installation, installation, told
from tests.support.processes import free_port

here = far_ends.here


@pytest.mark.parametrize(
    ("token", "says"),
    [
        ("", "SLACK_BOT_TOKEN is not set: copy the Bot User OAuth Token (xoxb-) of the app's Install App page."),
        ("xoxb-other", "SLACK_BOT_TOKEN is not valid (invalid_auth); copy the token that starts with xoxb- again."),
        (
            "xapp-local",
            "SLACK_BOT_TOKEN holds an app-level token, which belongs into SLACK_APP_TOKEN: copy the Bot User OAuth "
            "Token, which starts with xoxb-.",
        ),
        (
            "xoxp-1",
            "SLACK_BOT_TOKEN holds a token of a person: copy the Bot User OAuth Token, which starts with xoxb-.",
        ),
    ],
)
async def test_a_bot_token_that_can_not_be_used(here: Installation, token: str, says: str) -> None:
    here.variables["SLACK_BOT_TOKEN"] = token
    found = await told(here)
    assert found["bot token"] == ("failing", says)
    assert "scopes" not in found


async def test_a_revoked_token_is_told_in_slacks_word(here: Installation) -> None:
    here.slack.workspace.token_error = "token_revoked"
    assert (await told(here))["bot token"][1].startswith("SLACK_BOT_TOKEN is not valid (token_revoked);")


async def test_a_required_scope_that_is_missing_fails_and_an_optional_one_is_a_warning(here: Installation) -> None:
    here.slack.workspace.scopes = ALL_SCOPES - {"groups:history", "files:read"}
    assert (await told(here))["scopes"] == (
        "failing",
        "The bot token lacks groups:history: add them under OAuth & Permissions of the app (or paste manifest.yml "
        "there) and install the app again.",
    )
    here.slack.workspace.scopes = ALL_SCOPES - {"files:read"}
    state, says = (await told(here))["scopes"]
    assert (state, says.startswith("The bot token lacks files:read, so files or reactions don't work")) == (
        "warning",
        True,
    )


@pytest.mark.parametrize(
    ("token", "says"),
    [
        ("", "SLACK_APP_TOKEN is not set, and Socket Mode needs it: make an app-level token (xapp-) with"),
        ("xapp-other", "SLACK_APP_TOKEN is not valid (invalid_auth); it must start with xapp- and have"),
        ("xoxb-local", "SLACK_APP_TOKEN holds a token of another kind: make an app-level token (xapp-) with"),
    ],
)
async def test_an_app_token_that_can_not_be_used(here: Installation, token: str, says: str) -> None:
    here.variables["SLACK_APP_TOKEN"] = token
    state, said = (await told(here))["app token"]
    assert (state, said.startswith(says), "connections:write" in said) == ("failing", True, True)


async def test_an_app_token_without_connections_write(here: Installation) -> None:
    here.slack.workspace.app_scopes = frozenset({"authorizations:read"})
    state, says = (await told(here))["app token"]
    assert (state, says.startswith("SLACK_APP_TOKEN lacks the scope connections:write")) == ("failing", True)


async def test_tokens_of_two_apps_are_no_pair(here: Installation) -> None:
    here.slack.workspace.app_token = "xapp-1-A0OTHER-123-abc"
    assert (await told(here))["app token"] == (
        "failing",
        "SLACK_APP_TOKEN is of the app A0OTHER, SLACK_BOT_TOKEN of A0PILOT: take both tokens from one app.",
    )
    here.slack.workspace.app_token = "xapp-1-A0PILOT-123-abc"
    assert (await told(here))["app token"][0] == "ok"


async def test_http_mode_needs_the_signing_secret_and_no_app_token(here: Installation) -> None:
    here.variables |= {"PILOTHOUSE_SLACK__MODE": "http", "SLACK_APP_TOKEN": ""}
    found = await told(here)
    assert "app token" not in found
    assert found["signing secret"] == (
        "failing",
        "SLACK_SIGNING_SECRET is not set, and HTTP mode needs it: copy the Signing Secret from Basic Information of "
        "the app.",
    )
    here.variables["SLACK_SIGNING_SECRET"] = "xoxb-not-a-secret"
    assert (await told(here))["signing secret"][0] == "warning"
    here.variables["SLACK_SIGNING_SECRET"] = "0123456789abcdef" * 2
    assert (await told(here))["signing secret"][0] == "ok"


async def test_a_slack_that_can_not_be_reached_is_told_once_a_token_and_asked_nothing_else(
    here: Installation,
) -> None:
    here.variables["SLACK_API_BASE_URL"] = f"http://127.0.0.1:{free_port()}/api/"
    found = await told(here)
    for check in ("bot token", "app token"):
        assert found[check][0] == "failing" and found[check][1].startswith(
            "Slack can't be reached at http://127.0.0.1"
        )
    assert not {"scopes", "clock", "people"} & set(found)


async def test_a_slack_that_does_not_say_the_scopes_is_a_warning(here: Installation) -> None:
    body = {"ok": True, "user": "pilot", "user_id": "U0PILOT", "bot_id": "B0PILOT", "team_id": "T0LOCAL"}
    here.slack.script("auth.test", [{"body": body}, {"body": body}])
    assert (await told(here))["scopes"] == (
        "warning",
        "Slack did not say which scopes the token has: a proxy may drop its headers.",
    )


async def test_a_token_of_a_person_is_told_by_what_slack_answers(here: Installation) -> None:
    body = {"ok": True, "user": "ann", "user_id": "U0ANN", "team_id": "T0LOCAL"}
    here.slack.script("auth.test", [{"body": body}, {"body": body}])
    assert (await told(here))["bot token"] == (
        "failing",
        "SLACK_BOT_TOKEN is a person's, not the bot's: copy the Bot User OAuth Token (xoxb-).",
    )


def test_the_manifest_beside_the_program_names_scopes() -> None:
    scopes = slack_doctor.Scopes.of(slack_doctor.MANIFEST)
    assert scopes is not None and "chat:write" in scopes.required and "files:read" in scopes.optional
    assert slack_doctor.Scopes.of(Path("/none.yml")) is None


# -- the clock


@pytest.mark.parametrize(
    ("off_s", "state", "says"),
    [
        (0.0, "ok", "This machine's clock agrees with Slack's."),
        (-90.0, "warning", "This machine's clock is 1 min "),
        (-450.0, "failing", "This machine's clock is 7 min "),
        (450.0, "failing", "This machine's clock is 7 min "),
    ],
)
async def test_the_clock_is_compared_with_slacks(tmp_path: Path, off_s: float, state: str, says: str) -> None:
    async with installation(tmp_path, slack={"clock": lambda: time.time() + off_s}) as here:
        found = (await told(here))["clock"]
    assert found[0] == state and found[1].startswith(says)
    if state == "failing":
        where = "ahead of" if off_s < 0 else "behind"
        assert f"{where} Slack's, and signed requests more than 5 min off are refused: let NTP set it" in found[1]


async def test_the_clock_is_compared_also_when_the_token_is_refused(tmp_path: Path) -> None:
    async with installation(tmp_path, slack={"clock": lambda: time.time() - 1000}) as here:
        here.variables["SLACK_BOT_TOKEN"] = "xoxb-other"
        assert (await told(here))["clock"][0] == "failing"


# -- people and channels


WRITES = ToolSpec("kubernetes_scale", "", {}, Tier.WRITE)
LEAVES = ToolSpec("mail__send", "", {}, Tier.EXTERNAL)
READS = ToolSpec("loki_query", "", {})
SOMEBODY = ChannelPart(approvers=frozenset({"U0ONCALL"}))
UNASKED = ChannelPart(preapproved=frozenset({"kubernetes_scale"}))


@pytest.mark.parametrize(
    ("channels", "tools", "state", "says"),
    [
        ({}, [READS], "ok", "No configured tool needs an approval."),
        ({"default": UNASKED}, [READS, WRITES], "ok", "No configured tool needs an approval."),
        (
            {},
            [READS, WRITES],
            "warning",
            "Nobody may approve kubernetes_scale in every channel without a table: name `approvers` (user or group "
            "ids) under [channels.default].",
        ),
        (
            {"default": SOMEBODY},
            [LEAVES, WRITES],
            "ok",
            "Somebody may approve kubernetes_scale, mail__send in every channel.",
        ),
        (
            {"default": SOMEBODY, "C0INCIDENT": UNASKED},
            [LEAVES, WRITES],
            "warning",
            "Nobody may approve mail__send in C0INCIDENT: name `approvers` (user or group ids) under "
            "[channels.C0INCIDENT].",
        ),
    ],
)
def test_where_something_can_be_changed_somebody_must_be_able_to_approve(
    channels: Mapping[str, ChannelPart], tools: list[ToolSpec], state: str, says: str
) -> None:
    assert channels_doctor.who_approves(channels, tools) == [Finding("approvers", Health(state), says)]


def test_a_preapproved_tool_that_is_none_is_told() -> None:
    mistyped = ChannelPart(approvers=frozenset({"U0ONCALL"}), preapproved=frozenset({"kubernetes_scal"}))
    (_, found) = channels_doctor.who_approves({"default": mistyped}, [READS, WRITES])
    assert found == Finding(
        "preapproved",
        Health.WARNING,
        "`preapproved` names kubernetes_scal: no configured tool of that name changes anything. Correct it.",
    )


async def test_tools_that_can_not_be_opened_say_nothing_about_approvals(here: Installation) -> None:
    here.variables["PILOTHOUSE_TOOLS__BROWSER"] = "true"
    found = await told(here)
    assert found["tools"] == (
        "failing",
        "The tools can't be opened: tools.browser opens only pages of tools.web_domains, and none is named there. "
        "`pilothouse serve` would not start.",
    )
    assert "approvers" not in found


async def test_people_who_can_not_approve_are_told(tmp_path: Path) -> None:
    people = [
        *default_people(),
        Person("U0LEFT", "lea", "Lea", deleted=True),
        Person("U0ELSEWHERE", "eli", "Eli", team_id="T0OTHER"),
    ]
    workspace = Workspace(people=people, usergroups={"S0EMPTY": [], "S0ONCALL": ["U0ONCALL"]})
    async with installation(tmp_path, workspace=workspace) as here:
        here.channels = """
[channels.default]
on_call = ["S0EMPTY", "U0GUEST", "@olive"]
approvers = ["S0ONCALL", "U0GUEST", "U0LEFT", "U0ELSEWHERE", "U0NOBODY"]
"""
        people_found = [one for one in await examine(here.settings) if one.check == "people"]
    assert {one.health for one in people_found} == {Health.WARNING}
    shape, known = (one.says for one in people_found)
    assert shape == "No ids of Slack's: @olive. People are named as in U0123ABCD, user groups as in S0123ABCD."
    assert known.split("; ") == [
        "U0ELSEWHERE is of another company and can't approve: name a member of the workspace",
        "U0GUEST is a guest and can't approve: name a member of the workspace",
        "U0LEFT has no active account: take it out of the configuration",
        "Slack does not show us U0NOBODY (user_not_found): correct the id",
        "the user group S0EMPTY has no members.",
    ]


async def test_channels_that_are_not_there_are_told(tmp_path: Path) -> None:
    channels = [
        *default_channels(),
        Channel("C0OLD", "old", is_archived=True),
        Channel("C0APART", "apart", members={"U0ONCALL"}),
    ]
    async with installation(tmp_path, workspace=Workspace(channels=channels)) as here:
        here.channels = "".join(
            f'[channels."{name}"]\n' for name in ("C0INCIDENT", "C0OLD", "C0APART", "C0NONE", "#incidents")
        )
        shape, known = (one.says for one in await examine(here.settings) if one.check == "channels")
    assert shape == ("No channel ids, so their tables never apply: #incidents. Channels are named as in C0123ABCD.")
    assert known.split("; ") == [
        "the bot is not in C0APART: write `/invite @Pilothouse` there",
        "Slack does not show us C0NONE (channel_not_found): invite the bot there, or correct the id",
        "C0OLD is archived: take its table out of the configuration.",
    ]
