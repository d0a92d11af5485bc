"""Servers that tests start: they die with the test run, however it ends."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

_PR_SET_PDEATHSIG = 1
NOBODY = 65534


def free_port() -> int:
    """A port of the loopback interface that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def spawn(
    command: Sequence[str], log: Path, *, as_nobody: bool = False, env: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a server whose output goes to `log`. On Linux the kernel ends it when this process dies."""
    identity = NOBODY if as_nobody else None
    with log.open("wb") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            user=identity,
            group=identity,
            extra_groups=[] if as_nobody else None,
            env=env,
            preexec_fn=_die_with_parent if sys.platform == "linux" else None,
        )


def end(process: subprocess.Popen[bytes], signal_number: int = signal.SIGTERM) -> None:
    """End what `spawn` started, at the latest after ten seconds by force."""
    process.send_signal(signal_number)
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(10)


def wait_until_up(process: subprocess.Popen[bytes], ready: Callable[[], bool], log: Path) -> None:
    """Wait for a server that was just started; its log is the error when it does not come up."""
    deadline = time.monotonic() + 30
    while not ready():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"The server did not come up:\n{log.read_text(errors='replace')}")
        time.sleep(0.01)


async def until(predicate: Callable[[], object | Awaitable[object]], timeout_s: float = 20) -> None:
    """Wait for a condition that may take a moment; fail when it does not come true in time."""
    async with asyncio.timeout(timeout_s):
        while True:
            answer = predicate()
            if await answer if isinstance(answer, Awaitable) else answer:
                return
            await asyncio.sleep(0.005)


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() == 1:
        os._exit(1)
