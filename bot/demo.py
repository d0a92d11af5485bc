"""`pilothouse demo`: the product between two far ends that run here. No account, no key, nothing leaves the machine.

Only the far ends are replaced: a local Slack with a page in the browser, a world with one incident behind the APIs of
Prometheus, Loki and Kubernetes, and a scripted model (with ANTHROPIC_API_KEY set the real one plays). Everything in
between is what runs in production.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import time
import webbrowser
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from bot.app import App, build
from bot.playground.model import Script, ScriptedModel, incident_script
from bot.playground.slack import LocalSlack, Workspace
from bot.playground.world import World
from bot.settings import ChannelPart, Settings, demo_settings
from bot.telemetry import configure_logging
from core.errors import BadInput
from core.limits import Limits
from core.ports import Tool
from storage.database import Database
from storage.reports import ledger_panel

DEFAULT_PORT = 8765
DEFAULT_DATA = Path(".pilothouse/demo")
LOG = "log.jsonl"
SLOW_LOGS_S = 8.0
ON_CALL = frozenset({"U0ONCALL"})
HIGHEST_PORT = 65_535


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
) -> AsyncIterator[Town]:
    """Build everything. `speed` multiplies how fast the far ends are; tests bring their own script, limits and tools.

    Raises `BadInput`.
    """
    async with AsyncExitStack() as stack:
        world = await stack.enter_async_context(World())
        world.slow("loki", SLOW_LOGS_S / speed, match="web-3")
        model: ScriptedModel | None = None
        if not api_key:
            model = await stack.enter_async_context(ScriptedModel(script or incident_script(), speed=speed))
        opened: list[Database] = []

        async def ledger(channel: str, thread_ts: str) -> dict[str, object]:
            return await ledger_panel(opened[0], channel, thread_ts) if opened else {"turns": []}

        plays = model_name or "the real model" if api_key else "scripted"
        slack = await stack.enter_async_context(
            LocalSlack(workspace or Workspace(), port=port, ledger=ledger, scene={"model": plays, "note": NOTE})
        )
        settings = demo_settings(
            data=data,
            slack_url=slack.api_url,
            workspace=slack.workspace,
            world=world,
            model_url=model.url if model is not None else None,
            api_key=api_key,
            model_name=model_name,
        ).model_copy(update={"channels": {"default": ChannelPart(on_call=ON_CALL, approvers=ON_CALL)}})
        app = await stack.enter_async_context(build(settings, world_now=world.now, limits=limits, tools=tools))
        opened.append(app.db)
        yield Town(slack, world, model, settings, app)


NOTE = "Mention @Pilothouse in #incident-checkout, reply in the thread to redirect it, press Stop on its card."


async def _demo(port: int, data: Path, speed: float, browser: bool) -> None:
    began = time.monotonic()
    api_key = os.environ.get("ANTHROPIC_API_KEY", "").strip()
    model_name = os.environ.get("PILOTHOUSE_MODEL", "claude-sonnet-5-5" if api_key else "")
    async with town(data, port=port, speed=speed, api_key=api_key, model_name=model_name) as made:
        loop = asyncio.get_running_loop()
        for name in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(name, made.app.stop)
        running = asyncio.ensure_future(made.app.run())
        await asyncio.wait({running, asyncio.ensure_future(made.slack.connected(1))}, return_when="FIRST_COMPLETED")
        if not running.done():
            _greet(made, data, time.monotonic() - began)
            if browser:
                await asyncio.to_thread(webbrowser.open, made.slack.url)
        await running
    _say("Ended. Nothing is left running.")


def _greet(made: Town, data: Path, took_s: float) -> None:
    who = (
        f"the real model {made.settings.model.name} (ANTHROPIC_API_KEY is set)"
        if made.model is None
        else ("a scripted model (set ANTHROPIC_API_KEY to let the real one play)")
    )
    pilothouse = "pilothouse" if shutil.which("pilothouse") else ".venv/bin/pilothouse"
    _say(
        f"""
Pilothouse demo: a local Slack, one incident, {who}.

  Open     {made.slack.url}
  Try      @Pilothouse checkout answers 5xx since 14:05, what is going on?
           reply in its thread: don't look at that host, it's the gateway
           press Stop on its card, or write: stop, wrong cluster
  Explain  {pilothouse} turns list --data {data}       (the log: {data / LOG})
  End      Ctrl-C

Ready after {took_s:.1f} s."""
    )


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def run(port: int, data: Path | None, speed: float, browser: bool) -> int:
    """Run the demo until Ctrl-C; the exit code. Raises `BadInput`."""
    if not 0 <= port <= HIGHEST_PORT:
        raise BadInput(f"--port {port} is no port; give one from 1 to {HIGHEST_PORT}, or 0 for any free one.")
    if not speed > 0:
        raise BadInput("--speed must be greater than 0; 2 is twice as fast.")
    if data is None:
        shutil.rmtree(DEFAULT_DATA, ignore_errors=True)
    _say("Starting: a local Slack, a world with one incident, and the real Pilothouse between them ...")
    place = data or DEFAULT_DATA
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (place / LOG).open("a", encoding="utf-8") as log:
        configure_logging(log)
        asyncio.run(_demo(port, place, speed, browser))
    return 0
