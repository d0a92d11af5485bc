"""`pilothouse demo` as a process: ready, explained, ended by Ctrl-C, and going on where it ended."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bot.demo import town
from bot.playground.slack import LocalSlack
from core.errors import BadInput
from tests.support.processes import free_port, spawn, until

pytestmark = pytest.mark.process

NOWHERE = "http://127.0.0.1:9"
PROXIES = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy"), NOWHERE)
CHANNEL, QUESTION = "C0INCIDENT", "<@U0PILOT> checkout answers 5xx since 14:05, what is going on?"
PATIENCE_S = 60


class Demo:
    """One run, and a person at its page."""

    def __init__(self, process: subprocess.Popen[bytes], url: str, log: Path, http: aiohttp.ClientSession) -> None:
        self.process, self.url, self.log, self._http = process, url, log, http

    def said(self) -> str:
        return self.log.read_text()

    async def ask(self, text: str) -> str:
        body = {"channel": CHANNEL, "user": "U0ENGINEER", "text": text}
        async with self._http.post(f"{self.url}/playground/message", json=body) as answer:
            return str((await answer.json())["ts"])

    async def thread(self, root: str | None = None) -> list[Any]:
        """A thread, or the channel."""
        where = {"channel": CHANNEL} | ({"thread_ts": root} if root else {})
        async with self._http.get(f"{self.url}/playground/messages", params=where) as answer:
            return list((await answer.json())["messages"])

    async def reads(self, root: str, words: str) -> None:
        async def there() -> bool:
            return words in str(await self.thread(root))

        await until(there, PATIENCE_S)

    async def interrupt(self, times: int = 1) -> int:
        for _ in range(times):
            self.process.send_signal(signal.SIGINT)
        return await asyncio.wait_for(asyncio.to_thread(self.process.wait), PATIENCE_S)


@asynccontextmanager
async def demo(data: Path, log: Path, speed: str) -> AsyncIterator[Demo]:
    """A demo that is ready, in an environment whose proxies lead nowhere."""
    port = free_port()
    command = [sys.executable, "-m", "bot.cli", "demo", "--no-browser", "--port", str(port)]
    process = spawn([*command, "--data", str(data), "--speed", speed], log, env=dict(os.environ) | PROXIES)
    try:
        async with aiohttp.ClientSession() as http:
            made = Demo(process, f"http://127.0.0.1:{port}", log, http)
            await until(lambda: "Ready after" in made.said() or process.poll() is not None, PATIENCE_S)
            assert process.poll() is None, made.said()
            yield made
    finally:
        process.kill()
        process.wait()


async def test_a_demo_ends_cleanly_in_the_middle_of_a_turn_and_the_next_one_goes_on_with_it(tmp_path: Path) -> None:
    async with demo(tmp_path / "data", tmp_path / "first.log", "2") as first:
        assert f"Open     {first.url}" in first.said() and "Ctrl-C" in first.said()
        alert = await first.thread()
        assert "CheckoutErrorRate" in str(alert)
        root = await first.ask(QUESTION)
        await first.reads(root, "prometheus query")
        assert await first.interrupt() == 0
        assert first.said().endswith("Ending (Ctrl-C again ends at once) ...\nEnded. Nothing is left running.\n")
        assert "Traceback" not in first.said()
    async with demo(tmp_path / "data", tmp_path / "second.log", "20") as second:
        assert (await second.thread())[0] == alert[0]
        await second.reads(root, "Answered below.")
        cards = [m for m in await second.thread(root) if "Answered below." in str(m.get("blocks"))]
        assert len(cards) == 1 and "stop_step" not in str(cards)
        assert await second.interrupt(times=3) == 0
        assert "Traceback" not in second.said() and "Warning" not in second.said()


async def test_a_port_in_use_is_one_sentence_that_says_what_to_do(tmp_path: Path) -> None:
    async with LocalSlack() as slack:
        with pytest.raises(BadInput) as refused:
            async with town(tmp_path / "data", port=slack.port):
                pass
        assert str(refused.value) == (
            f"Port {slack.port} is in use: choose another one with --port, or --port 0 for any free one."
        )


async def test_the_doctor_finds_the_demo_well(tmp_path: Path) -> None:
    async with demo(tmp_path / "data", tmp_path / "log", "50") as running:
        (check,) = [line for line in running.said().splitlines() if line.startswith("  Check ")]
        config = check.rpartition("--config ")[2]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bot.cli", "doctor", "--config", config),
            env=dict(os.environ) | PROXIES,
            stdout=asyncio.subprocess.PIPE,
        )
        out, _ = await process.communicate()
    assert process.returncode == 0, out.decode()
    assert "failing" not in out.decode() and "scripted-model" in out.decode()
