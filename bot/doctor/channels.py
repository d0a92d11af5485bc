"""Do the people and channels of the configuration exist, and may anybody approve what could be proposed.

Who approves is only whom the configuration names, so a wrong id there is silent until somebody needs it at night.
All of this is a warning: the bot runs without.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from slack_sdk.web.async_client import AsyncWebClient

from bot.doctor.finding import Finding, ok, warning
from bot.settings import DEFAULT_CHANNEL, ChannelPart
from bot.slack.connection import Slack, who_we_are
from bot.slack.identity import Me, Person, who_is
from bot.slack.verdict import NOT_YET, Verdict, read, read_failure
from core.errors import BadInput
from core.messages import Who
from core.ports import Tier, Tool, ToolSpec

AT_ONCE = 4
SHOWN = 5
_PERSON = re.compile(r"[UW][A-Z0-9]{2,}")
_GROUP = re.compile(r"S[A-Z0-9]{2,}")
_CHANNEL = re.compile(r"[CGD][A-Z0-9]{2,}")
_WRITES = (Tier.WRITE, Tier.EXTERNAL)


async def look(
    client: AsyncWebClient, slack: Slack, channels: Mapping[str, ChannelPart], tools: Sequence[Tool] | Exception
) -> list[Finding]:
    """Everything about people and channels; what only Slack knows is left out where it does not know us."""
    specs = None if isinstance(tools, Exception) else [tool.spec for tool in tools]
    found = [*(who_approves(channels, specs) if specs is not None else ()), *written_wrongly(channels)]
    try:
        me = await who_we_are(client, slack)
    except BadInput:
        return found
    return found + await Directory(client, me).look(channels)


def who_approves(channels: Mapping[str, ChannelPart], tools: Iterable[ToolSpec]) -> list[Finding]:
    """Whether somebody may approve wherever something could be proposed."""
    writes = frozenset(tool.name for tool in tools if tool.tier in _WRITES)
    found = [_nobody(channels, writes)]
    unknown = sorted(name for part in channels.values() for name in part.preapproved if name not in writes)
    if unknown:
        says = f"`preapproved` names {_some(unknown)}: no configured tool of that name changes anything. Correct it."
        found.append(warning("preapproved", says))
    return found


def _nobody(channels: Mapping[str, ChannelPart], writes: frozenset[str]) -> Finding:
    parts = {DEFAULT_CHANNEL: ChannelPart(), **channels}
    asked = {name: writes - part.preapproved for name, part in parts.items()}
    without = sorted(name for name, part in parts.items() if asked[name] and not part.approvers)
    if without:
        can = sorted(frozenset().union(*(asked[name] for name in without)))
        where = _some(["every channel without a table" if name == DEFAULT_CHANNEL else name for name in without])
        tables = _some([f"[channels.{name}]" for name in without])
        says = f"Nobody may approve {_some(can)} in {where}: name `approvers` (user or group ids) under {tables}."
        return warning("approvers", says)
    if any(asked.values()):
        return ok("approvers", f"Somebody may approve {_some(sorted(writes))} in every channel.")
    return ok("approvers", "No configured tool needs an approval.")


def written_wrongly(channels: Mapping[str, ChannelPart]) -> list[Finding]:
    """What can't be an id of Slack's."""
    people = sorted(name for name in _people(channels) if not _PERSON.fullmatch(name) and not _GROUP.fullmatch(name))
    places = sorted(name for name in channels if name != DEFAULT_CHANNEL and not _CHANNEL.fullmatch(name))
    found = []
    if people:
        says = f"No ids of Slack's: {_some(people)}. People are named as in U0123ABCD, user groups as in S0123ABCD."
        found.append(warning("people", says))
    if places:
        says = f"No channel ids, so their tables never apply: {_some(places)}. Channels are named as in C0123ABCD."
        found.append(warning("channels", says))
    return found


Ask = Callable[[], Awaitable[str | None]]
"""What is wrong with one person, group or channel; None when nothing is."""


class Directory:
    """Looks up in Slack what the configuration names. `me`: who we are there."""

    def __init__(self, client: AsyncWebClient, me: Me) -> None:
        self._client = client
        self._me = me
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def look(self, channels: Mapping[str, ChannelPart]) -> list[Finding]:
        """What is wrong with people and channels, or that nothing is."""
        approvers = frozenset(name for part in channels.values() for name in part.approvers)
        named = sorted(_people(channels))
        places = sorted(name for name in channels if _CHANNEL.fullmatch(name))
        wanted: list[tuple[str, Ask]] = [
            *(
                ("people", partial(self._person, name, name in approvers))
                for name in named
                if _PERSON.fullmatch(name)
            ),
            *(("people", partial(self._group, name)) for name in named if _GROUP.fullmatch(name)),
            *(("channels", partial(self._channel, name)) for name in places),
        ]
        told = await asyncio.gather(*(self._paced(ask) for _, ask in wanted))
        found = []
        for check in ("people", "channels"):
            here = [says for (kind, _), says in zip(wanted, told, strict=True) if kind == check]
            wrong = [says for says in here if says is not None]
            if wrong:
                found.append(warning(check, f"{_some(wrong, '; ')}."))
            elif here:
                found.append(ok(check, f"What the configuration names is there ({len(here)} looked up)."))
        return found

    async def _paced(self, ask: Ask) -> str | None:
        async with self._slots:
            return await ask()

    async def _person(self, user: str, approves: bool) -> str | None:
        verdict = await _asked(self._client.users_info(user=user))
        if not verdict.good:
            return _unseen(user, verdict)
        person = Person.from_users_info((verdict.data or {}).get("user") or {"id": user})
        who = who_is(person, Who.MEMBER, self._me)
        if not person.is_active:
            return f"{user} has no active account: take it out of the configuration"
        if who is Who.MEMBER or not approves:
            return None
        return f"{user} is {_KINDS[who]} and can't approve: name a member of the workspace"

    async def _group(self, group: str) -> str | None:
        verdict = await _asked(self._client.usergroups_users_list(usergroup=group))
        if not verdict.good:
            return _unseen(group, verdict)
        return None if (verdict.data or {}).get("users") else f"the user group {group} has no members"

    async def _channel(self, channel: str) -> str | None:
        verdict = await _asked(self._client.conversations_info(channel=channel))
        if not verdict.good:
            return _unseen(channel, verdict)
        told = (verdict.data or {}).get("channel") or {}
        if told.get("is_archived"):
            return f"{channel} is archived: take its table out of the configuration"
        if told.get("is_im") or told.get("is_member"):
            return None
        return f"the bot is not in {channel}: write `/invite @Pilothouse` there"


_KINDS = {Who.BOT: "a bot", Who.EXTERNAL: "of another company", Who.GUEST: "a guest"}


async def _asked(call: Awaitable[Any]) -> Verdict:
    try:
        response = await call
    except Exception as error:  # noqa: BLE001 - read_failure raises what is none of Slack's
        return read_failure(error)
    return read(response.data if isinstance(response.data, dict) else {})


def _unseen(name: str, verdict: Verdict) -> str:
    if verdict.error == "missing_scope":
        return f"{name} can't be looked up, because the bot token lacks a scope"
    if verdict.meaning in NOT_YET:
        return f"Slack would not say now whether {name} is there ({verdict.error}): try again"
    invite = "invite the bot there, or " if _CHANNEL.fullmatch(name) else ""
    return f"Slack does not show us {name} ({verdict.error}): {invite}correct the id"


def _people(channels: Mapping[str, ChannelPart]) -> frozenset[str]:
    return frozenset(name for part in channels.values() for name in part.on_call | part.approvers)


def _some(names: Sequence[str], between: str = ", ") -> str:
    """The first few, and how many more."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return between.join(names[:SHOWN]) + more
