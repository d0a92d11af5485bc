"""Who is talking: our own posts, other bots, people of other companies, guests and members.

An event says some of it (`author_of_event`), `users.info` and the configuration say the rest (`Person`). What is not
known for certain is taken as the lesser right.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from core.messages import NO_RIGHTS, Arrival, Rights, Source, UserId, Who

Payload = Mapping[str, Any]

SLACKS_OWN = frozenset({"USLACK", "USLACKBOT"})


@dataclass(frozen=True, slots=True)
class Me:
    """What we are in this workspace, and its address: `auth.test`, and the app id of the manifest."""

    user_id: str
    bot_id: str = ""
    app_id: str = ""
    team_id: str = ""
    enterprise_id: str = ""
    url: str = ""


@dataclass(frozen=True, slots=True)
class Person:
    """One account as `users.info` describes it, with the rights that the configuration gives it in the channel."""

    user: UserId
    team_id: str = ""
    enterprise_id: str = ""
    is_bot: bool = False
    is_stranger: bool = False
    is_guest: bool = False
    is_active: bool = True
    rights: Rights = NO_RIGHTS

    @classmethod
    def from_users_info(cls, user: Payload, rights: Rights = NO_RIGHTS) -> Person:
        """The `user` object of `users.info`."""
        grid = user.get("enterprise_user")
        return cls(
            UserId(text_of(user, "id")),
            text_of(user, "team_id"),
            text_of(grid, "enterprise_id") if isinstance(grid, Mapping) else "",
            is_bot=bool(user.get("is_bot") or user.get("is_workflow_bot")),
            is_stranger=bool(user.get("is_stranger")),
            is_guest=bool(user.get("is_restricted") or user.get("is_ultra_restricted")),
            is_active=not user.get("deleted") and user.get("is_email_confirmed") is not False,
            rights=rights,
        )


def who_is(person: Person, seen: Who, me: Me) -> Who:
    """Who `person` is, where the event itself showed `seen`. Participants are found later, by the ledger."""
    if seen is Who.BOT or person.is_bot:
        return Who.BOT
    if seen is Who.EXTERNAL or person.is_stranger or not _at_home(person, me):
        return Who.EXTERNAL
    if person.is_guest or not person.is_active:
        return Who.GUEST
    return Who.MEMBER


def _at_home(person: Person, me: Me) -> bool:
    if not person.team_id or not me.team_id or person.team_id == me.team_id:
        return True
    return bool(me.enterprise_id) and me.enterprise_id in (person.enterprise_id, person.team_id)


def with_person(arrival: Arrival, person: Person, me: Me) -> Arrival:
    """`arrival` with who wrote it and what they may. Somebody who has left may nothing."""
    if arrival.source in (Source.ALERT, Source.DELETE):
        return arrival
    rights = person.rights if person.is_active else NO_RIGHTS
    return replace(arrival, who=who_is(person, arrival.who, me), rights=rights)


# -- what events say -------------------------------------------------------------------------------------------------


def text_of(value: Payload, key: str) -> str:
    """A field of Slack's as text, "" when it is missing or something else."""
    found = value.get(key)
    return found if isinstance(found, str) else ""


def is_own(message: Payload, me: Me) -> bool:
    """Whether we wrote it, by user id, bot id and app id, in this order of availability."""
    user, bot = text_of(message, "user"), text_of(message, "bot_id")
    if user:
        return user == me.user_id or (bool(bot) and bot == me.bot_id)
    if bot and me.bot_id:
        return bot == me.bot_id
    return bool(me.app_id) and app_of(message) == me.app_id


def app_of(message: Payload) -> str:
    """The app that posted a message, if it says so."""
    profile = message.get("bot_profile")
    return text_of(message, "app_id") or (text_of(profile, "app_id") if isinstance(profile, Mapping) else "")


def is_bot(message: Payload) -> bool:
    """Whether a program wrote it."""
    return bool(message.get("bot_id") or message.get("bot_profile")) or message.get("subtype") == "bot_message"


def author_of_event(message: Payload) -> UserId:
    """Who wrote a message: the user, or the bot's own id."""
    return UserId(text_of(message, "user") or text_of(message, "bot_id"))


def team_of(payload: Payload, me: Me) -> str:
    """The workspace whose installation of ours this event is for; of an org-wide one the event's workspace."""
    authorizations = payload.get("authorizations")
    first = authorizations[0] if isinstance(authorizations, list) and authorizations else {}
    ours = first if isinstance(first, Mapping) else {}
    places = [
        text_of(ours, "team_id"),
        text_of(payload, "team_id"),
        text_of(payload, "context_team_id"),
        text_of(ours, "enterprise_id"),
        text_of(payload, "enterprise_id"),
        me.team_id,
    ]
    return next((place for place in places if place), "")


def seen_who(payload: Payload, message: Payload, me: Me) -> Who:
    """As much of who wrote `message` as the event shows."""
    if is_bot(message):
        return Who.BOT
    author_team = next((team for key in ("user_team", "source_team", "team") if (team := text_of(message, key))), "")
    return Who.EXTERNAL if author_team and _is_foreign(payload, author_team, me) else Who.MEMBER


def _is_foreign(payload: Payload, author_team: str, me: Me) -> bool:
    if author_team in {me.team_id, me.enterprise_id, team_of(payload, me)}:
        return False
    enterprise = me.enterprise_id or text_of(payload, "enterprise_id")
    same_org = bool(enterprise) and payload.get("is_ext_shared_channel") is False
    return not (same_org or author_team == enterprise)
