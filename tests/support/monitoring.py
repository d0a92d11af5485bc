"""A real Prometheus and a real Alertmanager for tests, from the machine's packages, on loopback ports of their own.

Where a binary is missing the test is skipped, unless PILOTHOUSE_NEEDS_SERVERS says that this machine must have it.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.processes import end, free_port, spawn, wait_until_up

REQUIRED = "PILOTHOUSE_NEEDS_SERVERS"
PROMETHEUS = ("prometheus",)
ALERTMANAGER = ("prometheus-alertmanager", "alertmanager")

ROUTES = {
    "route": {
        "receiver": "nobody",
        "group_by": ["alertname"],
        "routes": [{"matchers": ['team="shop"'], "receiver": "shop"}],
    },
    "receivers": [{"name": "nobody"}, {"name": "shop"}],
    "inhibit_rules": [
        {"source_matchers": ['severity="critical"'], "target_matchers": ['severity="info"'], "equal": ["service"]}
    ],
}


@dataclass(frozen=True, slots=True)
class Server:
    """A running server; `url` has no slash at its end."""

    url: str


def binary(names: tuple[str, ...], environ: Mapping[str, str] = os.environ) -> str:
    """Where a server is. Skips the test where it is not installed, or fails it if it must be."""
    found = next((path for name in names if (path := shutil.which(name))), None)
    if found is None:
        why = f"{names[0]} is not installed (Debian: apt-get install {names[0]})"
        if environ.get(REQUIRED):
            pytest.fail(f"{why}, but {REQUIRED} is set")
        pytest.skip(why)
    return found


@contextmanager
def running_prometheus(targets: Mapping[str, str]) -> Iterator[Server]:
    """A Prometheus that looks at itself and at `targets` (job to host:port) four times a second."""
    port = free_port()
    jobs = {"prometheus": f"127.0.0.1:{port}", **targets}
    config = {
        "global": {"scrape_interval": "250ms", "scrape_timeout": "250ms"},
        "scrape_configs": [{"job_name": job, "static_configs": [{"targets": [at]}]} for job, at in jobs.items()],
    }
    with _running(PROMETHEUS, port, config, "--storage.tsdb.path", ["--storage.tsdb.retention.time=1h"]) as server:
        yield server


@contextmanager
def running_alertmanager() -> Iterator[Server]:
    """An Alertmanager that notifies nobody: receivers `nobody` and `shop`; critical inhibits info of one service."""
    with _running(ALERTMANAGER, free_port(), ROUTES, "--storage.path", ["--cluster.listen-address="]) as server:
        yield server


@contextmanager
def _running(names: tuple[str, ...], port: int, config: object, storage: str, options: list[str]) -> Iterator[Server]:
    command = binary(names)
    directory = Path(tempfile.mkdtemp(prefix=f"pilothouse-{names[0]}-", dir="/tmp"))
    try:
        (directory / "config.yml").write_text(json.dumps(config), encoding="utf-8")
        log, url = directory / "log", f"http://127.0.0.1:{port}"
        listen = f"--web.listen-address=127.0.0.1:{port}"
        given = [f"--config.file={directory / 'config.yml'}", f"{storage}={directory / 'data'}", listen]
        process = spawn([command, *given, *options], log)
        try:
            wait_until_up(process, lambda: _ready(url), log)
            yield Server(url)
        finally:
            end(process)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/-/ready", timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
