"""What the configuration says about each channel: rights, who holds them, limits, policy rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from core.approvals import ApprovalPolicy
from core.limits import Limits
from core.messages import NO_RIGHTS, Rights, Who
from core.steering import DEFAULT_RIGHTS, Override
from storage.ledger.signs import ChannelPolicy


@dataclass(frozen=True, slots=True)
class Channel:
    """One channel's part of the configuration. People are user ids, or ids of user groups.

    `preapproved` are the names of tools that change something and run without asking.
    """

    on_call: frozenset[str] = frozenset()
    approvers: frozenset[str] = frozenset()
    external: frozenset[str] = frozenset()
    preapproved: frozenset[str] = frozenset()
    overrides: Sequence[Override] = ()
    limits: Limits = field(default_factory=Limits)


class Channels:
    """Looks a channel up; `members` are the people of the user groups that are named, by group id."""

    def __init__(
        self,
        default: Channel,
        named: dict[str, Channel],
        *,
        alert_bots: frozenset[str] = frozenset(),
    ) -> None:
        self._default = default
        self._named = named
        self._alert_bots = alert_bots
        self.members: dict[str, frozenset[str]] = {}

    def of(self, channel: str) -> Channel:
        """The configuration of one channel."""
        return self._named.get(channel, self._default)

    def groups(self) -> frozenset[str]:
        """Every user group that the configuration names."""
        found = [self._default, *self._named.values()]
        return frozenset(name for one in found for name in one.on_call | one.approvers if name.startswith("S"))

    def limits(self, channel: str) -> Limits:
        """The limits of one channel."""
        return self.of(channel).limits

    def approvers(self, channel: str) -> frozenset[str]:
        """Who may approve in a channel: user ids and ids of user groups."""
        return self.of(channel).approvers

    def approvals(self, channel: str) -> ApprovalPolicy:
        """How changes are decided about in a channel."""
        here = self.of(channel)
        return ApprovalPolicy(bool(here.approvers), here.preapproved, here.limits.approval_s)

    def rights(self, channel: str, user: str, who: Who) -> tuple[Rights, bool]:
        """What somebody may do here, and whether they are on call here."""
        here = self.of(channel)
        if who is Who.BOT:
            return (Rights(ask=True), False) if user in self._alert_bots else (NO_RIGHTS, False)
        if who is Who.EXTERNAL and user not in here.external:
            return NO_RIGHTS, False
        base = DEFAULT_RIGHTS[Who.MEMBER if who is Who.EXTERNAL else who]
        on_call = self._holds(here.on_call, user) and who is not Who.GUEST
        approve = who is not Who.GUEST and (self._holds(here.approvers, user))
        return Rights(base.ask, base.steer, base.stop, approve), on_call

    def policy(self, channel: str) -> ChannelPolicy:
        """What the mailbox needs to know about a channel."""
        here = self.of(channel)
        members = "members of this workspace (not guests)"
        return ChannelPolicy(
            overrides=here.overrides,
            who_may={
                "ask": members,
                "steer": members,
                "stop": members,
                "approve": _named(here.approvers),
            },
            quiet_s=here.limits.quiet_s,
            quiet_max_s=here.limits.quiet_max_s,
        )

    def _holds(self, names: frozenset[str], user: str) -> bool:
        return user in names or any(user in self.members.get(name, frozenset()) for name in names)


def _named(people: frozenset[str]) -> str:
    if not people:
        return ""
    return ", ".join(f"<!subteam^{name}>" if name.startswith("S") else f"@{{{name}}}" for name in sorted(people))
