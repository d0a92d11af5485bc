"""What the doctor says of the model and its fallback."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.support import far_ends
from tests.support.far_ends import Installation, installation, told
from tests.support.processes import free_port

here = far_ends.here


@pytest.mark.parametrize(
    ("variable", "check", "setting"),
    [
        ("PILOTHOUSE_MODEL", "model", "model.name (or PILOTHOUSE_MODEL)"),
        ("PILOTHOUSE_MODEL__FALLBACK", "fallback model", "model.fallback"),
    ],
)
async def test_an_unknown_model_is_told_with_the_names_that_are_near(
    here: Installation, variable: str, check: str, setting: str
) -> None:
    here.variables[variable] = "claude-sonet-5-5"
    state, says = (await told(here))[check]
    assert state == "failing"
    assert says.startswith(
        "The Messages API does not know the model claude-sonet-5-5; did you mean claude-sonnet-5-5 or "
    )
    assert says.endswith(f"? Set {setting}.")


async def test_where_no_name_is_near_a_few_are_told(here: Installation) -> None:
    here.variables["PILOTHOUSE_MODEL"] = "gpt"
    assert "; it has claude-fable-5-2, " in (await told(here))["model"][1]


@pytest.mark.parametrize(
    ("key", "says"),
    [
        (
            "",
            "ANTHROPIC_API_KEY is not set: make a key in the Console (it begins with sk-ant-) and put it into .env.",
        ),
        (
            "sk-ant-other",
            "The Messages API refused the key (invalid x-api-key): set ANTHROPIC_API_KEY to a valid key and start "
            "again.",
        ),
        ("sk ant", "ANTHROPIC_API_KEY is empty or holds characters that no key has: copy it again."),
    ],
)
async def test_a_key_that_can_not_be_used(here: Installation, key: str, says: str) -> None:
    here.variables["ANTHROPIC_API_KEY"] = key
    assert (await told(here))["model"] == ("failing", says)


async def test_a_retired_model_fails_and_a_deprecated_one_is_a_warning(tmp_path: Path) -> None:
    stages = {"claude-sonnet-5-5": "retired", "claude-opus-5-5": "deprecated"}
    async with installation(tmp_path, model={"stages": stages}) as here:
        found = await told(here)
    assert found["model"] == (
        "failing",
        "claude-sonnet-5-5 is retired, so every request fails: set model.name (or PILOTHOUSE_MODEL) to another "
        "model.",
    )
    assert found["fallback model"] == (
        "warning",
        "claude-opus-5-5 answers, but it is deprecated and will be retired: choose its successor.",
    )


async def test_the_model_itself_is_no_fallback(here: Installation) -> None:
    here.variables["PILOTHOUSE_MODEL__FALLBACK"] = "claude-sonnet-5-5"
    assert (await told(here))["fallback model"][0] == "warning"


async def test_a_model_that_can_not_be_reached(here: Installation) -> None:
    here.variables["ANTHROPIC_BASE_URL"] = f"http://127.0.0.1:{free_port()}"
    state, says = (await told(here))["model"]
    assert state == "failing"
    assert (
        says.startswith(f"The Messages API at {here.variables['ANTHROPIC_BASE_URL']}") and "can't be reached" in says
    )


async def _gateway(status: int, body: Mapping[str, Any]) -> web.AppRunner:
    """Something in front of the API that answers every request with the same."""

    async def answer(request: web.Request) -> web.Response:
        return web.json_response(body, status=status)

    app = web.Application()
    app.router.add_route("*", "/{any:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return runner


@pytest.mark.parametrize(
    ("status", "body", "state", "says"),
    [
        (404, {"detail": "Not Found"}, "warning", "does not list its models, so whether it knows claude-sonnet-5-5"),
        (
            529,
            {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
            "warning",
            "The Messages API is there, but busy now",
        ),
        (502, {}, "failing", "The Messages API gave no answer about claude-sonnet-5-5 (HTTP 502): try again later."),
        (
            403,
            {"type": "error", "error": {"type": "permission_error", "message": "no access"}},
            "failing",
            "The key may not use this (no access)",
        ),
    ],
)
async def test_what_stands_in_front_of_the_api_may_answer_in_its_own_way(
    here: Installation, status: int, body: Mapping[str, Any], state: str, says: str
) -> None:
    runner = await _gateway(status, body)
    try:
        here.variables["ANTHROPIC_BASE_URL"] = f"http://127.0.0.1:{runner.addresses[0][1]}"
        found = (await told(here))["model"]
    finally:
        await runner.cleanup()
    assert found[0] == state and says in found[1]
