"""The one place that builds things. Tests call the same function with the same parts, only other far ends.

    async with build(settings, ...) as app:
        await app.run()          until `app.stop()`: then every turn is cut at a safe point

Order of the end: no new events, no new claims, turns to their safe points, what is due to Slack, connections.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import random
import socket
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
import structlog
from slack_bolt.async_app import AsyncApp
from slack_sdk.web.async_client import AsyncWebClient

from bot.ids import new_id
from bot.late_model import LateModel
from bot.prices import cost_usd
from bot.prompt import SYSTEM
from bot.settings import Settings
from bot.slack.blocks import RunningTurn
from bot.slack.connection import Connection, preflight, proxy_for
from bot.slack.deliveries import Deliveries
from bot.slack.events import Events
from bot.slack.items import Items
from bot.slack.pace import Pace
from bot.slack.people import People
from bot.slack.reader import SlackReader
from bot.slack.reading import Listening
from bot.slack.send import Sender
from bot.slack.writer import Writer
from bot.telemetry import Telemetry
from bot.toolbox import open_tools
from core.agent_loop import Means
from core.gateway import CallResult, Gateway
from core.ledger import Claimed, Frozen, Settled
from core.limits import Limits
from core.messages import ChannelId, SessionId, TurnId, UserId
from core.ports import Doorbell, Model, Tool
from core.worker import Worker
from storage.database import Database
from storage.doorbell import LocalDoorbell, RedisDoorbell
from storage.ledger.scene import running_turns
from storage.ledger.sql import SqlLedger
from storage.mailbox import Mailbox
from storage.migrate import upgrade

log = structlog.get_logger(__name__)

DRAIN_WRITER_S = 4.0
SLACK_TIMEOUT_S = 10.0


@dataclass(slots=True)
class App:
    """One running Pilothouse: a worker, the writer, the listeners, the sweeps."""

    settings: Settings
    db: Database
    mailbox: Mailbox
    ledger: SqlLedger
    worker: Worker
    writer: Writer
    connection: Connection
    telemetry: Telemetry
    limits: Limits
    background: Sequence[Callable[[], object]] = ()
    _stop: asyncio.Event = field(default_factory=asyncio.Event)

    def stop(self) -> None:
        """End: cut at safe points, hand over, close. `run` returns within `drain_s`."""
        self._stop.set()

    async def run(self) -> None:
        """Work until `stop`. Raises what ended it if it ended by itself."""
        worker: asyncio.Future[object] = asyncio.ensure_future(self.worker.run())
        writer: asyncio.Future[object] = asyncio.ensure_future(self.writer.run())
        stopped: asyncio.Future[object] = asyncio.ensure_future(self._stop.wait())
        try:
            await self.connection.open()
            log.info("ready", worker=self.worker.name, mode=self.settings.slack.mode)
            await asyncio.wait({worker, writer, stopped}, return_when=asyncio.FIRST_COMPLETED)
            for task in (worker, writer):
                if task.done():
                    task.result()
        finally:
            await self.connection.close()
            await self.worker.drain()
            await self.writer.drain(DRAIN_WRITER_S)
            for task in (worker, writer, stopped):
                task.cancel()
            await asyncio.gather(worker, writer, stopped, return_exceptions=True)


class LoopClock:
    """`core.ports.Clock` over the running event loop."""

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


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

    `pace` stands in for Slack's limits.
    """
    async with AsyncExitStack() as stack:
        name = name or worker_name()
        telemetry = Telemetry()
        db = await Database.connect(settings.database_url)
        stack.push_async_callback(db.close)
        await upgrade(db)
        http = await stack.enter_async_context(
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), trust_env=False)
        )
        slack_http = await stack.enter_async_context(
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=SLACK_TIMEOUT_S))
        )
        client = AsyncWebClient(
            token=settings.slack.bot_token.get_secret_value(),
            base_url=settings.slack.base_url,
            session=slack_http,
            retry_handlers=[],
        )
        client.proxy = proxy_for(settings.slack.base_url, settings.slack.proxy)
        me = await preflight(client, settings.slack)
        channels = settings.channels_config(limits)
        limits = limits or channels.limits("")
        doorbell = await _doorbell(settings, stack)
        chosen = model if model is not None else _model(settings, stack)
        if tools is None:
            tools = await open_tools(settings, http, world_now, stack)
        gateway = Gateway(tools, limits, now)
        items = Items(
            Sender(client, telemetry.slack_call),
            known_hosts=settings.known_hosts,
            native_stop=settings.slack.agent_sessions,
        )
        writer: Writer

        def changed() -> None:
            writer.changed()

        mailbox = Mailbox(db, doorbell, new_id, channels.policy, changed)
        ledger = SqlLedger(
            db,
            doorbell,
            limits,
            worker=name,
            ids=new_id,
            price=cost_usd,
            changed=changed,
            closed=lambda claimed, step, results: _closed(telemetry, claimed, step, results),
            stitched=telemetry.stitch,
        )
        deliveries = Deliveries(
            db, Sender(client, telemetry.slack_call), items, channels.limits, mailbox.channel_archived
        )
        writer = Writer(db, deliveries, name=name, team=me.team_id, now=now, pace=pace)
        means = Means(
            model=chosen,
            gateway=gateway,
            ledger=ledger,
            limits=limits,
            now=now,
            jitter=jitter,
            fallback_model=settings.model.fallback or None,
        )
        frozen = Frozen(settings.model.name, SYSTEM, gateway.declaration())
        worker = Worker(
            means,
            ledger,
            doorbell,
            lambda _session: frozen,
            SlackReader(client, http, settings.slack.bot_token.get_secret_value()),
            name=name,
            slots=limits.slots,
            settled=lambda claimed, settled: _settled(telemetry, claimed, settled),
            fault=lambda claimed, error: _fault(claimed, error),
            trouble=_trouble,
        )
        people = People(client, me, channels.rights, now)
        bolt = AsyncApp(
            client=client,
            signing_secret=settings.slack.signing_secret.get_secret_value() or None,
            process_before_response=True,
            ignoring_self_events_enabled=False,
        )
        listening = Listening(
            words=settings.stop_words(),
            native_stop=settings.slack.native_stop,
            alert_bots=settings.alert_bots,
        )
        Events(
            client,
            me,
            people,
            mailbox,
            listening,
            now_ts=lambda: f"{time.time():.6f}",
            running=lambda channel: _running(db, channel),
            heard=telemetry.event,
        ).register(bolt)
        connection = Connection(bolt, settings.slack, now)
        watch = asyncio.ensure_future(telemetry.watch_loop(LoopClock()))
        stack.callback(watch.cancel)
        yield App(settings, db, mailbox, ledger, worker, writer, connection, telemetry, limits)


async def _doorbell(settings: Settings, stack: AsyncExitStack) -> Doorbell:
    if not settings.redis_url:
        return LocalDoorbell()
    return await stack.enter_async_context(RedisDoorbell(settings.redis_url))


def _model(settings: Settings, stack: AsyncExitStack) -> Model:
    """The real model's adapter; the SDK is imported in a thread, because it takes 1.5 s."""

    def load() -> Model:
        claude = importlib.import_module("bot.claude")
        key = settings.model.api_key.get_secret_value()
        client = claude.connect(key, settings.model.base_url, direct=settings.model.direct)
        loaded: Model = claude.ClaudeModel(client)
        return loaded

    late = LateModel(load)
    late.start()
    stack.push_async_callback(late.close)
    return late


def _settled(telemetry: Telemetry, claimed: Claimed, settled: Settled) -> None:
    telemetry.turn_settled(settled.reason.value)
    log.info(
        "settled",
        turn=claimed.turn,
        session=claimed.lease.session,
        reason=settled.reason.value,
        steps=claimed.steps,
        next_turn=settled.next_turn,
    )


def _closed(telemetry: Telemetry, claimed: Claimed, step: int, results: Sequence[CallResult]) -> None:
    """One structured line for each call that ended."""
    for result in results:
        telemetry.tool_call(result.call.tool, result.status.value)
        log.info(
            "tool_call",
            trace_id=claimed.turn,
            step_index=step,
            tool=result.call.tool,
            input_summary=result.call.summary,
            output_summary=" ".join(result.text.split())[:200],
            status=result.status.value,
            duration_ms=round(result.duration_s * 1000, 1),
        )


def _fault(claimed: Claimed, error: BaseException) -> None:
    log.error("turn_failed", turn=claimed.turn, session=claimed.lease.session, exc_info=error)


def _trouble(error: BaseException) -> None:
    log.warning("worker_trouble", error=repr(error), kind=type(error).__name__)


async def _running(db: Database, channel: str | None) -> list[RunningTurn]:
    async with db.reading() as tx:
        found = await running_turns(tx, channel) if channel else []
    return [
        RunningTurn(TurnId(row["id"]), UserId(row["asked_by"]), row["asked_text"], ChannelId(row["channel"]), 0.0)
        for row in found
    ]


__all__ = ["App", "SessionId", "build", "worker_name"]
