"""Three hundred turns at once in one process, and the memory that running and idle sessions take.

Each model call takes 1.5 s, so a turn of 4 calls takes 6 s if nothing else took any time. The questions come evenly
over the time of one call. Slack's limits are kept: cards and answers wait for their tokens, turns do not.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.figures import Figure
from bench.machine import MB, cpu_s, memory_bytes
from bench.rig import Probe, Rig, far_ends, rig

TURNS = 300
MODEL_S = 1.5
CALLS = 4
IDEAL_S = MODEL_S * CALLS
FEW = 30
IDLE = 100
LOOK_S = 0.05

TURN_AIM = 1.2
RUNNING_AIM_MB = 0.12
IDLE_AIM_MB = 0.001

TIMES = """
SELECT settles.created_at - CAST(turns.newest_ts AS REAL)
FROM settles JOIN turns ON turns.id = settles.turn_id ORDER BY settles.created_at DESC LIMIT ?
"""


@dataclass(slots=True)
class _Peak:
    """The most memory that was in use while somebody watched."""

    bytes: int = 0


async def measure(work: Path) -> list[Figure]:
    """All figures of this part."""
    async with far_ends(lenient=True) as ends, rig(ends, work / "crowd", [Probe()], paced=True) as made:
        await _ask(made, FEW, 0.1)
        gc.collect()
        before, cpu = memory_bytes(), cpu_s()
        async with _watched() as peak:
            await _ask(made, TURNS, MODEL_S)
        used_s = cpu_s() - cpu
        turn_s = median(row[0] for row in made.rows.execute(TIMES, (TURNS,)))
        idle_mb = await _idle(made)
    running_mb = None if before is None else (peak.bytes - before) / TURNS / MB
    how = f"median {turn_s:.2f} s, ideal {IDEAL_S:g} s, {used_s / TURNS * 1000:.1f} ms of CPU a turn"
    return [
        Figure("crowd", f"a turn among {TURNS} running ones", turn_s / IDEAL_S, "x", TURN_AIM, how),
        Figure("crowd", "memory of a running turn", running_mb, "MB", RUNNING_AIM_MB, f"the peak of {TURNS}"),
        Figure("crowd", "memory of an idle session", idle_mb, "MB", IDLE_AIM_MB, f"none is the aim; {IDLE} sessions"),
    ]


async def _ask(made: Rig, turns: int, model_s: float) -> None:
    """`turns` questions, each in a thread of its own, and their answers."""
    settled = int(made.one("SELECT count(*) FROM settles"))
    began = time.monotonic()
    for number in range(turns):
        await asyncio.sleep(max(0.0, began + number * model_s / turns - time.monotonic()))
        made.say(f"what is going on? plan rounds={CALLS - 1} calls=3 before={model_s}")
    await made.until("SELECT count(*) FROM settles", wanted=settled + turns, poll_s=LOOK_S)


async def _idle(made: Rig) -> float:
    """Megabytes that stay for each session that has nothing to do any more."""
    tracemalloc.start()
    try:
        await _ask(made, FEW, 0.1)
        await made.until("SELECT count(*) FROM sessions WHERE lease_owner IS NOT NULL", wanted=0)
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        await _ask(made, IDLE, 0.1)
        await made.until("SELECT count(*) FROM sessions WHERE lease_owner IS NOT NULL", wanted=0)
        gc.collect()
        return max(0, tracemalloc.get_traced_memory()[0] - before) / IDLE / MB
    finally:
        tracemalloc.stop()


@asynccontextmanager
async def _watched() -> AsyncIterator[_Peak]:
    peak = _Peak()

    async def watch() -> None:
        while True:
            peak.bytes = max(peak.bytes, memory_bytes() or 0)
            await asyncio.sleep(LOOK_S)

    task = asyncio.ensure_future(watch())
    try:
        yield peak
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
