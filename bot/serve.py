"""`pilothouse serve`: a real workspace. SIGTERM drains: turns are cut at safe points and handed over within 25 s."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

from bot.app import build
from bot.http import serving
from bot.settings import Settings
from bot.telemetry import configure_logging


async def _serve(settings: Settings) -> None:
    async with build(settings) as app:
        loop = asyncio.get_running_loop()
        for name in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(name, app.stop)
        async with serving(app.web, settings.slack.http_host, settings.slack.http_port):
            await app.run()


def run(config: Path | None, data: Path | None) -> int:
    """Serve until a signal; the exit code. Raises `BadInput`."""
    settings = Settings.read(config, data)
    settings.check_complete()
    configure_logging()
    asyncio.run(_serve(settings))
    return 0
