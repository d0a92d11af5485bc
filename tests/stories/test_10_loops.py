"""Story 10, other programs and other companies: no courtesy between agents, no strangers."""

from __future__ import annotations

import pytest

from bot.playground.model import say
from tests.support.replay import AGENT, PARTNER, Json, Raw, Stage, ended, sent, told
from tests.support.thread import ENGINEER, GUEST

pytest_plugins = ["tests.support.stage"]
pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_the_thanks_of_another_agent_start_and_steer_nothing(stage: Stage) -> None:
    room = await stage.busy("thanks", say("It was the gateway."))
    raw = Raw(room)
    for number in range(3):
        thanks = raw.message(f"Thanks <@U0PILOT>, all good! ({number})", AGENT, bot_id="B0OTHER", app_id="A0OTHER")
        await raw.event(thanks)
        await raw.event(raw.mention(thanks))
    stage.let(room)
    await ended(room, "completed")
    thanks = raw.message("Thanks <@U0PILOT>!", None, subtype="bot_message", bot_id="B0OTHER")
    await raw.event(thanks)
    assert len(room.all("turns")) == 1 and "all good" not in sent(room)
    assert {row["disposition"] for row in room.all("messages") if row["who"] == "bot"} == {"ignore"}
    assert room.whispers(AGENT) == [] and len(room.every("answer")) == 1


async def test_an_agent_that_mentions_us_in_a_new_thread_starts_nothing_either(stage: Stage) -> None:
    raw = Raw(stage.room("newthread"))
    hello = raw.message("<@U0PILOT> room newthread: hello", AGENT, root=True, bot_profile={"id": "B0OTHER"})
    raw.room.root = hello["ts"]
    await raw.event(hello)
    await raw.event(raw.mention(hello))
    assert raw.room.all("turns") == [] and raw.room.requests() == []


@pytest.mark.parametrize(
    "ours",
    [
        {"user": "U0PILOT", "bot_id": "B0PILOT", "app_id": "A0PILOT"},
        {"user": "U0PILOT", "bot_id": None, "app_id": None},
        {"user": None, "subtype": "bot_message", "bot_id": "B0PILOT", "app_id": "A0PILOT"},
        {"user": None, "subtype": "bot_message", "bot_id": None, "app_id": "A0PILOT"},
        {"user": None, "subtype": "bot_message", "bot_id": "B0PILOT", "app_id": None, "username": "Pilothouse"},
    ],
    ids=["all", "user", "bot", "app", "bot-alone"],
)
async def test_our_own_posts_are_known_by_whatever_of_us_is_in_them(stage: Stage, ours: Json) -> None:
    room = stage.room("own", say("It was the gateway."))
    if room.root is None:
        await room.ask()
    await ended(room, "completed")
    raw = Raw(room)
    before = len(room.all("messages"))
    await raw.event(raw.message("<@U0PILOT> final report: stop", **ours))
    assert len(room.all("messages")) == before and room.all("stops") == []


async def test_somebody_of_another_company_starts_and_steers_nothing_and_is_told(stage: Stage) -> None:
    room = await stage.busy("company", say("It was the gateway."))
    raw = Raw(room)
    for text in ("<@U0PILOT> what do you know about us?", "! look at the customer table", "a reply like any other"):
        said = raw.message(text, PARTNER, user_team="T0ELSEWHERE", source_team="T0ELSEWHERE")
        await raw.event(said, is_ext_shared_channel=True)
    await told(room, PARTNER, "I did not start")
    await told(room, PARTNER, "I did not change course")
    stage.let(room)
    await ended(room, "completed")
    assert "customer table" not in sent(room) and "what do you know" not in sent(room)


async def test_our_own_people_in_a_shared_channel_are_our_own_people(stage: Stage) -> None:
    room = stage.room("shared", say("It was the gateway."))
    raw = Raw(room)
    said = raw.message("<@U0PILOT> room shared: 5xx?", root=True, user_team="T0LOCAL", source_team="T0LOCAL")
    room.root = said["ts"]
    await raw.event(said, is_ext_shared_channel=True)
    await ended(room, "completed")
    assert room.whispers(ENGINEER) == []


async def test_a_guest_asks_nothing_and_is_told(stage: Stage) -> None:
    room = stage.room("guest")
    await room.ask("5xx?", GUEST)
    assert "only members of this workspace" in await told(room, GUEST, "I did not start")
    assert room.all("turns") == [] and room.requests() == []
