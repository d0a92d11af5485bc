"""Story 12, with real tools: an alert is silenced after somebody on call has seen what exactly that hides."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bot.playground.model import Script, call, say
from tests.support.story import QUICK, holds, sent
from tests.support.thread import ENGINEER, ONCALL, Thread, in_town, shown

NAMED = {"name": "alertname", "value": "CheckoutErrorRate"}


def silencing(matcher: dict[str, Any], after: str) -> Script:
    arguments = {"matchers": [matcher], "minutes": 30, "comment": "rolling the gateway back"}
    return [say("I can silence it.") + call("alertmanager_silence", **arguments), say(after)]


@pytest.fixture
async def thread(tmp_path: Path, script: Script) -> AsyncIterator[Thread]:
    async with in_town(tmp_path, script=script, limits=QUICK) as thread:
        yield thread


def posts(thread: Thread) -> list[str]:
    """The methods of the requests that could have changed something at Alertmanager."""
    return [one.method for one in thread.town.world.calls if one.api == "alertmanager" and one.method != "GET"]


@pytest.mark.parametrize("script", [silencing(NAMED, "It is silent for half an hour.")], ids=["named"])
async def test_the_request_shows_what_a_silence_hides_and_approving_sets_exactly_that(thread: Thread) -> None:
    await thread.ask()
    await thread.until(lambda: any('"approve"' in json.dumps(post) for post in thread.own("request")))
    (request,) = thread.own("request")
    said = shown(request)
    assert "New silence in Alertmanager for 30 min" in said
    assert "It would hide 1 of the 2 alerts that notify now" in said
    assert posts(thread) == []
    await thread.press_on(request, "approve", ENGINEER)
    await thread.until(lambda: bool(thread.whispers(ENGINEER)))
    assert posts(thread) == []
    await thread.press_on(request, "approve", ONCALL)
    await holds(thread, ["completed"])
    (silence,) = thread.town.world.silences.kept.values()
    assert (silence.created_by, silence.comment) == ("Pilothouse", "rolling the gateway back")
    assert silence.matchers == [{**NAMED, "isRegex": False, "isEqual": True}]
    assert posts(thread) == ["POST"]
    assert f"Silence {silence.id} is set until" in sent(thread)


EVERYTHING = {"name": "alertname", "operator": "=~", "value": ".*"}


@pytest.mark.parametrize("script", [silencing(EVERYTHING, "Which alert do you mean?")], ids=["everything"])
async def test_a_silence_for_everything_is_refused_without_asking_anybody(thread: Thread) -> None:
    await thread.ask()
    await holds(thread, ["completed"])
    assert thread.own("request") == []
    assert "would also hide alerts that nobody named" in sent(thread)
    assert posts(thread) == [] and not thread.town.world.silences.kept
