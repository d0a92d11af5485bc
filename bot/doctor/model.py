"""Does the Messages API answer, and does it know the models by the names that are configured.

A wrong name is a 404 with every request, so it is told before the first one, with the names that are near. What is
in front of the API (a gateway, a company's proxy) may not serve `/v1/models`; then nothing can be said beforehand.

Importing this module imports the SDK, which takes 1.5 s: see `bot.importing`.
"""

from __future__ import annotations

from difflib import get_close_matches

import anthropic
import httpx2
from anthropic import AsyncAnthropic
from anthropic.types import ModelInfo

from bot.claude import connect
from bot.claude_errors import from_status
from bot.doctor.finding import Finding, failing, ok, warning
from bot.settings import ModelPart
from core.errors import BadInput, ModelBusy, ModelError, ModelMisconfigured

SETTINGS = {"model": "model.name (or PILOTHOUSE_MODEL)", "fallback model": "model.fallback"}
PAGE = 1000
NEAR = 3
LIKENESS = 0.5


async def look(model: ModelPart) -> list[Finding]:
    """The model and its fallback."""
    key = model.api_key.get_secret_value()
    if not key:
        says = (
            "ANTHROPIC_API_KEY is not set: make a key in the Console (it begins with sk-ant-) and put it into .env."
        )
        return [failing("model", says)]
    try:
        client = connect(key, model.base_url, direct=model.direct)
    except BadInput as error:
        return [failing("model", str(error))]
    async with client:
        return await known(client, model)


async def known(client: AsyncAnthropic, model: ModelPart) -> list[Finding]:
    """Whether the API knows the configured models."""
    found = [await _one(client, "model", model.name)]
    if model.fallback == model.name:
        says = 'model.fallback is the model itself, so it helps nobody: name another one, or "" for none.'
        found.append(warning("fallback model", says))
    elif model.fallback:
        found.append(await _one(client, "fallback model", model.fallback))
    return found


async def _one(client: AsyncAnthropic, check: str, name: str) -> Finding:
    try:
        info = await client.models.retrieve(name)
    except anthropic.NotFoundError:
        return await _unknown(client, check, name)
    except anthropic.APIStatusError as error:
        return _refused(check, name, error)
    except (anthropic.AnthropicError, httpx2.HTTPError, OSError, ValueError) as error:
        there = f"The Messages API at {client.base_url} can't be reached"
        return failing(check, f"{there} ({_why(error)}): check model.base_url and the proxies.")
    return _known(check, name, info)


def _known(check: str, name: str, info: ModelInfo) -> Finding:
    stage = getattr(info, "lifecycle", None)
    if stage == "retired":
        return failing(check, f"{name} is retired, so every request fails: set {SETTINGS[check]} to another model.")
    if stage == "deprecated":
        retires = getattr(info, "retires_at", None)
        when = f" on {retires:%Y-%m-%d}" if retires is not None else ""
        return warning(
            check, f"{name} answers, but it is deprecated and will be retired{when}: choose its successor."
        )
    return ok(check, f"The Messages API knows {name}.")


async def _unknown(client: AsyncAnthropic, check: str, name: str) -> Finding:
    try:
        listed = [info.id async for info in client.models.list(limit=PAGE)]
    except (anthropic.AnthropicError, httpx2.HTTPError, OSError, ValueError):
        listed = []
    if not listed:
        says = f"{client.base_url} does not list its models, so whether it knows {name} shows with the first request."
        return warning(check, says)
    if name in listed:
        return ok(check, f"The Messages API knows {name}.")
    near = get_close_matches(name, listed, NEAR, LIKENESS)
    other = f"did you mean {' or '.join(near)}?" if near else f"it has {', '.join(listed[:NEAR])} and others."
    return failing(check, f"The Messages API does not know the model {name}; {other} Set {SETTINGS[check]}.")


def _refused(check: str, name: str, error: anthropic.APIStatusError) -> Finding:
    body = error.body if isinstance(error.body, dict) else {}
    detail = body.get("error")
    text = str(detail.get("message") or "") if isinstance(detail, dict) else ""
    meant: ModelError = from_status(error.status_code, text, name, error.response.headers)
    match meant:
        case ModelBusy():
            return warning(check, f"The Messages API is there, but busy now, so {name} was not looked up: try again.")
        case ModelMisconfigured():
            return failing(check, str(meant))
    return failing(
        check, f"The Messages API gave no answer about {name} (HTTP {error.status_code}): try again later."
    )


def _why(error: BaseException) -> str:
    """What is at the bottom of a failed connection."""
    while error.__cause__ is not None:
        error = error.__cause__
    return " ".join(str(error).split())[:200] or type(error).__name__
