"""Alertmanager: which alerts there are, and silences, made and ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import quote, urlencode

import aiohttp

from bot.tools.alertmanager_text import (
    ABOUT,
    CREATED,
    FOUND,
    SILENCE,
    Alert,
    Silence,
    alerts_text,
    matchers_text,
    would_hide_text,
    would_show_text,
)
from bot.tools.changing import WriteTool, send
from bot.tools.matchers import Matcher, given_matchers, matchers_argument, require_a_choice
from bot.tools.reading import HEALTH_S, FarEnd, Parameters, decoded, refused, shaped
from bot.tools.shaping import Arguments, ReadTool, moment, object_schema, one_line, text_argument
from core.errors import OutcomeUnknown, ToolError
from core.ports import Tier, Tool, ToolOutput, ToolSpec

NAME = "Alertmanager"
US = "Pilothouse"
MOST_MINUTES = 1_440
WRITE_S = 15.0
STATES = ("active", "silenced", "inhibited")
SILENCE_ID = r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$(?!\n)"

ALERTS = ToolSpec(
    "alertmanager_alerts",
    "The alerts that Alertmanager holds now, newest first, with their labels and summary, and what silences or "
    "inhibits them.",
    object_schema(
        [],
        matchers=matchers_argument("Only alerts whose labels fit all of these", 0),
        states={
            "type": "array",
            "items": {"type": "string", "enum": list(STATES)},
            "minItems": 1,
            "uniqueItems": True,
            "default": ["active"],
            "description": "Active alerts notify people, silenced and inhibited ones don't; active if left out",
        },
        receiver=text_argument("Only alerts for receivers whose name fits this regular expression", 200),
    ),
)
SET_SILENCE = ToolSpec(
    "alertmanager_silence",
    "Silence the alerts whose labels fit all matchers, from now on for some minutes: they go on, but notify nobody. "
    "At least one matcher must name what is meant.",
    object_schema(
        ["matchers", "minutes", "comment"],
        matchers=matchers_argument("Which alerts, as narrow as possible", 1),
        minutes={
            "type": "integer",
            "minimum": 1,
            "maximum": MOST_MINUTES,
            "description": "How long from now, in minutes",
        },
        comment={**text_argument("Why, for the people who find the silence", 500), "pattern": r"\S"},
    ),
    tier=Tier.WRITE,
    timeout_s=WRITE_S,
)
EXPIRE_SILENCE = ToolSpec(
    "alertmanager_expire_silence",
    "End a silence now; the alerts that it hides notify people again.",
    object_schema(
        ["silence_id"],
        silence_id={"type": "string", "pattern": SILENCE_ID, "maxLength": 36, "description": "Id of the silence"},
    ),
    tier=Tier.WRITE,
    timeout_s=WRITE_S,
)


def tools(
    base_url: str,
    session: aiohttp.ClientSession,
    now: Callable[[], float],
    link_base: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> list[Tool]:
    """The tools for one Alertmanager. `base_url` is where its `/api/v2` begins; `link_base` is its address for
    people; `headers` go with each request (authorisation, tenant); `now` gives seconds since the epoch.
    """
    far_end = FarEnd(NAME, base_url.rstrip("/"), session, dict(headers or {}))
    desk = Desk(far_end, now, link_base.rstrip("/") if link_base else None)
    return [
        ReadTool(ALERTS, desk.alerts, desk.check),
        WriteTool(SET_SILENCE, desk.silence, desk.check, desk.show_silence),
        WriteTool(EXPIRE_SILENCE, desk.expire, desk.check, desk.show_expire),
    ]


@dataclass(frozen=True, slots=True)
class Desk:
    """What the tools do. Every method raises only ToolError, those that change something OutcomeUnknown too."""

    far_end: FarEnd
    now: Callable[[], float]
    link_base: str | None

    async def check(self) -> object:
        return shaped(NAME, ABOUT, await self.far_end.ask("/api/v2/status", {}, HEALTH_S))

    async def alerts(self, arguments: Arguments) -> ToolOutput:
        matchers, states = given_matchers(arguments), frozenset(arguments["states"])
        found = await self._alerts(matchers, states, arguments.get("receiver"))
        links = self._alerts_link(matchers, states)
        if not found:
            rest = " and ".join(name for name in STATES if name not in states)
            return ToolOutput(
                f"No alert is {' or '.join(name for name in STATES if name in states)}"
                f"{' and fits' if matchers or 'receiver' in arguments else ''}."
                f"{f' {rest.capitalize()} ones were not asked for.' if rest else ''}",
                links,
            )
        return ToolOutput(alerts_text(found, self.now()), links)

    async def show_silence(self, arguments: Arguments) -> str:
        matchers, minutes = given_matchers(arguments), int(arguments["minutes"])
        require_a_choice(matchers)
        fitting = await self._alerts(matchers)
        try:
            everything = await self._alerts([])
        except ToolError:
            everything = None
        return (
            f"New silence in Alertmanager for {minutes} min from when it is set (now: until "
            f"{moment(self.now() + minutes * 60)}), for alerts with{matchers_text(matchers)}\n"
            f"Comment: {one_line(arguments['comment'], 500)}\nCreated by: {US}\n"
            f"{would_hide_text(fitting, everything)}"
        )

    async def silence(self, arguments: Arguments) -> ToolOutput:
        matchers, minutes = given_matchers(arguments), int(arguments["minutes"])
        require_a_choice(matchers)
        begin = self.now()
        end = begin + minutes * 60
        asked = {
            "matchers": [
                {"name": one.name, "value": one.value, "isRegex": one.is_regex, "isEqual": one.is_equal}
                for one in matchers
            ],
            "startsAt": _stamp(begin),
            "endsAt": _stamp(end),
            "createdBy": US,
            "comment": arguments["comment"],
        }
        answer = await send(self.far_end, "POST", "/api/v2/silences", asked)
        try:
            silence_id = shaped(NAME, CREATED, decoded(NAME, answer)).silenceID
        except ToolError as error:
            raise OutcomeUnknown(f"{error} The silence may be set or not: look at the silences first.") from error
        shown = ", ".join(str(one) for one in matchers)
        return ToolOutput(
            f"Silence {silence_id} is set until {moment(end)} ({minutes} min) for alerts with {shown}. It ends by "
            "itself; alertmanager_expire_silence ends it earlier.",
            self._silence_link(silence_id),
        )

    async def show_expire(self, arguments: Arguments) -> str:
        silence_id = arguments["silence_id"].lower()
        silence = await self._silence(silence_id)
        matchers = [one.matcher() for one in silence.matchers]
        return (
            f"End silence {silence_id} in Alertmanager now instead of at {moment(silence.endsAt.timestamp())}. It "
            f"hides alerts with{matchers_text(matchers)}\nComment: {one_line(silence.comment, 500)}\n"
            f"Created by: {one_line(silence.createdBy, 100)}\n"
            f"{would_show_text(silence_id, await self._alerts(matchers))}"
        )

    async def expire(self, arguments: Arguments) -> ToolOutput:
        silence_id = arguments["silence_id"].lower()
        await self._silence(silence_id)
        await send(self.far_end, "DELETE", f"/api/v2/silence/{silence_id}")
        return ToolOutput(
            f"Silence {silence_id} has ended: what it hid notifies again.", self._silence_link(silence_id)
        )

    async def _silence(self, silence_id: str) -> Silence:
        """A silence that has not ended. Raises ToolError."""
        answer = await self.far_end.get(f"/api/v2/silence/{silence_id}", {})
        if answer.status == 404:
            raise ToolError(f"Alertmanager has no silence {silence_id}. The ids are in the state of silenced alerts.")
        if answer.status != 200:
            raise refused(NAME, answer)
        silence = shaped(NAME, SILENCE, decoded(NAME, answer))
        if silence.status.state == "expired":
            raise ToolError(f"Silence {silence_id} ended already, at {moment(silence.endsAt.timestamp())}.")
        return silence

    async def _alerts(
        self, matchers: Sequence[Matcher], states: frozenset[str] = frozenset(STATES), receiver: str | None = None
    ) -> list[Alert]:
        """The alerts in one of these states; an alert can be silenced and inhibited at the same time."""
        active, held = _flag("active" in states), _flag(bool(states - {"active"}))
        asked: Parameters = {
            "filter": [str(one) for one in matchers],
            "receiver": [receiver] if receiver else [],
            "active": active,
            "unprocessed": active,
            "silenced": held,
            "inhibited": held,
        }
        found = shaped(NAME, FOUND, await self.far_end.ask("/api/v2/alerts", asked))
        return [alert for alert in found if alert.states & states]

    def _alerts_link(self, matchers: Sequence[Matcher], states: frozenset[str]) -> list[tuple[str, str]]:
        if self.link_base is None:
            return []
        chosen = f"{{{','.join(str(one) for one in matchers)}}}"
        shown = {name: _flag(name in states) for name in STATES} | ({"filter": chosen} if matchers else {})
        title = f"{NAME}: {one_line(chosen, 80)}" if matchers else f"{NAME}: alerts"
        return [(title, f"{self.link_base}/#/alerts?{urlencode(shown, quote_via=quote)}")]

    def _silence_link(self, silence_id: str) -> list[tuple[str, str]]:
        if self.link_base is None:
            return []
        return [(f"{NAME}: silence {silence_id[:8]}", f"{self.link_base}/#/silences/{silence_id}")]


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _stamp(t: float) -> str:
    return datetime.fromtimestamp(t, UTC).isoformat(timespec="milliseconds")
