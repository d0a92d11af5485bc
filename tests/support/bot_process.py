"""The program as a process of its own, between far ends that live in the test: ended, killed and started again."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

from tests.support.processes import free_port, spawn
from tests.support.rooms import FarEnds

BOT = [sys.executable, "-m", "bot.cli"]
ROOT = Path(__file__).parent.parent.parent
QUICK = {
    "LEASE_S": 8,
    "RENEW_S": 1,
    "LEASE_MARGIN_S": 1,
    "POLL_S": 0.2,
    "PATIENCE_S": 0.3,
    "QUIET_S": 0.01,
    "QUIET_MAX_S": 0.02,
    "TOOL_TIMEOUT_S": 60,
}
"""Limits that make a restart quick; everything else is as it is in production."""

_runs = count(1)


class BotProcess:
    """One run of `pilothouse serve`."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process = process
        self._log = log
        self._signalled_at = 0.0

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def log(self) -> list[Mapping[str, Any]]:
        """What it logged, line by line."""
        lines = self._log.read_text(errors="replace").splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def said(self) -> str:
        """Its whole output."""
        return self._log.read_text(errors="replace")

    def signal(self, number: int = signal.SIGTERM) -> None:
        self._signalled_at = time.monotonic()
        self._process.send_signal(number)

    async def ended(self, within_s: float = 25.0) -> int:
        """Wait for its end after a signal; its exit code."""
        async with asyncio.timeout(within_s):
            while self.running:  # noqa: ASYNC110 - a process, not an event
                await asyncio.sleep(0.02)
        assert time.monotonic() - self._signalled_at <= within_s
        return int(self._process.returncode)

    async def kill(self) -> None:
        """End it at once, as a crash would."""
        self.signal(signal.SIGKILL)
        await self.ended(10)


@asynccontextmanager
async def serving(ends: FarEnds, **limits: float) -> AsyncIterator[BotProcess]:
    """`pilothouse serve` between these far ends, connected. What still runs at the end of the block is killed."""
    ends.data.mkdir(parents=True, exist_ok=True)
    log = ends.data / f"run{next(_runs)}.log"
    process = spawn(
        [*BOT, "serve", "--config", str(_config(ends)), "--data", str(ends.data)], log, env=_env(ends, limits)
    )
    made = BotProcess(process, log)
    try:
        await ends.slack.until(lambda: ends.slack.wire.sockets or not made.running, 60)
        assert made.running, made.said()
        yield made
        assert "Traceback" not in made.said(), made.said()
    finally:
        if made.running:
            await made.kill()
        await ends.slack.until(lambda: not ends.slack.wire.sockets)


async def command(ends: FarEnds, *arguments: str) -> tuple[int, str]:
    """One command of an operator on the data of the running program: exit code and output."""
    process = await asyncio.create_subprocess_exec(
        *BOT,
        *arguments,
        "--data",
        str(ends.data),
        cwd=ROOT,
        env=_env(ends, {}),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    return int(process.returncode or 0), output.decode()


def _config(ends: FarEnds) -> Path:
    path = ends.data / "pilothouse.toml"
    path.write_text(
        f"""
[slack]
http_port = {free_port()}
alert_bots = ["B0MONITOR"]

[model]
direct = true

[tools]
prometheus_url = "{ends.world.prometheus_url}"
loki_url = "{ends.world.loki_url}"
kubernetes_url = "{ends.world.kubernetes_url}"

[channels.default]
on_call = ["U0ONCALL"]
approvers = ["U0ONCALL"]
"""
    )
    return path


def _env(ends: FarEnds, limits: Mapping[str, float]) -> dict[str, str]:
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("PILOTHOUSE", "ANTHROPIC", "SLACK"))
    }
    return kept | {
        "SLACK_BOT_TOKEN": ends.slack.workspace.bot_token,
        "SLACK_APP_TOKEN": ends.slack.workspace.app_token,
        "SLACK_API_BASE_URL": ends.slack.api_url,
        "ANTHROPIC_API_KEY": "local",
        "ANTHROPIC_BASE_URL": ends.model.url,
        "PILOTHOUSE_TOOLS__KUBERNETES_TOKEN": ends.world.token,
        "PYTHONPATH": str(ROOT),
        **{f"PILOTHOUSE_LIMITS__{name.upper()}": str(value) for name, value in {**QUICK, **limits}.items()},
    }
