"""Story 10, HTTP mode: signed requests have one effect, retries are heard, and a wrong clock is said."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest
import pytest_asyncio
from pydantic import SecretStr

from bot.app import EVENTS_PATH, build
from bot.http import serving
from bot.playground.model import say
from bot.settings import Settings
from tests.support.replay import (
    PATIENT_S,
    Configured,
    Gate,
    Raw,
    Stage,
    ended,
    log_lines,
    signed,
    told,
    with_strangers,
)
from tests.support.rooms import Unlimited, far_ends
from tests.support.story import QUICK
from tests.support.thread import ENGINEER, ONCALL

pytestmark = pytest.mark.asyncio(loop_scope="module")


def over_http(settings: Settings) -> Settings:
    slack = settings.slack.model_copy(update={"mode": "http", "app_token": SecretStr("")})
    return settings.model_copy(update={"slack": slack})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    """The product without a socket: Slack posts to it."""
    gate, loop = Gate(), asyncio.get_running_loop()
    with log_lines() as log:
        async with far_ends(tmp_path_factory.mktemp("http"), workspace=with_strangers()) as made:
            ends = Configured(**vars(made), change=over_http)
            ends.slack.wire.ack_timeout_s = PATIENT_S
            app_of = build(ends.settings, limits=QUICK, tools=[gate], pace=Unlimited(loop.time))
            async with app_of as app, serving(app.web, "127.0.0.1", 0) as port:
                running = asyncio.ensure_future(app.run())
                ends.slack.http_mode(f"http://127.0.0.1:{port}{EVENTS_PATH}")
                yield Stage(ends, app, gate, log)
                app.stop()
                await running
            ends.sound()


async def test_a_question_a_click_and_a_stop_arrive_as_signed_requests(stage: Stage) -> None:
    room = await stage.busy("signed")
    await room.press("stop_step", ONCALL)
    await ended(room, "stopped_step")
    assert stage.ends.slack.called("apps.connections.open") == []


async def test_the_same_signed_request_twice_is_taken_twice_and_has_one_effect(stage: Stage) -> None:
    room = await stage.busy("replayed", say("Looked."))
    raw = Raw(room)
    envelope = raw.envelope(raw.message("look at the gateway"))
    for _ in range(2):
        delivery = await stage.ends.slack.inject(envelope)
        assert (delivery.status, delivery.acknowledged) == (200, True)
    await ended(room, "steered", "completed")
    assert len(room.requests()) == 2


@pytest.mark.parametrize("number", [1, 2, 3])
async def test_a_retry_whose_first_delivery_was_lost_is_processed(stage: Stage, number: int) -> None:
    room = stage.room(f"lost{number}", say("It is up."))
    raw = Raw(room)
    question = raw.message(f"<@U0PILOT> room {room.word}: is it up?", root=True)
    room.root = question["ts"]
    await raw.event(question, attempt=number, reason="http_timeout")
    await signed(room, question["ts"], "eyes")
    await ended(room, "completed")


async def test_a_wrong_clock_refuses_everything_and_the_log_says_by_how_much(stage: Stage) -> None:
    room = stage.room("skewed")
    raw = Raw(room)
    assert stage.ends.slack.wire.http is not None
    stage.ends.slack.wire.http.skew_s = -420.0
    try:
        delivery = await stage.ends.slack.inject(
            raw.envelope(raw.message("<@U0PILOT> room skewed: hello", root=True))
        )
    finally:
        stage.ends.slack.wire.http.skew_s = 0.0
    assert (delivery.status, delivery.acknowledged) == (401, False)
    line = stage.logged("slack_request_out_of_time")[-1]
    assert (
        line["level"] == "error"
        and abs(line["off_s"] - 420) < 5
        and "7 min" in line["says"]
        and "NTP" in line["hint"]
    )
    assert room.all("turns") == []


@pytest.mark.parametrize("body", [b"\xff\xfe{}", b"{", b"[]", b"payload=%7B"])
async def test_a_body_that_is_none_of_slacks_is_refused_without_an_error_of_ours(stage: Stage, body: bytes) -> None:
    mode = stage.ends.slack.wire.http
    assert mode is not None
    headers = {"Content-Type": "application/json", "X-Slack-Request-Timestamp": "abc", "X-Slack-Signature": "v0=é"}
    async with (
        aiohttp.ClientSession() as session,
        session.post(mode.events_url, data=body, headers=headers) as answer,
    ):
        assert answer.status == 401


async def test_an_unknown_button_is_answered_here_too(stage: Stage) -> None:
    room = await stage.busy("httpbutton")
    await Raw(room).click((await room.cards())[0], "retired_button", "x", ONCALL)
    await told(room, ONCALL, "expired")
    await room.reply("stop", ENGINEER)
    await ended(room, "stopped_step")
