"""`pilothouse demo`: the product between two far ends that run here. No account, no key, nothing leaves the machine.

Only the far ends are replaced: a local Slack with a page in the browser, a world with one incident behind the APIs of
Prometheus, Alertmanager, Loki and Kubernetes, and a scripted model (with ANTHROPIC_API_KEY set the real one plays).
Everything in between is what runs in production.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import threading
import time
import webbrowser
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from bot.app import App, build
from bot.demo_config import write_config
from bot.demo_data import demo_data
from bot.playground.model import Script, ScriptedModel, incident_script
from bot.playground.slack import LocalSlack, Workspace
from bot.playground.world import World
from bot.prices import DEFAULT_MODEL, PRICES
from bot.settings import ChannelPart, Settings, demo_settings
from bot.telemetry import configure_logging
from core.limits import Limits
from core.ports import Tool
from storage.database import Database
from storage.reports import ledger_panel

LOG = "log.jsonl"
SLACK_FILE = "slack.jsonl"
SCRIPTED = "scripted-model"
IMPATIENT = Limits(drain_s=6.0, drain_stream_margin_s=4.0)
"""Somebody waits at the keyboard for the end, and no other worker for the turn: it gets less time than in `serve`."""
SLOW_LOGS_S = 8.0
CONNECT_S = 600.0
INCIDENT = "C0INCIDENT"
ON_CALL = frozenset({"U0ONCALL"})


@dataclass(frozen=True, slots=True)
class Town:
    """A running demo: both far ends and the product between them."""

    slack: LocalSlack
    world: World
    model: ScriptedModel | None
    settings: Settings
    app: App


@asynccontextmanager
async def town(
    data: Path,
    *,
    port: int = 0,
    speed: float = 1.0,
    api_key: str = "",
    model_name: str = "",
    script: Script | None = None,
    workspace: Workspace | None = None,
    limits: Limits | None = None,
    tools: Sequence[Tool] | None = None,
    preapproved: frozenset[str] = frozenset(),
) -> AsyncIterator[Town]:
    """Build everything. `speed` multiplies how fast the far ends are; tests bring their own script, limits and tools.

    Tools in `preapproved` change things without asking anybody.

    Raises `BadInput`.
    """
    async with AsyncExitStack() as stack:
        world = await stack.enter_async_context(World(skip_s=SKIP_S))
        world.slow("loki", SLOW_LOGS_S / speed, match="web-3")
        model: ScriptedModel | None = None
        if not api_key:
            model = await stack.enter_async_context(
                ScriptedModel(script or incident_script(), speed=speed, models=(*PRICES, SCRIPTED))
            )
        opened: list[Database] = []

        async def ledger(channel: str, thread_ts: str) -> dict[str, object]:
            return await ledger_panel(opened[0], channel, thread_ts) if opened else {"turns": []}

        plays = model_name or "the real model" if api_key else "scripted"
        slack = await stack.enter_async_context(
            LocalSlack(
                workspace or Workspace(),
                port=port,
                ledger=ledger,
                scene={"model": plays, "note": NOTE},
                keep=data / SLACK_FILE,
            )
        )
        everywhere = ChannelPart(on_call=ON_CALL, approvers=ON_CALL, preapproved=preapproved)
        settings = demo_settings(
            data=data,
            slack_url=slack.api_url,
            workspace=slack.workspace,
            world=world,
            model_url=model.url if model is not None else None,
            api_key=api_key,
            model_name=model_name,
        ).model_copy(update={"channels": {"default": everywhere}})
        app = await stack.enter_async_context(build(settings, world_now=world.now, limits=limits, tools=tools))
        opened.append(app.db)
        yield Town(slack, world, model, settings, app)


SKIP_S = 300.0
"""How far the world's time goes on after a change: long enough for its metrics to show it."""

NOTE = "Mention @Pilothouse in #incident-checkout, reply in the thread to redirect it, press Stop on its card."


async def _demo(port: int, data: Path, speed: float, browser: bool, began: float) -> None:
    api_key = os.environ.get("ANTHROPIC_API_KEY", "").strip()
    model_name = os.environ.get("PILOTHOUSE_MODEL", "") or DEFAULT_MODEL if api_key else SCRIPTED
    async with town(data, port=port, speed=speed, api_key=api_key, model_name=model_name, limits=IMPATIENT) as made:
        if not made.slack.messages(INCIDENT):
            await made.slack.post_alert(INCIDENT, quiet=True)
        running = asyncio.ensure_future(made.app.run())
        _end_on_signals(made.app, running)
        connected = asyncio.ensure_future(made.slack.connected(1, timeout_s=CONNECT_S))
        await asyncio.wait({running, connected}, return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            await connected
            _greet(made, data, time.monotonic() - began)
            if browser and _has_display():
                threading.Thread(target=webbrowser.open, args=[made.slack.url], daemon=True).start()
        connected.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
    _say("Ended. Nothing is left running.")


def _end_on_signals(app: App, running: asyncio.Future[None]) -> None:
    """The first signal ends turns at their next safe point, the second one at once."""
    heard: list[int] = []

    def end(number: int) -> None:
        heard.append(number)
        if len(heard) == 1:
            _say(f"\nEnding{' (Ctrl-C again ends at once)' if app.worker.running else ''} ...")
            app.stop()
        else:
            running.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, end, number)


def _has_display() -> bool:
    """Whether a browser would open a window; without one it could take the terminal."""
    return sys.platform in ("darwin", "win32") or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))


def _greet(made: Town, data: Path, took_s: float) -> None:
    who = (
        f"the real model {made.settings.model.name} (ANTHROPIC_API_KEY is set)"
        if made.model is None
        else "a scripted model (set ANTHROPIC_API_KEY to let the real one play)"
    )
    pilothouse = "pilothouse" if shutil.which("pilothouse") else sys.argv[0]
    config = write_config(made.settings, data, real_model=made.model is None)
    _say(
        f"""
Pilothouse demo: a local Slack, one incident, {who}.

  Open     {made.slack.url}
  Try      @Pilothouse checkout answers 5xx since 14:05, what is going on?
           reply in its thread: don't look at that host, it's the gateway
           press Stop on its card, or write: stop, wrong cluster
           finish it: roll it back, and let Olive press Approve
  Explain  {pilothouse} turns list --data {data}
  Check    {pilothouse} doctor --config {config}
  Log      {data / LOG}
  End      Ctrl-C

Ready after {took_s:.1f} s."""
    )


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def run(port: int, data: Path | None, speed: float, browser: bool, began: float) -> int:
    """Run the demo until Ctrl-C; the exit code. `began` is when it was called, monotonic. Raises `BadInput`."""
    with demo_data(data) as place:
        configure_logging((place / LOG).open("a", encoding="utf-8"))  # open to the last: libraries log until then
        with contextlib.suppress(KeyboardInterrupt):  # one that came before the handlers, or while the loop closes
            asyncio.run(_demo(port, place, speed, browser, began))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return 0
