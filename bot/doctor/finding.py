"""What the doctor says of one part: how it is, and one sentence that says what to do where it is not well.

Checks run at the same time, each under a limit; one that hangs or breaks is a finding too. Whatever a far end answers
may repeat a secret that we gave it, so every sentence is cleaned of those before anybody sees it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from pydantic import BaseModel, SecretStr
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from bot.http import Health
from bot.settings import Settings
from core.redaction import redact

SHORTEST_SECRET = 6
"""What is shorter is no secret, but a word that sentences need."""
HIDDEN = "[redacted]"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the doctor's report. `check` names the part, `says` is a sentence for a person."""

    check: str
    health: Health
    says: str


Check = Callable[[], Awaitable[Sequence[Finding]]]


def ok(check: str, says: str) -> Finding:
    return Finding(check, Health.OK, says)


def warning(check: str, says: str) -> Finding:
    return Finding(check, Health.WARNING, says)


def failing(check: str, says: str) -> Finding:
    return Finding(check, Health.FAILING, says)


async def examined(checks: Mapping[str, Check], limit_s: float, secrets: Collection[str]) -> list[Finding]:
    """What all checks find, in their order. Each has `limit_s`; none of `secrets` is in any sentence."""
    found = await asyncio.gather(*(_one(name, check, limit_s) for name, check in checks.items()))
    return [replace(one, says=without(one.says, secrets)) for group in found for one in group]


async def _one(name: str, check: Check, limit_s: float) -> Sequence[Finding]:
    answers = await asyncio.gather(asyncio.wait_for(check(), limit_s), return_exceptions=True)
    match answers[0]:
        case TimeoutError():
            return [
                failing(name, f"This gave no answer within {limit_s:g} s: check the network between here and it.")
            ]
        case BaseException() as error:
            return [
                failing(name, f"This check broke ({type(error).__name__}: {error}): please report it as a fault.")
            ]
        case findings:
            return findings


def secrets_of(settings: Settings) -> frozenset[str]:
    """Every secret that the configuration holds, and the passwords in its addresses."""
    found = {secret for secret in _secrets(settings) if secret}
    return frozenset(found | {password for secret in found if (password := _password(secret))})


def without(text: str, secrets: Collection[str]) -> str:
    """`text` without these secrets, and without what looks like one."""
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= SHORTEST_SECRET:
            text = text.replace(secret, HIDDEN)
    return redact(text)


def _secrets(part: object) -> list[str]:
    match part:
        case SecretStr():
            return [part.get_secret_value()]
        case BaseModel():
            return [secret for _, value in part for secret in _secrets(value)]
        case Mapping():
            return [secret for value in part.values() for secret in _secrets(value)]
        case list() | tuple():
            return [secret for value in part for secret in _secrets(value)]
    return []


def _password(address: str) -> str | None:
    try:
        password = make_url(address).password
    except ArgumentError:
        return None
    return str(password) if password else None
