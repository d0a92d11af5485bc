"""Who somebody is and what they may do here: `users.info`, kept for a while, and the configuration.

What can't be looked up is not guessed: `Unknown` is raised, the event is not acknowledged, and Slack's next delivery
is the second chance.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import structlog
from slack_sdk.web.async_client import AsyncWebClient

from bot.channels import Channels
from bot.slack.identity import Me, Person, who_is
from bot.slack.verdict import Meaning, read_failure
from core.errors import PilothouseError
from core.messages import NO_RIGHTS, Arrival, Rights, UserId, Who
from core.steering_table import DECISIONS

log = structlog.get_logger(__name__)

KEPT_S = 600.0
MOST_KEPT = 5000

RightsOf = Callable[[str, str, Who], tuple[Rights, bool]]
"""(channel, user, who) -> what they may, and whether they are on call there."""


class Unknown(PilothouseError):
    """Slack would not say who this is."""


class People:
    """Looks people up. `now` is monotonic seconds."""

    def __init__(self, client: AsyncWebClient, me: Me, rights: RightsOf, now: Callable[[], float]) -> None:
        self._client = client
        self._me = me
        self._rights = rights
        self._now = now
        self._known: dict[str, tuple[float, Person]] = {}

    async def identify(self, arrival: Arrival) -> Arrival:
        """`arrival` with who sent it and what they may; being on call makes a participant."""
        if arrival.who is Who.BOT:
            rights, _ = self._rights(arrival.channel, arrival.author, Who.BOT)
            return replace(arrival, rights=rights)
        try:
            person = await self.person(arrival.author, fresh=arrival.marker in DECISIONS)
        except Unknown:
            if arrival.level is None or not self._rights(arrival.channel, arrival.author, Who.MEMBER)[1]:
                raise
            person = Person(arrival.author)
        who = who_is(person, arrival.who, self._me)
        if not person.is_active:
            return replace(arrival, who=Who.GUEST, rights=NO_RIGHTS)
        rights, on_call = self._rights(arrival.channel, arrival.author, who)
        return replace(arrival, who=Who.PARTICIPANT if on_call and who is Who.MEMBER else who, rights=rights)

    async def person(self, user: UserId, *, fresh: bool = False) -> Person:
        """The account of `user`; `fresh` asks Slack again: who decides about a change must be there now."""
        kept = self._known.get(user)
        if kept is not None and not fresh and self._now() - kept[0] < KEPT_S:
            return kept[1]
        try:
            response = await self._client.users_info(user=user)
        except Exception as error:
            verdict = read_failure(error)
            gone = verdict.meaning in (Meaning.ABSENT, Meaning.REFUSED)
            if kept is not None and not (fresh and (gone or self._now() - kept[0] >= KEPT_S)):
                return kept[1]
            if gone:
                return Person(user, is_active=False)
            raise Unknown(f"users.info of {user}: {verdict.error}") from error
        data = response.data if isinstance(response.data, dict) else {}
        person = Person.from_users_info(data.get("user") or {"id": user})
        if len(self._known) >= MOST_KEPT:
            self._known.clear()
        self._known[user] = (self._now(), person)
        return person

    def forget(self, user: str) -> None:
        """Their account changed."""
        self._known.pop(user, None)


class Groups:
    """The members of the user groups that the configuration names, read at the start and again every while."""

    def __init__(self, client: AsyncWebClient, channels: Channels) -> None:
        self._client = client
        self._channels = channels

    async def refresh(self) -> None:
        """Read them all; one that can't be read keeps the members that it had."""
        for group in sorted(self._channels.groups()):
            try:
                response = await self._client.usergroups_users_list(usergroup=group)
            except Exception as error:  # noqa: BLE001 - read_failure raises what is none of Slack's
                log.warning("group_not_read", group=group, error=read_failure(error).error)
                continue
            data = response.data if isinstance(response.data, dict) else {}
            self._channels.members[group] = frozenset(str(user) for user in data.get("users") or ())

    async def keep_fresh(self) -> None:
        """Read them again every while, for ever."""
        while True:
            await asyncio.sleep(KEPT_S)
            await self.refresh()
