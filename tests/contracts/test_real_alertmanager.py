"""The Alertmanager tools against a real Alertmanager: what is silenced is really silent, and exactly that."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import pytest

from bot.tools import alertmanager
from core.errors import ToolError
from core.ports import ChangeTool, Tool
from tests.support.monitoring import Server, running_alertmanager
from tests.support.processes import free_port, until

LINK = "https://alertmanager.example.com"
NOBODY = "00000000-0000-4000-8000-000000000000"


@dataclass(slots=True)
class Desk:
    """The tools of one server, and what its own API says."""

    server: Server
    session: aiohttp.ClientSession
    tools: Mapping[str, Tool]

    async def fire(self, name: str, *, since: datetime | None = None, summary: str = "", **labels: str) -> None:
        alert: dict[str, Any] = {"labels": {"alertname": name, **labels}, "annotations": {"summary": summary}}
        if since is not None:
            alert["startsAt"] = since.isoformat()
        await self.post([alert])

    async def post(self, alerts: list[dict[str, Any]]) -> None:
        async with self.session.post(f"{self.server.url}/api/v2/alerts", json=alerts) as answer:
            assert answer.status == 200, await answer.text()

    async def got(self, path: str) -> Any:
        async with self.session.get(f"{self.server.url}/api/v2/{path}") as answer:
            assert answer.status == 200, await answer.text()
            return await answer.json()

    async def alerts(self, **arguments: Any) -> str:
        return (await self.tools["alertmanager_alerts"].run(arguments)).text

    async def silence(self, *matchers: Mapping[str, str], minutes: int = 60) -> str:
        """Set a silence; its id."""
        asked = {"matchers": list(matchers), "minutes": minutes, "comment": "being worked on"}
        await self.tools["alertmanager_silence"].run(asked)
        (newest, *_) = [one for one in await self.got("silences") if one["status"]["state"] == "active"]
        return str(newest["id"])

    async def preview(self, tool: str, **arguments: Any) -> str:
        found = self.tools[tool]
        assert isinstance(found, ChangeTool)
        return await found.preview(arguments)

    async def settle(self) -> None:
        """End all silences and alerts."""
        for one in await self.got("silences"):
            if one["status"]["state"] != "expired":
                async with self.session.delete(f"{self.server.url}/api/v2/silence/{one['id']}") as answer:
                    assert answer.status == 200
        ended = datetime.now(UTC) - timedelta(seconds=1)
        await self.post(
            [
                {
                    "labels": one["labels"],
                    "startsAt": min(datetime.fromisoformat(one["startsAt"]), ended).isoformat(),
                    "endsAt": ended.isoformat(),
                }
                for one in await self.got("alerts")
            ]
        )
        await until(lambda: self._is_quiet())

    async def _is_quiet(self) -> bool:
        return not await self.got("alerts")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_alertmanager() as running:
        yield running


@pytest.fixture
async def desk(server: Server) -> AsyncIterator[Desk]:
    async with aiohttp.ClientSession() as session:
        tools = alertmanager.tools(server.url, session, time.time, LINK)
        made = Desk(server, session, {tool.spec.name: tool for tool in tools})
        yield made
        await made.settle()


def equal(name: str, value: str) -> dict[str, str]:
    return {"name": name, "value": value}


async def test_alerts_are_a_table_with_the_newest_first(desk: Desk) -> None:
    now = datetime.now(UTC)
    await desk.fire("DiskFull", since=now - timedelta(hours=2), summary="99 % of /", host="web-1", team="shop")
    await desk.fire("ErrorRate", since=now - timedelta(minutes=5), summary="5xx", service="checkout", team="shop")
    lines = (await desk.alerts()).splitlines()
    assert lines[:3] == [
        "2 alerts",
        'the same for all: {team="shop"}',
        "alert | state | since | labels | summary",
    ]
    assert re.fullmatch(r"ErrorRate \| active \| 20\S+Z \(5m\d*s?\) \| service=checkout \| 5xx", lines[3])
    assert re.fullmatch(r"DiskFull \| active \| 20\S+Z \(2h\w*\) \| host=web-1 \| 99 % of /", lines[4])


async def test_no_alert_is_said_in_words(desk: Desk) -> None:
    assert await desk.alerts() == "No alert is active. Silenced and inhibited ones were not asked for."
    found = await desk.alerts(matchers=[equal("alertname", "X")], states=["active", "silenced", "inhibited"])
    assert found == "No alert is active or silenced or inhibited and fits."


ODD_VALUES = [
    "plain",
    'say "hi"',
    r"back\slash\n",
    "two\nlines",
    "tab\tstop",
    "a,b}{c",
    'x"}, {y="z',
    ".*",
    "名前 é",
    "a=~b",
    " blank ",
    "'quoted'",
    "100%&q=1#x+y",
]


@pytest.mark.parametrize("value", ODD_VALUES)
async def test_a_matcher_finds_and_silences_exactly_its_value_however_odd(desk: Desk, value: str) -> None:
    await desk.fire("Odd", what=value)
    await desk.fire("Odd", what="something else")
    asked = equal("what", value)
    assert (await desk.alerts(matchers=[asked])).startswith("1 alert\n")
    shown = await desk.preview("alertmanager_silence", matchers=[asked], minutes=5, comment="c")
    assert "It would hide 1 of the 2 alerts that notify now:" in shown
    await desk.silence(asked)
    (left,) = [one for one in await desk.got("alerts") if one["status"]["state"] == "active"]
    assert left["labels"]["what"] == "something else"


@pytest.mark.parametrize(
    ("matchers", "names"),
    [
        ([equal("alertname", "A")], {"A"}),
        ([{"name": "alertname", "operator": "!=", "value": "A"}], {"B", "C"}),
        ([{"name": "alertname", "operator": "=~", "value": "A|B"}], {"A", "B"}),
        ([{"name": "alertname", "operator": "!~", "value": "A|B"}], {"C"}),
        ([{"name": "host", "operator": "=~", "value": "web-.+"}, {"name": "zone", "value": ""}], {"A"}),
        ([{"name": "host", "operator": "=~", "value": "eb-"}], set()),
    ],
)
async def test_all_matchers_must_fit(desk: Desk, matchers: list[dict[str, str]], names: set[str]) -> None:
    await desk.fire("A", host="web-1")
    await desk.fire("B", host="web-2", zone="north")
    await desk.fire("C")
    text = await desk.alerts(matchers=matchers)
    assert {name for name in "ABC" if f"\n{name} | active" in text} == names


async def test_alerts_can_be_asked_for_by_receiver(desk: Desk) -> None:
    await desk.fire("Shops", team="shop")
    await desk.fire("Elses")
    assert "Elses" not in await desk.alerts(receiver="sh.p")
    assert (await desk.alerts(receiver="hop")).startswith("No alert is active and fits.")
    with pytest.raises(ToolError, match="Alertmanager answered 400: failed to parse receiver param"):
        await desk.alerts(receiver="(")


async def test_an_inhibited_alert_says_by_which_alert(desk: Desk) -> None:
    await desk.fire("Down", service="pay", severity="critical")
    await desk.fire("Slow", service="pay", severity="info")

    async def inhibited() -> bool:
        return "\nSlow | inhibited by Down | " in await desk.alerts(states=["active", "inhibited"])

    await until(inhibited)
    assert "Slow" not in await desk.alerts()
    assert (await desk.alerts(states=["inhibited"])).startswith("1 alert\n")
    silence_id = await desk.silence(equal("alertname", "Slow"))
    assert f"silenced by {silence_id} and inhibited by" in await desk.alerts(states=["silenced"])


async def test_a_silence_is_shown_before_set_then_hides_and_ends_early(desk: Desk) -> None:
    await desk.fire("ErrorRate", service="checkout", since=datetime(2026, 1, 31, 14, 8, tzinfo=UTC))
    await desk.fire("ErrorRate", service="catalog")
    asked = {
        "matchers": [equal("alertname", "ErrorRate"), {"name": "service", "operator": "=~", "value": "check.*"}],
        "minutes": 30,
        "comment": "rolling back\nnow",
    }
    lines = (await desk.preview("alertmanager_silence", **asked)).splitlines()
    assert lines[0].startswith("New silence in Alertmanager for 30 min from when it is set (now: until 20")
    assert lines[0].endswith("Z), for alerts with")
    assert lines[1:] == [
        '  alertname="ErrorRate"',
        '  service=~"check.*"',
        "Comment: rolling back now",
        "Created by: Pilothouse",
        "It would hide 1 of the 2 alerts that notify now:",
        '  ErrorRate{service="checkout"} since 2026-01-31T14:08:00Z',
    ]
    assert [one for one in await desk.got("silences") if one["status"]["state"] == "active"] == []

    found = await desk.tools["alertmanager_silence"].run(asked)
    (one,) = [one for one in await desk.got("silences") if one["status"]["state"] == "active"]
    assert (one["createdBy"], one["comment"]) == ("Pilothouse", "rolling back\nnow")
    assert one["matchers"] == [
        {"name": "alertname", "value": "ErrorRate", "isRegex": False, "isEqual": True},
        {"name": "service", "value": "check.*", "isRegex": True, "isEqual": True},
    ]
    length = datetime.fromisoformat(one["endsAt"]) - datetime.fromisoformat(one["startsAt"])
    assert timedelta(minutes=29, seconds=30) < length <= timedelta(minutes=30)
    assert found.text.startswith(f"Silence {one['id']} is set until 20")
    assert found.links == [(f"Alertmanager: silence {one['id'][:8]}", f"{LINK}/#/silences/{one['id']}")]

    assert "service=checkout" not in await desk.alerts()
    assert f"ErrorRate | silenced by {one['id']} | " in await desk.alerts(states=["silenced"])
    again = await desk.preview("alertmanager_silence", **asked)
    assert "It would hide none of the 1 alerts that notify now, only such that begin to fire later.\n1 more" in again

    shown = await desk.preview("alertmanager_expire_silence", silence_id=one["id"])
    assert shown.startswith(f"End silence {one['id']} in Alertmanager now instead of at 20")
    assert '\n  alertname="ErrorRate"\n  service=~"check.*"\nComment: rolling back now\n' in shown
    assert "\nCreated by: Pilothouse\n1 alert would notify again:\n  ErrorRate{service=" in shown
    ended = await desk.tools["alertmanager_expire_silence"].run({"silence_id": one["id"].upper()})
    assert ended.text == f"Silence {one['id']} has ended: what it hid notifies again."
    assert (await desk.alerts()).startswith("2 alerts")
    with pytest.raises(ToolError, match="ended already"):
        await desk.tools["alertmanager_expire_silence"].run({"silence_id": one["id"]})
    with pytest.raises(ToolError, match="ended already"):
        await desk.preview("alertmanager_expire_silence", silence_id=one["id"])


async def test_ending_one_of_two_silences_frees_nothing_and_says_so(desk: Desk) -> None:
    await desk.fire("Twice")
    first = await desk.silence(equal("alertname", "Twice"))
    await desk.silence({"name": "alertname", "operator": "=~", "value": "Twic.*"})
    shown = await desk.preview("alertmanager_expire_silence", silence_id=first)
    assert shown.endswith("0 alerts would notify again.\n1 more that it hides are held back by something else too.")


async def test_a_silence_that_hides_everything_that_fires_says_it_and_a_long_list_is_cut(desk: Desk) -> None:
    await desk.post([{"labels": {"alertname": "Many", "number": f"{number:02}"}} for number in range(25)])
    shown = await desk.preview("alertmanager_silence", matchers=[equal("alertname", "Many")], minutes=5, comment="c")
    assert "It would hide ALL 25 alerts that notify now:" in shown
    assert shown.count("\n  Many{number=") == 20 and shown.endswith("\n  and 5 more")


async def test_every_run_sets_one_silence(desk: Desk) -> None:
    before = len(await desk.got("silences"))
    await desk.silence(equal("alertname", "Later"))
    await desk.silence(equal("alertname", "Later"))
    assert len(await desk.got("silences")) == before + 2


async def test_a_silence_that_is_not_there_can_not_be_ended(desk: Desk) -> None:
    with pytest.raises(ToolError, match=f"Alertmanager has no silence {NOBODY}"):
        await desk.tools["alertmanager_expire_silence"].run({"silence_id": NOBODY})
    with pytest.raises(ToolError, match=f"Alertmanager has no silence {NOBODY}"):
        await desk.preview("alertmanager_expire_silence", silence_id=NOBODY)


async def test_what_alertmanager_refuses_the_model_reads_in_its_words(desk: Desk) -> None:
    beyond = {"name": "alertname", "operator": "=~", "value": "a{1001}"}
    with pytest.raises(ToolError, match=r"Alertmanager answered 400: .*invalid repeat count"):
        await desk.tools["alertmanager_silence"].run({"matchers": [beyond], "minutes": 5, "comment": "c"})


async def test_health_is_none_for_an_alertmanager_and_a_sentence_otherwise(server: Server) -> None:
    async with aiohttp.ClientSession() as session:
        for url, words in (
            (server.url, None),
            (f"{server.url}/nowhere", "Alertmanager answered 404"),
            (f"http://127.0.0.1:{free_port()}", "could not be reached"),
        ):
            for tool in alertmanager.tools(url, session, time.time):
                said = await tool.health()
                assert said is None if words is None else words in (said or "")
