"""How fast people get through: from a click on Stop to the cancelled call and to the settle, from a reply to the cut.

Times begin when the person's hand moves in the local Slack and end when the fact is readable in the database, so
delivery, acknowledgement, policy, doorbell and commits are all inside.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.figures import Figure
from bench.rig import PATIENCE_S, FarEnds, Read, Rig, far_ends, rig
from core.limits import Limits

STOPS = 9
STEERS = 5
HURRIES = 3
BATCH_S = 0.6
STEER_AFTER_S = 0.2
READ_S = 10.0
WATCH_S = 0.0005

CANCELLED_AIM_MS = 50
SETTLED_AIM_MS = 300
CUT_AIM_MS = 5
HURRY_MARGIN_S = 0.1

ASK = "checkout answers 5xx since 14:05, what is going on? plan rounds=1 calls=3 tool=read"
STEER = "it is the gateway, not that host. plan rounds=0"
LIMITS = Limits(quiet_s=0.05, quiet_max_s=0.1)


@dataclass(slots=True)
class _Thread:
    """A thread whose batch runs, and how many turns were settled before it."""

    root: str
    settled: int


async def measure(work: Path) -> list[Figure]:
    """All figures of this part."""
    async with far_ends() as ends:
        stops = await _stops(ends, work / "stops")
        cuts = await _steers(ends, work / "steers", BATCH_S, STEERS)
        hurried = await _steers(ends, work / "hurries", READ_S, HURRIES)
    patience_s = LIMITS.patience_s
    how = f"from the click on Stop, median of {STOPS}"
    return [
        Figure("cuts", "stop to cancelled calls", _ms(at for at, _ in stops), "ms", CANCELLED_AIM_MS, how),
        Figure("cuts", "stop to settled", _ms(at for _, at in stops), "ms", SETTLED_AIM_MS, how),
        Figure(
            "cuts",
            "steer to cut, beyond the end of the batch",
            _ms(end for end, _ in cuts),
            "ms",
            CUT_AIM_MS,
            f"until the cut can be read, median of {STEERS}",
        ),
        Figure(
            "cuts",
            "steer to cut while a 10 s read runs",
            median(reply for _, reply in hurried),
            "s",
            patience_s + HURRY_MARGIN_S,
            f"patience is {patience_s:g} s, median of {HURRIES}",
        ),
    ]


def _ms(seconds: Iterable[float]) -> float:
    return median(seconds) * 1000


async def _stops(ends: FarEnds, data: Path) -> list[tuple[float, float]]:
    """Seconds from the click to the last cancelled call, and to the settle."""
    read = Read(seconds=READ_S)
    found: list[tuple[float, float]] = []
    async with rig(ends, data, [read], LIMITS) as made:
        for _ in range(STOPS):
            thread = await _batch(made, read)
            clicked = time.time()
            made.press("stop_step")
            await made.until("SELECT count(*) FROM settles", wanted=thread.settled + 1, poll_s=WATCH_S)
            found.append((read.cancelled_at - clicked, time.time() - clicked))
            await made.quiet(thread.settled + 1)
    return found


async def _steers(ends: FarEnds, data: Path, read_s: float, times: int) -> list[tuple[float, float]]:
    """Seconds from the end of the batch to the cut, and from the reply to the cut."""
    read = Read(seconds=read_s)
    found: list[tuple[float, float]] = []
    async with rig(ends, data, [read], LIMITS) as made:
        for _ in range(times):
            thread = await _batch(made, read)
            await asyncio.sleep(STEER_AFTER_S)
            cuts = made.one(_CUTS)
            replied = time.time()
            made.reply(STEER, thread.root)
            await made.until(_CUTS, wanted=cuts + 1, poll_s=WATCH_S)
            cut = time.time()
            found.append((cut - max(read.ended_at, read.cancelled_at), cut - replied))
            await made.quiet(thread.settled + 2)
    return found


_CUTS = "SELECT count(*) FROM attempts WHERE ended = 'cut'"


async def _batch(made: Rig, read: Read) -> _Thread:
    """Ask, and wait until the batch runs and the card is there to be pressed."""
    read.began.clear()
    settled = int(made.one("SELECT count(*) FROM settles"))
    root = made.say(ASK)
    async with asyncio.timeout(PATIENCE_S):
        await read.began.wait()
    await made.until("SELECT message_ts IS NOT NULL FROM cards ORDER BY opened_at DESC LIMIT 1")
    return _Thread(root, settled)
