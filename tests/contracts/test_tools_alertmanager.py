"""What a model may ask of Alertmanager, what it never gets, and what it reads in the incident of the playground."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.playground.world import World
from bot.tools import alertmanager
from bot.tools.alertmanager_text import Alert, Status, alerts_text, would_hide_text
from bot.tools.changing import WriteTool
from bot.tools.matchers import Matcher, require_a_choice
from core.errors import OutcomeUnknown, ToolError
from core.gateway import CallResult, CallStatus, Gateway
from core.limits import Limits
from core.ports import ChangeTool, Tier, Tool
from tests.core.doubles import call

FIXED = datetime(2026, 3, 14, 8, 30, tzinfo=UTC).timestamp()
LINK = "https://alertmanager.example.com/"
CHECKOUT = {"name": "alertname", "value": "CheckoutErrorRate"}
SILENCE = {"matchers": [CHECKOUT], "minutes": 60, "comment": "rolling back"}
NAMED = [
    Matcher("alertname", "CheckoutErrorRate"),
    Matcher("alertname", "Checkout.*", is_regex=True),
    Matcher("host", "web-[12]", is_regex=True),
    Matcher("host", "(?i)WEB-.+", is_regex=True),
    Matcher("instance", r".*\.shop\.example:9100", is_regex=True),
    Matcher("alertname", "Kube(Pod|Node).+|Disk.*", is_regex=True),
    Matcher("status", "5..", is_regex=True),
]
NOBODY_NAMED = [
    *(
        Matcher("alertname", text, is_regex=True)
        for text in (".*", ".+", "", ".*|x", "x|.*", ".?", "()", "x*", "(?s).*")
    ),
    *(
        Matcher("alertname", text, is_regex=True)
        for text in (r"\w+", r"[\s\S]+", "[A-Z].*", "[a-z0-9-]+", ".{2,}", ".*.")
    ),
    *(
        Matcher("alertname", text, is_regex=True)
        for text in ("[^x].*", "(?i)[a-z].*", ".*[aeiou].*", r"\S+", r"\pL.*")
    ),
    *(
        Matcher("host", text, is_regex=True)
        for text in (r"\d+", "[a-z]+-[0-9]+", "(a|[^a]).*", "^.*$", "A?.+", ".+:.+|.+")
    ),
    Matcher("alertname", "X", is_equal=False),
    Matcher("alertname", "Checkout.*", is_regex=True, is_equal=False),
    Matcher("team", ""),
    Matcher("team", "", is_equal=False),
    Matcher("team", "shop|", is_regex=True),
]


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with World(clock=lambda: FIXED) as running:
        yield running


@pytest.fixture
async def tools(world: World) -> AsyncIterator[dict[str, Tool]]:
    async with aiohttp.ClientSession() as session:
        found = alertmanager.tools(world.alertmanager_url, session, world.now, LINK)
        yield {tool.spec.name: tool for tool in found}


async def preview(tool: Tool, arguments: dict[str, Any]) -> str:
    assert isinstance(tool, ChangeTool)
    return await tool.preview(arguments)


# --- what may be asked -------------------------------------------------------------------------------------------


async def test_silences_are_writes_that_can_be_shown_first_and_alerts_are_read(tools: dict[str, Tool]) -> None:
    tiers = {name: tool.spec.tier for name, tool in tools.items()}
    assert tiers == {
        "alertmanager_alerts": Tier.READ,
        "alertmanager_silence": Tier.WRITE,
        "alertmanager_expire_silence": Tier.WRITE,
    }
    assert {name for name, tool in tools.items() if isinstance(tool, ChangeTool)} == {
        "alertmanager_silence",
        "alertmanager_expire_silence",
    }


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("alertmanager_silence", {}),
        ("alertmanager_silence", {**SILENCE, "matchers": []}),
        ("alertmanager_silence", {**SILENCE, "matchers": "alertname=CheckoutErrorRate"}),
        ("alertmanager_silence", {**SILENCE, "matchers": ['alertname="CheckoutErrorRate"']}),
        ("alertmanager_silence", {**SILENCE, "matchers": [{"name": "alertname"}]}),
        ("alertmanager_silence", {**SILENCE, "matchers": [{**CHECKOUT, "isRegex": "false"}]}),
        ("alertmanager_silence", {**SILENCE, "matchers": [{**CHECKOUT, "operator": "=="}]}),
        ("alertmanager_silence", {**SILENCE, "matchers": [{**CHECKOUT, "value": 5}]}),
        ("alertmanager_silence", {**SILENCE, "matchers": [{**CHECKOUT, "name": "alert name"}]}),
        ("alertmanager_silence", {**SILENCE, "matchers": [{**CHECKOUT, "name": "alertname\n"}]}),
        ("alertmanager_silence", {**SILENCE, "matchers": [CHECKOUT] * 11}),
        *(("alertmanager_silence", {**SILENCE, "minutes": bad}) for bad in (0, -1, 1_441, 10**12, 1.5)),
        *(("alertmanager_silence", {**SILENCE, "minutes": bad}) for bad in ("60", True, None, [60])),
        *(("alertmanager_silence", {**SILENCE, "comment": bad}) for bad in ("", " \n", "x" * 501, 5)),
        ("alertmanager_silence", {**SILENCE, "dry_run": "false"}),
        ("alertmanager_silence", {**SILENCE, "created_by": "somebody else"}),
        ("alertmanager_silence", {**SILENCE, "id": "00000000-0000-4000-8000-000000000000"}),
        *(
            ("alertmanager_expire_silence", {"silence_id": bad})
            for bad in (
                *("", "all", "*", "../silences", "00000000-0000-4000-8000-000000000000/../../alerts"),
                *("00000000-0000-4000-8000-000000000000\n", "00000000000040008000000000000000", 7),
            )
        ),
        ("alertmanager_alerts", {"states": []}),
        ("alertmanager_alerts", {"states": "active"}),
        ("alertmanager_alerts", {"states": ["resolved"]}),
        ("alertmanager_alerts", {"receiver": ""}),
        ("alertmanager_alerts", {"limit": 5}),
    ],
)  # fmt: skip
async def test_bad_arguments_are_refused_by_the_gateway_and_by_the_tool_before_asking(
    tools: dict[str, Tool], world: World, name: str, arguments: dict[str, Any]
) -> None:
    block = {"type": "tool_use", "id": "toolu_1", "name": name, "input": arguments}
    refusal = Gateway(tools.values(), Limits(), lambda: 0.0).admit(0, block, broken=False).refusal
    assert refusal is not None and refusal.startswith("Nothing was run: ")
    with pytest.raises(ToolError, match=f"^{name}: "):
        await tools[name].run(arguments)
    if isinstance(tools[name], ChangeTool):
        with pytest.raises(ToolError, match=f"^{name}: "):
            await preview(tools[name], arguments)
    assert world.calls == []


@pytest.mark.parametrize("name", ["ALERTMANAGER_SILENCE", "write_silence", "alertmanager_silence "])
async def test_another_name_is_no_tool(tools: dict[str, Tool], name: str) -> None:
    block = {"type": "tool_use", "id": "toolu_1", "name": name, "input": SILENCE}
    refusal = Gateway(tools.values(), Limits(), lambda: 0.0).admit(0, block, broken=False).refusal
    assert refusal is not None and "The tools are: alertmanager_alerts, alertmanager_expire" in refusal


# --- a silence names what it hides -------------------------------------------------------------------------------


@pytest.mark.parametrize("one", NAMED, ids=str)
@pytest.mark.parametrize(
    "others", [[], [Matcher("severity", ".+", is_regex=True)], [Matcher("x", "y", is_equal=False)]]
)
def test_one_matcher_that_names_something_is_enough(one: Matcher, others: list[Matcher]) -> None:
    require_a_choice([*others, one])


@pytest.mark.parametrize("one", NOBODY_NAMED, ids=str)
def test_matchers_that_name_nothing_are_refused_also_together(one: Matcher) -> None:
    for matchers in ([one], [one, Matcher("severity", ".+", is_regex=True)], [one, *NOBODY_NAMED]):
        with pytest.raises(ToolError, match=r"^Nothing was silenced: .* alerts that nobody named\."):
            require_a_choice(matchers)


@pytest.mark.parametrize("pattern", ["x)|(?:.*", "(", "[a", r"\Qx\E", "(?=x)x", "((a{1000}){1000}){1000}", "(?x)a #"])
def test_a_pattern_that_can_not_be_judged_is_refused(pattern: str) -> None:
    with pytest.raises(ToolError, match="can't be used as a pattern"):
        require_a_choice([Matcher("alertname", "CheckoutErrorRate"), Matcher("host", pattern, is_regex=True)])


@settings(max_examples=300, deadline=None)
@given(pattern=st.text(alphabet="ab.*+?|()[]^$\\{}1,-:x", max_size=12))
def test_a_pattern_with_an_alternative_that_fits_anything_never_names_something(pattern: str) -> None:
    with pytest.raises(ToolError):
        require_a_choice([Matcher("alertname", f"(?:{pattern})|.*", is_regex=True)])


async def test_a_silence_for_everything_reaches_alertmanager_neither_as_a_preview_nor_as_a_run(
    tools: dict[str, Tool], world: World
) -> None:
    for operator, value in (("=~", ".*"), ("=~", ".+"), ("!=", "x"), ("=", "")):
        asked = {**SILENCE, "matchers": [{"name": "alertname", "operator": operator, "value": value}]}
        with pytest.raises(ToolError, match="nobody named"):
            await preview(tools["alertmanager_silence"], asked)
        with pytest.raises(ToolError, match="nobody named"):
            await tools["alertmanager_silence"].run(asked)
    assert world.calls == []


async def test_nobody_is_asked_to_approve_a_silence_for_everything(tools: dict[str, Tool], world: World) -> None:
    gateway = Gateway(tools.values(), Limits(), lambda: 0.0)
    asked = {**SILENCE, "matchers": [{"name": "alertname", "operator": "=~", "value": ".*"}]}
    found = await gateway.preview(call("alertmanager_silence", Tier.WRITE, arguments=asked))
    assert isinstance(found, CallResult) and found.status is CallStatus.ERROR
    assert found.text.startswith('Nothing was run: Nothing was silenced: alertname=~".*" would also hide alerts')
    assert world.calls == []


# --- the incident ------------------------------------------------------------------------------------------------


async def test_the_incident_has_two_alerts(tools: dict[str, Tool]) -> None:
    found = await tools["alertmanager_alerts"].run({})
    assert found.text.splitlines() == [
        "2 alerts",
        "alert | state | since | labels | summary",
        "CheckoutErrorRate | active | 2026-03-14T14:07:40Z (12m20s) | namespace=shop, service=checkout, "
        "severity=critical | 5xx answers of checkout are above 5 %",
        "HostHighCpu | active | 2026-03-14T13:50:00Z (30m) | host=web-3, severity=warning | The processors of web-3 "
        "are above 85 % for 10 minutes",
    ]
    ((title, address),) = found.links
    assert title == "Alertmanager: alerts"
    assert address == "https://alertmanager.example.com/#/alerts?active=true&silenced=false&inhibited=false"


async def test_people_get_a_link_to_the_same_alerts(tools: dict[str, Tool]) -> None:
    asked = {"matchers": [CHECKOUT, {"name": "severity", "operator": "!~", "value": "info|none"}]}
    ((title, address),) = (await tools["alertmanager_alerts"].run(asked)).links
    shown = '{alertname="CheckoutErrorRate",severity!~"info|none"}'
    assert title == f"Alertmanager: {shown}"
    path, _, query = unquote(urlsplit(address).fragment).partition("?")
    assert path == "/alerts" and parse_qs(urlsplit(address).fragment.partition("?")[2])["filter"] == [shown]
    assert query.startswith("active=true")


async def test_a_silence_of_the_incident_is_shown_set_and_ended(tools: dict[str, Tool], world: World) -> None:
    assert await preview(tools["alertmanager_silence"], SILENCE) == (
        "New silence in Alertmanager for 60 min from when it is set (now: until 2026-03-14T15:20:00Z), for alerts "
        'with\n  alertname="CheckoutErrorRate"\nComment: rolling back\nCreated by: Pilothouse\n'
        "It would hide 1 of the 2 alerts that notify now:\n"
        '  CheckoutErrorRate{namespace="shop",service="checkout",severity="critical"} since 2026-03-14T14:07:40Z'
    )
    assert {one.method for one in world.calls} == {"GET"}
    found = await tools["alertmanager_silence"].run(SILENCE)
    (silence_id,) = world.silences.kept
    assert found.text == (
        f"Silence {silence_id} is set until 2026-03-14T15:20:00Z (60 min) for alerts with "
        'alertname="CheckoutErrorRate". It ends by itself; alertmanager_expire_silence ends it earlier.'
    )
    assert found.links == [
        (f"Alertmanager: silence {silence_id[:8]}", f"https://alertmanager.example.com/#/silences/{silence_id}")
    ]
    assert (await tools["alertmanager_alerts"].run({})).text.startswith("1 alert\n")
    hidden = (await tools["alertmanager_alerts"].run({"states": ["silenced"]})).text
    assert f"CheckoutErrorRate | silenced by {silence_id} | " in hidden
    shown = await preview(tools["alertmanager_expire_silence"], {"silence_id": silence_id})
    assert "1 alert would notify again:\n  CheckoutErrorRate{" in shown
    await tools["alertmanager_expire_silence"].run({"silence_id": silence_id})
    assert (await tools["alertmanager_alerts"].run({})).text.startswith("2 alerts")
    with pytest.raises(ToolError, match="ended already"):
        await tools["alertmanager_expire_silence"].run({"silence_id": silence_id})


async def test_health_is_none_or_a_sentence(tools: dict[str, Tool], world: World) -> None:
    assert [await tool.health() for tool in tools.values()] == [None, None, None]
    world.fail("alertmanager", 503)
    sentence = "Alertmanager answered 503: an HTML page, so something in front of it answered instead"
    assert [await tool.health() for tool in tools.values()] == [sentence] * 3


# --- a write whose end is not known ------------------------------------------------------------------------------


async def test_a_silence_without_a_clear_end_is_unknown_and_not_set_again(
    tools: dict[str, Tool], world: World
) -> None:
    world.fail("alertmanager", 504, match="/api/v2/silences")
    with pytest.raises(OutcomeUnknown, match="done or not: check first"):
        await tools["alertmanager_silence"].run(SILENCE)
    assert [one.method for one in world.calls] == ["POST"]


async def test_a_silence_that_takes_too_long_is_unknown_to_the_gateway(tools: dict[str, Tool], world: World) -> None:
    world.slow("alertmanager", 600, match="/api/v2/silences")
    tool = tools["alertmanager_silence"]
    assert isinstance(tool, WriteTool)
    hurried = replace(tool, spec=replace(tool.spec, timeout_s=0.5))
    gateway = Gateway([hurried], Limits(), lambda: 0.0)
    found = await gateway.run(call("alertmanager_silence", Tier.WRITE, arguments=SILENCE))
    assert found.status is CallStatus.UNKNOWN and "done or not" in found.text
    assert len(world.calls) <= 1


async def test_an_answer_that_names_no_silence_is_unknown() -> None:
    async def respond(request: web.Request) -> web.Response:
        return web.Response(text="<title>Sign in</title>", content_type="text/html")

    app = web.Application()
    app.router.add_post("/api/v2/silences", respond)
    async with TestServer(app) as server, aiohttp.ClientSession() as session:
        _, silence, _ = alertmanager.tools(str(server.make_url("/")), session, lambda: FIXED)
        with pytest.raises(OutcomeUnknown, match="The silence may be set or not: look at the silences first"):
            await silence.run(SILENCE)


# --- texts -------------------------------------------------------------------------------------------------------


def firing(name: str, number: int, **status: list[str]) -> Alert:
    starts = datetime.fromtimestamp(FIXED + number, UTC)
    return Alert(labels={"alertname": name, "n": str(number)}, startsAt=starts, status=Status(**status))


def test_a_storm_is_cut_and_counted_by_name() -> None:
    storm = [firing("PodDown", number) for number in range(60)] + [firing("DiskFull", 99)]
    lines = alerts_text(storm, FIXED + 100).splitlines()
    assert lines[0] == "61 alerts: PodDown 60, DiskFull 1"
    assert len(lines) == 53 and lines[-1] == "[11 more alerts not shown: add matchers]"
    names = [firing(f"Alert{number:02}", number) for number in range(70)]
    assert alerts_text(names, FIXED).splitlines()[0].endswith(", Alert55 1, and 55 more names")


async def test_a_silence_can_be_shown_when_there_are_too_many_alerts_to_read_them_all() -> None:
    starts = datetime.fromtimestamp(FIXED, UTC).isoformat()
    one = {"labels": {"alertname": "CheckoutErrorRate"}, "startsAt": starts, "status": {"state": "active"}}

    async def respond(request: web.Request) -> web.Response:
        many = 1 if "filter" in request.query else 40_000
        return web.json_response([{**one, "annotations": {"summary": "x" * 200}}] * many)

    app = web.Application()
    app.router.add_get("/api/v2/alerts", respond)
    async with TestServer(app) as server, aiohttp.ClientSession() as session:
        alerts, silence, _ = alertmanager.tools(str(server.make_url("/")), session, lambda: FIXED)
        with pytest.raises(ToolError, match="more than 8 MB"):
            await alerts.run({})
        shown = await preview(silence, SILENCE)
    assert "\nIt would hide 1 of the alerts that notify now:\n  CheckoutErrorRate since 2026-03-14T08:30:00Z" in shown
    one_alert = firing("PodDown", 1)
    assert would_hide_text([one_alert], [one_alert]).startswith("It would hide the only alert that notifies now:\n")
    assert would_hide_text([], []).startswith("It would hide none of the 0 alerts that notify now")
    assert would_hide_text([], None).startswith("It would hide none of the alerts that notify now")


def test_an_alert_with_hostile_labels_stays_on_its_line() -> None:
    odd = Alert(
        labels={"alertname": "A\nB", "x": "1\n2 | active"},
        annotations={"summary": "line\n\nanother " + "y" * 5_000},
        startsAt=datetime.fromtimestamp(FIXED, UTC),
        status=Status(),
    )
    lines = alerts_text([odd], FIXED).splitlines()
    assert len(lines) == 4 and len(lines[-1]) < 1_000
    assert would_hide_text([odd], [odd]).count("\n") == 1


def test_an_alert_that_is_muted_says_by_what() -> None:
    assert "PodDown | muted by nights | " in alerts_text([firing("PodDown", 1, mutedBy=["nights"])], FIXED)
