"""The one place that builds things. Tests call the same function with the same parts, only other far ends.

    async with build(settings, ...) as app:
        await app.run()          until `app.stop()`: then every turn is cut at a safe point

Order of the end: no new events, no new claims, turns to their safe points, what is due to Slack, connections.
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import aiohttp
import structlog
from aiohttp import web
from slack_bolt.async_app import AsyncApp
from slack_bolt.authorization import AuthorizeResult
from slack_sdk.web.async_client import AsyncWebClient

from bot.channels import Channels
from bot.doctor import channels as channels_doctor
from bot.doctor import slack as slack_doctor
from bot.doctor import storage as storage_doctor
from bot.doctor import tools as tools_doctor
from bot.doctor.finding import Check, Finding, examined, failing, secrets_of
from bot.http import database_part, make_app, round_part, socket_part
from bot.ids import new_id
from bot.importing import imported
from bot.late_model import LateModel
from bot.model_names import ModelNames
from bot.prices import cost_usd
from bot.prompt import SYSTEM
from bot.scheduler import Sweeps
from bot.settings import ModelPart, Settings
from bot.slack.blocks import RunningTurn
from bot.slack.connection import Connection, preflight, proxy_for
from bot.slack.deliveries import Deliveries
from bot.slack.events import Events
from bot.slack.identity import Me
from bot.slack.items import Items
from bot.slack.pace import Pace
from bot.slack.people import Groups, People
from bot.slack.pictures import Pictures
from bot.slack.reader import SlackReader
from bot.slack.reading import Listening
from bot.slack.requests import Requests
from bot.slack.send import Sender
from bot.slack.signature import verified
from bot.slack.writer import Writer
from bot.telemetry import Telemetry
from bot.toolbox import open_tools
from bot.version import version
from bot.watching import CountedModel, LoopClock, Traces, Watching
from core.agent_loop import Means
from core.errors import BadInput
from core.gateway import Gateway
from core.ledger import Frozen
from core.limits import Limits
from core.messages import ChannelId, TurnId, UserId
from core.ports import Doorbell, Model, Tool
from core.worker import Worker
from storage.database import Database
from storage.doorbell import LocalDoorbell
from storage.ledger.scene import running_turns
from storage.ledger.sql import SqlLedger
from storage.mailbox import Mailbox
from storage.migrate import upgrade

log = structlog.get_logger(__name__)

DRAIN_WRITER_S = 4.0
DRAIN_REST_S = 1.0
"""What the writer and the closing of connections get of the time to drain; the turns get the rest."""
SLACK_TIMEOUT_S = 10.0
ROUND_LIMIT_S = 15.0
EVENTS_PATH = "/slack/events"


@dataclass(slots=True)
class App:
    """One running Pilothouse: a worker, the writer, the listeners, the sweeps.

    `web` answers operators, and Slack in HTTP mode; whoever serves gives it a socket.
    """

    settings: Settings
    db: Database
    mailbox: Mailbox
    ledger: SqlLedger
    worker: Worker
    writer: Writer
    sweeps: Sweeps
    connection: Connection
    groups: Groups
    telemetry: Telemetry
    web: web.Application
    limits: Limits
    _stop: asyncio.Event = field(default_factory=asyncio.Event)

    def stop(self) -> None:
        """End: cut at safe points, hand over, close. `run` returns within `drain_s`."""
        self._stop.set()

    async def run(self) -> None:
        """Work until `stop`. Raises what ended it if it ended by itself."""
        await self.groups.refresh()
        await self.sweeps.once()
        stopped: asyncio.Future[object] = asyncio.ensure_future(self._stop.wait())
        running: list[asyncio.Future[object]] = [
            asyncio.ensure_future(self.worker.run()),
            asyncio.ensure_future(self.writer.run()),
            asyncio.ensure_future(self.groups.keep_fresh()),
            asyncio.ensure_future(self.telemetry.watch_loop(LoopClock())),
        ]
        self.sweeps.start()
        opening: asyncio.Future[object] = asyncio.ensure_future(self.connection.open())
        try:
            await asyncio.wait({opening, *running, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if opening.done():
                opening.result()
                log.info("ready", worker=self.worker.name, mode=self.settings.slack.mode)
            await asyncio.wait({*running, stopped}, return_when=asyncio.FIRST_COMPLETED)
            for task in running:
                if task.done():
                    task.result()
        finally:
            opening.cancel()
            await self._end()
            for task in (*running, stopped):
                task.cancel()
            await asyncio.gather(opening, *running, stopped, return_exceptions=True)

    async def _end(self) -> None:
        """Everything within `drain_s`: whoever sent SIGTERM sends SIGKILL after a while."""
        ended = await asyncio.gather(
            self.connection.close(),
            self.worker.drain(self.limits.drain_s - DRAIN_WRITER_S - DRAIN_REST_S),
            self.sweeps.stop(),
            return_exceptions=True,
        )
        for error in ended:
            if error is not None:
                log.error("end_failed", error=repr(error))
        await self.writer.drain(DRAIN_WRITER_S)


def worker_name() -> str:
    """Who this worker is, unique among all that ever ran: host, process, and a little chance."""
    return f"{socket.gethostname()[:40]}-{os.getpid()}-{new_id('w')[-5:]}"


@asynccontextmanager
async def build(
    settings: Settings,
    *,
    model: Model | None = None,
    tools: Sequence[Tool] | None = None,
    limits: Limits | None = None,
    name: str | None = None,
    world_now: Callable[[], float] = time.time,
    now: Callable[[], float] = time.monotonic,
    jitter: Callable[[], float] = random.random,
    pace: Pace | None = None,
) -> AsyncIterator[App]:
    """Everything, connected. Raises `BadInput` with one sentence for whatever an operator has to mend.

    `limits` stand in for the configured ones, `pace` for Slack's; `world_now` is the tools' time of day.
    """
    async with AsyncExitStack() as stack:
        name = name or worker_name()
        telemetry = Telemetry()
        watching = Watching(telemetry, _traces(settings, name, stack))
        db = await Database.connect(settings.database_url)
        stack.push_async_callback(db.close)
        await upgrade(db)
        http = await stack.enter_async_context(
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), trust_env=False)
        )
        client = await _slack_client(settings, stack)
        me = await preflight(client, settings.slack)
        channels = settings.channels_config(limits)
        limits = limits or channels.limits("")
        doorbell = await _doorbell(settings, stack)
        chosen, names = (model, None) if model is not None else _model(settings, stack)
        opened = await open_tools(settings, http, world_now, stack) if tools is None else tools
        gateway = Gateway(opened, limits, now)

        def changed() -> None:
            writer.changed()

        mailbox = Mailbox(db, doorbell, new_id, channels.policy, changed)
        writer = _writer(settings, db, client, http, channels, mailbox, telemetry, me, name, now, pace, limits)
        ledger = SqlLedger(
            db,
            doorbell,
            limits,
            worker=name,
            ids=new_id,
            price=cost_usd,
            changed=changed,
            closed=watching.closed,
            stitched=watching.stitched,
        )
        frozen = Frozen(settings.model.name, SYSTEM, gateway.declaration())
        worker = Worker(
            Means(
                model=CountedModel(chosen, telemetry),
                gateway=gateway,
                ledger=ledger,
                limits=limits,
                now=now,
                jitter=jitter,
                fallback_model=settings.model.fallback or None,
                approvals=channels.approvals,
            ),
            ledger,
            doorbell,
            lambda _session: frozen,
            SlackReader(
                client,
                http,
                settings.slack.bot_token.get_secret_value(),
                bot_user=me.user_id,
                words=settings.stop_words(),
                proxy=partial(proxy_for, configured=settings.slack.proxy),
            ),
            name=name,
            slots=limits.slots,
            settled=watching.settled,
            fault=watching.fault,
            trouble=watching.trouble,
            limits_of=channels.limits,
        )
        bolt = _bolt(settings, client, me)
        _events(settings, client, me, channels, mailbox, db, telemetry, now).register(bolt)
        connection = Connection(bolt, settings.slack, now)
        yield App(
            settings,
            db,
            mailbox,
            ledger,
            worker,
            writer,
            Sweeps(db, doorbell, new_id, owner=name, found=telemetry.sweep_found, changed=changed),
            connection,
            Groups(client, channels),
            telemetry,
            _web(settings, db, worker, writer, connection, names, telemetry, now),
            limits,
        )


CHECK_S = 30.0
"""What one check of the doctor may take; its own calls end sooner."""


async def examine(settings: Settings) -> list[Finding]:
    """What `pilothouse doctor` finds: every part that `build` would build is asked how it is, and nothing changes."""
    async with AsyncExitStack() as stack:
        client = await _slack_client(settings, stack)
        http = await stack.enter_async_context(aiohttp.ClientSession(trust_env=False))
        troubles: list[str] = []
        tools = await _tools_or_why_not(settings, http, stack, troubles.append)
        scopes = slack_doctor.Scopes.of(slack_doctor.MANIFEST)
        checks: dict[str, Check] = {
            "bot token": slack_doctor.SlackDoctor(client, settings.slack, scopes).look,
            "model": partial(_model_names, settings.model),
            "database": partial(storage_doctor.database, settings.database_url),
            **({"redis": partial(storage_doctor.redis, settings.redis_url)} if settings.redis_url else {}),
            "tools": partial(tools_doctor.look, tools, troubles),
            "approvers": partial(channels_doctor.look, client, settings.slack, settings.channels, tools),
        }
        return await examined(checks, CHECK_S, secrets_of(settings))


async def _tools_or_why_not(
    settings: Settings, http: aiohttp.ClientSession, stack: AsyncExitStack, tell: Callable[[str], None]
) -> Sequence[Tool] | Exception:
    """The tools, opened in this task: some of them can be closed only where they were opened."""
    try:
        async with asyncio.timeout(CHECK_S):
            return await open_tools(settings, http, time.time, stack, tell)
    except Exception as error:  # noqa: BLE001 - whatever keeps a tool from opening is what the doctor is asked for
        return error


async def _model_names(model: ModelPart) -> Sequence[Finding]:
    found: Sequence[Finding] = await (await asyncio.to_thread(imported, "bot.doctor.model")).look(model)
    return found


# -- the parts


async def _slack_client(settings: Settings, stack: AsyncExitStack) -> AsyncWebClient:
    session = await stack.enter_async_context(
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=SLACK_TIMEOUT_S))
    )
    client = AsyncWebClient(
        token=settings.slack.bot_token.get_secret_value(),
        base_url=settings.slack.base_url,
        session=session,
        retry_handlers=[],
    )
    client.proxy = proxy_for(settings.slack.base_url, settings.slack.proxy)
    return client


def _traces(settings: Settings, name: str, stack: AsyncExitStack) -> Traces | None:
    """Where spans go; nothing of OpenTelemetry is imported when that is nowhere."""
    endpoint = settings.telemetry.otlp_endpoint
    if not endpoint:
        return None
    tracing = imported("bot.tracing")
    headers = tracing.headers_of(settings.telemetry.otlp_headers.get_secret_value())
    traces = tracing.Traces(endpoint, headers, worker=name, version=version(), now=time.time, clock=time.monotonic)
    stack.push_async_callback(traces.close)
    made: Traces = traces
    return made


async def _doorbell(settings: Settings, stack: AsyncExitStack) -> Doorbell:
    if not settings.redis_url:
        return LocalDoorbell()
    doorbell: Doorbell = await stack.enter_async_context(
        imported("storage.redis_doorbell").RedisDoorbell(settings.redis_url)
    )
    return doorbell


def _model(settings: Settings, stack: AsyncExitStack) -> tuple[Model, ModelNames]:
    """The real model's adapter; the SDK is imported in a thread, because it takes 1.5 s."""

    def load() -> Model:
        claude = imported("bot.claude")
        imported("bot.doctor.model")
        key = settings.model.api_key.get_secret_value()
        client = claude.connect(key, settings.model.base_url, direct=settings.model.direct)
        connected.append(client)
        loaded: Model = claude.ClaudeModel(client)
        return loaded

    async def ask() -> Sequence[Finding]:
        try:
            await late.ready()
        except BadInput as error:
            return [failing("model", str(error))]
        found: Sequence[Finding] = await imported("bot.doctor.model").known(connected[0], settings.model)
        return found

    connected: list[Any] = []

    late = LateModel(load)
    late.start()
    stack.push_async_callback(late.close)
    names = ModelNames(ask)
    names.start()
    stack.push_async_callback(names.close)
    return late, names


def _writer(
    settings: Settings,
    db: Database,
    client: AsyncWebClient,
    http: aiohttp.ClientSession,
    channels: Channels,
    mailbox: Mailbox,
    telemetry: Telemetry,
    me: Me,
    name: str,
    now: Callable[[], float],
    pace: Pace | None,
    limits: Limits,
) -> Writer:
    sender = Sender(client, http, telemetry.slack_call, partial(proxy_for, configured=settings.slack.proxy))
    items = Items(
        sender,
        Requests(sender, channels.approvers),
        Pictures(sender),
        known_hosts=settings.known_hosts,
        native_stop=settings.slack.agent_sessions,
    )
    deliveries = Deliveries(db, sender, items, channels.limits, mailbox.closed, me.url)
    return Writer(
        db,
        deliveries,
        name=name,
        team=me.team_id,
        now=now,
        pace=pace,
        lease_s=limits.lease_s,
        margin_s=limits.lease_margin_s,
    )


def _bolt(settings: Settings, client: AsyncWebClient, me: Me) -> AsyncApp:
    """Bolt asks nobody who we are: the preflight has. Its own question would go through the environment's proxy."""
    token = client.token
    own = AsyncWebClient(base_url=client.base_url, session=client.session, retry_handlers=[])
    own.proxy = client.proxy

    async def authorize(enterprise_id: str | None, team_id: str | None) -> AuthorizeResult:
        return AuthorizeResult(
            enterprise_id=enterprise_id,
            team_id=team_id,
            bot_user_id=me.user_id,
            bot_id=me.bot_id,
            bot_token=token,
        )

    return AsyncApp(
        client=own,
        authorize=authorize,
        signing_secret=settings.slack.signing_secret.get_secret_value() or None,
        process_before_response=True,
        ignoring_self_events_enabled=False,
    )


def _events(
    settings: Settings,
    client: AsyncWebClient,
    me: Me,
    channels: Channels,
    mailbox: Mailbox,
    db: Database,
    telemetry: Telemetry,
    now: Callable[[], float],
) -> Events:
    listening = Listening(
        words=settings.stop_words(),
        native_stop=settings.slack.native_stop,
        alert_bots=settings.alert_bots,
    )

    async def running(person: str) -> list[RunningTurn]:
        async with db.reading() as tx:
            found = await running_turns(tx, None, person)
        return [
            RunningTurn(TurnId(row["id"]), UserId(row["asked_by"]), row["asked_text"], ChannelId(row["channel"]), 0.0)
            for row in found
        ]

    return Events(
        client,
        me,
        People(client, me, channels.rights, now),
        mailbox,
        listening,
        now_ts=lambda: f"{time.time():.6f}",
        running=running,
        heard=telemetry.event,
        proxy=partial(proxy_for, configured=settings.slack.proxy),
    )


def _web(
    settings: Settings,
    db: Database,
    worker: Worker,
    writer: Writer,
    connection: Connection,
    names: ModelNames | None,
    telemetry: Telemetry,
    now: Callable[[], float],
) -> web.Application:
    parts = {
        "database": database_part(db, now),
        "worker": round_part("worker", lambda: worker.last_round, now, ROUND_LIMIT_S),
        "writer": round_part("writer", lambda: writer.last_round, now, ROUND_LIMIT_S),
    }
    if names is not None:
        parts["model"] = names.part
    if settings.slack.mode == "socket":
        parts["slack"] = socket_part(connection.heard, now)
    made = make_app(parts, telemetry.registry)
    if settings.slack.mode == "http":
        secret = settings.slack.signing_secret.get_secret_value()
        made.router.add_post(EVENTS_PATH, verified(secret, connection.handle))
    return made
