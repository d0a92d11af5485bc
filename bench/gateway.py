"""What the door for tools costs: CPU of a call beside its tool, with its audit on SQLite; many at once; a large page.

A call here is everything that a call is in a turn, without model and Slack: its arguments are checked, the model's
answer and the call's row are committed, it runs, its result is cleaned, framed, committed and logged.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from bench.figures import Figure
from bench.machine import cpu_s
from bench.rig import ARGUMENTS, FOUND, MODEL
from bot.ids import new_id
from bot.telemetry import Telemetry, configure_logging
from bot.watching import Watching
from bot.web_proxy import BYTES, WebProxy
from core.batch import Batch
from core.control import Control
from core.gateway import CallResult, Gateway
from core.ledger import Claimed, Frozen, Surroundings
from core.limits import Limits
from core.messages import Arrival, ChannelId, Marker, Rights, SlackTs, Source, UserId, Who
from core.ports import ToolOutput, ToolSpec
from storage.database import Database
from storage.doorbell import LocalDoorbell
from storage.ledger.signs import ChannelPolicy
from storage.ledger.sql import SqlLedger
from storage.mailbox import Mailbox
from storage.migrate import upgrade

STEPS = 60
CALLS = 3
AT_ONCE = 100
SLOW_S = 0.2
PAGES = 7
CALL_AIM_MS = 2.0
PAGE_AIM_MS = 300.0

_SERVES = re.compile(rb"port (\d+)")


@dataclass
class Tool:
    """A read that takes `seconds`."""

    name: str
    seconds: float = 0.0
    spec: ToolSpec = field(init=False)

    def __post_init__(self) -> None:
        self.spec = ToolSpec(self.name, "Query a metric by range.", ARGUMENTS)

    async def run(self, arguments: Mapping[str, Any]) -> ToolOutput:
        if self.seconds:
            await asyncio.sleep(self.seconds)
        return ToolOutput(FOUND)

    async def health(self) -> str | None:
        return None


@dataclass
class Door:
    """A gateway with its ledger, and a turn whose calls go through it."""

    gateway: Gateway
    ledger: SqlLedger
    claimed: Claimed

    async def step(self, step: int, tool: str, calls: int) -> list[CallResult]:
        """One step of the turn: what the model asked for, until its results are committed."""
        blocks = [
            {"type": "tool_use", "id": f"toolu_{step}_{n}", "name": tool, "input": {"query": f"rate({step}.{n})"}}
            for n in range(calls)
        ]
        admitted = [self.gateway.admit(number, block, broken=False) for number, block in enumerate(blocks)]
        await self.ledger.open(self.claimed, step, blocks, admitted, [])
        batch = Batch(
            self.gateway,
            Control(Limits(), time.monotonic),
            intend=lambda call: self.ledger.intend(self.claimed, step, call),
            record=lambda results: self.ledger.record(self.claimed, step, results),
            now=time.monotonic,
        )
        results = await batch.run(admitted)
        await self.ledger.close(self.claimed, step, results, lambda _steers: None)
        if any(result.is_error for result in results):
            raise RuntimeError("these calls were to be well")
        return results


async def measure(work: Path) -> list[Figure]:
    """All figures of this part."""
    with open(os.devnull, "w") as nowhere:  # noqa: ASYNC230 - it never waits
        configure_logging(nowhere)
        async with _door(work) as door:
            await door.step(1, "quick", CALLS)
            per_call = [await _cpu_a_call(door, step) for step in range(2, STEPS + 2)]
            began = time.perf_counter()
            await door.step(STEPS + 2, "slow", AT_ONCE)
            at_once = time.perf_counter() - began - SLOW_S
    pages = await _pages(work)
    return [
        _ms("CPU of a call beside its tool, audit on SQLite", median(per_call), CALL_AIM_MS,
            f"steps of {CALLS} calls, median of {STEPS}"),
        _ms(f"{AT_ONCE} calls at once, beyond the slowest of them", at_once, CALL_AIM_MS * AT_ONCE,
            f"each takes {SLOW_S:g} s; {CALL_AIM_MS:g} ms a call"),
        _ms("CPU of reading a page of 2 MB", median(pages), PAGE_AIM_MS,
            f"fetched, as Markdown, cleaned; median of {PAGES}"),
    ]  # fmt: skip


def _ms(name: str, seconds: float, aim_ms: float, how: str) -> Figure:
    return Figure("gateway", name, seconds * 1000, "ms", aim_ms, how)


async def _cpu_a_call(door: Door, step: int) -> float:
    began = cpu_s()
    await door.step(step, "quick", CALLS)
    return (cpu_s() - began) / CALLS


@asynccontextmanager
async def _door(work: Path) -> AsyncIterator[Door]:
    db = await Database.connect(f"sqlite+aiosqlite:///{work / 'gateway.db'}")
    try:
        await upgrade(db)
        bell = LocalDoorbell()
        mailbox = Mailbox(db, bell, new_id, lambda _channel: ChannelPolicy())
        watching = Watching(Telemetry())
        price = lambda _model, _usage: 0.0  # noqa: E731
        ledger = SqlLedger(
            db, bell, Limits(quiet_s=0), worker="bench", ids=new_id, price=price, closed=watching.closed
        )
        asked = await mailbox.arrive(_mention())
        gateway = Gateway([Tool("quick"), Tool("slow", SLOW_S)], Limits(), time.monotonic)
        frozen = Frozen(MODEL, "system", gateway.declaration())
        if asked.session is None:
            raise RuntimeError("a mention begins a session")
        claimed = await ledger.claim(asked.session, "bench", frozen, surroundings=Surroundings())
        if claimed is None:
            raise RuntimeError("a new session is free")
        yield Door(gateway, ledger, claimed)
    finally:
        await db.close()


def _mention() -> Arrival:
    ts = SlackTs("1790000000.000100")
    return Arrival(
        source=Source.MENTION,
        marker=Marker.NONE,
        who=Who.MEMBER,
        rights=Rights(ask=True, steer=True, stop=True),
        author=UserId("U0ENGINEER"),
        team="T0BENCH",
        channel=ChannelId("C0BENCH"),
        thread_ts=ts,
        ts=ts,
        dedupe_key="bench",
        text="checkout answers 5xx",
        mentioned=True,
    )


# -- a page


async def _pages(work: Path) -> Sequence[float]:
    """CPU seconds of reading the page, each time by a reader that has not seen it."""
    (work / "page.html").write_text(_page(), encoding="utf-8")
    command = [sys.executable, "-u", "-m", "http.server", "--bind", "127.0.0.1", "--directory", str(work), "0"]
    server = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        assert server.stdout is not None
        found = _SERVES.search(await server.stdout.readline())
        if found is None:
            raise RuntimeError("the server of the page did not start")
        port = int(found[1])
        return [await _cpu_of_reading(port) for _ in range(PAGES + 1)][1:]
    finally:
        server.terminate()
        await server.wait()


async def _cpu_of_reading(port: int) -> float:
    reader = WebProxy(
        ["127.0.0.1"],
        now=time.time,
        clock=time.monotonic,
        networks=["127.0.0.0/8"],
        ports=frozenset({port}),
        total_s=60.0,
    )
    began = cpu_s()
    page = await reader.read(f"http://127.0.0.1:{port}/page.html")
    took = cpu_s() - began
    if "Section 1" not in page.markdown:
        raise RuntimeError("this page was to be read")
    return took


def _page() -> str:
    """A page of documentation: menus, scripts, headings, paragraphs with links, lists, tables and code."""
    row = "<tr>" + "".join(f"<td>value {n}</td>" for n in range(6)) + "</tr>"
    section = (
        "<h2>Section {n}</h2><p>When <b>checkout</b> answers 504, look at the <a href='/gw/{n}'>gateway</a> first: "
        "its pool may be too small for the load of the evening, and what waits in it times out after 30 s.</p>"
        "<ul><li>read the <code>error_rate</code></li><li>compare the revisions</li></ul>"
        f"<table><tr><th>a</th><th>b</th><th>c</th><th>d</th><th>e</th><th>f</th></tr>{row * 3}</table>"
        "<pre><code>kubectl rollout undo deployment/gateway --to-revision={n}</code></pre>"
    )
    head = "<!doctype html><html><head><title>Runbook</title><script>var a = 1;</script></head><body><nav>menu</nav>"
    sections = (section.replace("{n}", str(number)) for number in range(1, BYTES // len(section)))
    return f"{head}<main>{''.join(sections)}</main><footer>imprint</footer></body></html>"
