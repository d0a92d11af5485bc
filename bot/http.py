"""What operators can ask a running process: is it well (`/healthz`), and what did it count (`/metrics`).

`/healthz` asks every part at once and answers with JSON: 200 while no part is `failing`, else 503. A `warning` stays
at 200 on purpose: what another process does with our token, say, does not get better by restarting this one. A part
that does not answer in time, or raises, is failing; the page itself always answers.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from sqlalchemy import text

from core.card_words import span
from core.errors import BadInput
from storage.database import Database

PART_S = 2.0
SHUTDOWN_S = 3.0


class Health(StrEnum):
    """How a part is, from the best to the worst."""

    OK = "ok"
    WARNING = "warning"
    FAILING = "failing"


WORST_FIRST = (Health.FAILING, Health.WARNING, Health.OK)


@dataclass(frozen=True, slots=True)
class Part:
    """What one part of the process says of itself: one sentence, and the numbers behind it."""

    health: Health
    says: str
    numbers: Mapping[str, float | int | None] = field(default_factory=dict)


Ask = Callable[[], Awaitable[Part]]


def make_app(parts: Mapping[str, Ask], registry: CollectorRegistry, *, part_s: float = PART_S) -> web.Application:
    """The application, without a socket. A part may take `part_s` to answer."""

    async def healthz(_request: web.Request) -> web.Response:
        found = dict(zip(parts, await asyncio.gather(*(_ask(ask, part_s) for ask in parts.values())), strict=True))
        worst = next(
            (health for health in WORST_FIRST if any(part.health is health for part in found.values())), None
        )
        said = {name: {"status": part.health, "says": part.says, **part.numbers} for name, part in found.items()}
        body = {"status": worst or Health.OK, "parts": said}
        return web.json_response(body, status=503 if worst is Health.FAILING else 200)

    async def metrics(_request: web.Request) -> web.Response:
        return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = web.Application()
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/metrics", metrics)
    return app


async def _ask(ask: Ask, part_s: float) -> Part:
    answers = await asyncio.gather(asyncio.wait_for(ask(), part_s), return_exceptions=True)
    match answers[0]:
        case Part() as part:
            return part
        case TimeoutError():
            return Part(Health.FAILING, f"No answer within {part_s:g} s.")
        case error:
            return Part(Health.FAILING, f"Asking failed with {type(error).__name__}.")


@asynccontextmanager
async def serving(app: web.Application, host: str, port: int) -> AsyncIterator[int]:
    """Serve `app` there; the port (with 0 a free one is chosen). Raises `BadInput` if that address can't be had."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_S)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            raise BadInput(_why_not(error, host, port)) from error
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


def _why_not(error: OSError, host: str, port: int) -> str:
    if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        return f"This machine has no address {host} to listen on; choose one of its own, or 0.0.0.0 for all of them."
    if error.errno == errno.EADDRINUSE:
        return f"Port {port} on {host} is in use; end the program that listens there, or choose another port."
    if error.errno == errno.EACCES:
        return f"This user may not listen on port {port}; choose a port above 1023."
    return f"Can't listen on port {port} of {host} ({error.strerror or error}); choose another port."


# -- the parts


def database_part(db: Database, now: Callable[[], float]) -> Ask:
    """Whether the database answers. `now` is monotonic seconds."""

    async def ask() -> Part:
        began = now()
        async with db.reading() as tx:
            await tx.execute(text("SELECT 1"))
        took_ms = round((now() - began) * 1000, 1)
        return Part(Health.OK, f"The database ({db.dialect}) answers.", {"took_ms": took_ms})

    return ask


def round_part(who: str, last: Callable[[], float | None], now: Callable[[], float], limit_s: float) -> Ask:
    """Whether somebody who goes round for ever (the worker, the writer) still does. `last`: monotonic seconds."""

    async def ask() -> Part:
        at = last()
        if at is None:
            return Part(Health.FAILING, f"The {who} has not begun yet.", {"age_s": None})
        age_s = max(0.0, now() - at)
        numbers = {"age_s": round(age_s, 1), "limit_s": limit_s}
        if age_s > limit_s:
            return Part(Health.FAILING, f"The {who}'s last round was {span(age_s)} ago; it hangs.", numbers)
        return Part(Health.OK, f"The {who} goes its rounds.", numbers)

    return ask


class Hearing(Protocol):
    """What the Socket Mode connection heard last; monotonic seconds."""

    @property
    def hello_at(self) -> float | None: ...

    @property
    def connections(self) -> int: ...

    @property
    def reconnects(self) -> int: ...


def socket_part(heard: Hearing, now: Callable[[], float], ours: int = 1) -> Ask:
    """Whether Slack greeted our socket, and whether somebody else listens with our token."""

    async def ask() -> Part:
        if heard.hello_at is None:
            return Part(Health.FAILING, "Slack has not greeted our socket yet: nothing arrives.")
        numbers = {
            "hello_age_s": round(max(0.0, now() - heard.hello_at), 1),
            "connections": heard.connections,
            "own_connections": ours,
            "reconnects": heard.reconnects,
        }
        if heard.connections > ours:
            strangers = heard.connections - ours
            says = (
                f"Slack counts {heard.connections} connections and {ours} is ours: {strangers} more get our clicks."
            )
            return Part(Health.WARNING, f"{says} Is another process running with this app token?", numbers)
        return Part(Health.OK, "Connected to Slack, and nobody else is.", numbers)

    return ask
