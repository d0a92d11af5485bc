"""Who is there: people, channels and the workspace of a local Slack, and how the Web API describes them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

ALL_SCOPES = frozenset(
    [
        "app_mentions:read",
        "assistant:write",
        "channels:history",
        "channels:read",
        "chat:write",
        "commands",
        "files:read",
        "files:write",
        "groups:history",
        "groups:read",
        "im:history",
        "im:read",
        "im:write",
        "links:write",
        "mpim:history",
        "mpim:read",
        "reactions:read",
        "reactions:write",
        "team:read",
        "usergroups:read",
        "users:read",
    ]
)


@dataclass(slots=True)
class Person:
    """Somebody with an account. `role` is on_call, engineer, guest, external or bot: a word for pages and tests.

    `team_id` is the home workspace; None means this one. `bot_id` is set for bots only.
    """

    id: str
    name: str
    real_name: str
    role: str = "engineer"
    title: str = ""
    is_restricted: bool = False
    is_ultra_restricted: bool = False
    is_stranger: bool = False
    is_email_confirmed: bool = True
    deleted: bool = False
    team_id: str | None = None
    bot_id: str | None = None

    @property
    def is_bot(self) -> bool:
        return self.bot_id is not None

    def as_user(self, home_team: str) -> Json:
        """The `user` object of `users.info`."""
        team = self.team_id or home_team
        profile = {
            "display_name": self.name,
            "real_name": self.real_name,
            "title": self.title,
            "team": team,
        }
        if self.bot_id is not None:
            profile["bot_id"] = self.bot_id
        return {
            "id": self.id,
            "team_id": team,
            "name": self.name,
            "real_name": self.real_name,
            "deleted": self.deleted,
            "tz": "Europe/Berlin",
            "profile": profile,
            "is_admin": self.role == "on_call",
            "is_owner": False,
            "is_bot": self.is_bot,
            "is_app_user": False,
            "is_restricted": self.is_restricted,
            "is_ultra_restricted": self.is_ultra_restricted,
            "is_stranger": self.is_stranger,
            "is_email_confirmed": self.is_email_confirmed,
        }


@dataclass(slots=True)
class Channel:
    """A conversation. `members` None means everybody of the workspace, the bot included.

    `posting` is None or one of read_only_channel, thread_only_channel, non_threadable_channel, thread_locked:
    the rest of Slack's `restricted_action_...`. `user` is the other side of a direct message.
    """

    id: str
    name: str
    members: set[str] | None = None
    is_private: bool = False
    is_archived: bool = False
    is_im: bool = False
    is_ext_shared: bool = False
    posting: str | None = None
    user: str | None = None

    @property
    def kind(self) -> str:
        """`channel_type` of message events."""
        if self.is_im:
            return "im"
        return "group" if self.is_private else "channel"

    def has(self, user: str) -> bool:
        return self.members is None or user in self.members

    def as_conversation(self, bot: str) -> Json:
        """The `channel` object of `conversations.info`."""
        common: Json = {"id": self.id, "is_archived": self.is_archived, "is_im": self.is_im, "created": 1_780_000_000}
        if self.is_im:
            return common | {"user": self.user, "is_open": True}
        return common | {
            "name": self.name,
            "name_normalized": self.name,
            "is_channel": not self.is_private,
            "is_group": self.is_private,
            "is_mpim": False,
            "is_private": self.is_private,
            "is_general": False,
            "is_member": self.has(bot),
            "is_shared": self.is_ext_shared,
            "is_ext_shared": self.is_ext_shared,
            "is_org_shared": False,
            "is_pending_ext_shared": False,
            "topic": {"value": "", "creator": "", "last_set": 0},
            "purpose": {"value": "", "creator": "", "last_set": 0},
        }


def default_people() -> list[Person]:
    """The cast of the demo: who is on call, an engineer, somebody new, a guest, and a monitoring bot."""
    return [
        Person("U0ONCALL", "olive", "Olive Tanaka", "on_call", "On call for checkout"),
        Person("U0ENGINEER", "emil", "Emil Brandt", "engineer", "Payments engineer"),
        Person("U0SECOND", "sam", "Sam Rivera", "engineer", "New to the thread"),
        Person("U0GUEST", "gus", "Gus Marten", "guest", "Contractor, a guest here", is_restricted=True),
        Person("U0MONITOR", "alertmanager", "Alertmanager", "bot", "Posts alerts", bot_id="B0MONITOR"),
    ]


def default_channels() -> list[Channel]:
    return [Channel("C0INCIDENT", "incident-checkout"), Channel("C0RANDOM", "random")]


@dataclass(slots=True)
class Workspace:
    """One workspace with our app installed.

    `native_stop` says whether agents.sessions is available, `stop_subscribed` whether the app gets its event.
    `commands` are the app's slash commands; `usergroups` maps ids to members. `scopes` are the bot token's,
    `app_scopes` the app token's.
    """

    team_id: str = "T0LOCAL"
    team_name: str = "Local Slack"
    domain: str = "local"
    enterprise_id: str | None = None
    bot_user_id: str = "U0PILOT"
    bot_name: str = "pilot"
    bot_real_name: str = "Pilothouse"
    bot_id: str = "B0PILOT"
    app_id: str = "A0PILOT"
    people: list[Person] = field(default_factory=default_people)
    channels: list[Channel] = field(default_factory=default_channels)
    usergroups: dict[str, list[str]] = field(default_factory=lambda: {"S0ONCALL": ["U0ONCALL"]})
    native_stop: bool = True
    stop_subscribed: bool = True
    commands: tuple[str, ...] = ()
    scopes: frozenset[str] = ALL_SCOPES
    app_scopes: frozenset[str] = frozenset({"connections:write"})
    token_error: str | None = None
    bot_token: str = field(default="xoxb-local", repr=False)
    app_token: str = field(default="xapp-local", repr=False)
    signing_secret: str = field(default="local-signing-secret", repr=False)

    @property
    def bot(self) -> Person:
        return Person(self.bot_user_id, self.bot_name, self.bot_real_name, "bot", "The bot", bot_id=self.bot_id)

    def everyone(self) -> Iterator[Person]:
        """All accounts, ours last."""
        yield from self.people
        yield self.bot

    def person(self, user: str) -> Person | None:
        return next((person for person in self.everyone() if person.id == user), None)

    def channel(self, wanted: str) -> Channel | None:
        """By id, or by name with a leading `#`. A direct message with a known person always exists."""
        name = wanted.removeprefix("#")
        for channel in self.channels:
            if channel.id == wanted or (channel.name == name and not channel.is_im):
                return channel
        if wanted.startswith("D") and self.person("U" + wanted[1:]):
            return self.direct_message("U" + wanted[1:])
        return None

    def direct_message(self, user: str) -> Channel:
        """The conversation of `user` with our bot: its id is the user's with a D in front."""
        wanted = "D" + user[1:]
        for channel in self.channels:
            if channel.id == wanted or (channel.is_im and channel.user == user):
                return channel
        opened = Channel(wanted, f"dm-{user}", {user, self.bot_user_id}, is_im=True, user=user)
        self.channels.append(opened)
        return opened
