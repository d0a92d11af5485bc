"""What a turn costs: CPU against the bare SDK, and commits, statements and bytes, in a young and in an old session.

A turn has 3 rounds of 3 parallel trivial calls and a final text: 4 requests to the model. The bare SDK makes the same
4 requests with `messages.stream` and keeps its history in a list. The two are measured in turn, and the median of the
pairs counts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from anthropic import AsyncAnthropic, DefaultAsyncHttpxClient

from bench.figures import Figure
from bench.machine import cpu_s, written_bytes
from bench.rig import ARGUMENTS, FOUND, MODEL, FarEnds, Probe, Rig, far_ends, rig
from bot.prompt import SYSTEM

ASK = "checkout answers 5xx since 14:05, what is going on? plan rounds=3 calls=3"
WARM_UP = 5
PAIRS = 25
SESSION = 40
SESSIONS = 2
EDGE = 3

CPU_AIM = 1.0
GROWTH_AIM = 1.3
BYTES_AIM = 150_000
COMMITS_AIM = 10
STATEMENTS_AIM = 40


@dataclass(frozen=True, slots=True)
class Cost:
    """What one turn took."""

    cpu_s: float
    commits: int
    statements: int
    written: int | None


async def measure(work: Path) -> list[Figure]:
    """All figures of this part."""
    async with far_ends() as ends:
        pairs = await _pairs(ends, work / "pairs")
        sessions = [await _session(ends, work / f"session-{number}") for number in range(SESSIONS)]
        report = await ends.ask("report")
    if report["violations"]:
        raise RuntimeError(f"the model refused a history: {report['violations'][0]}")
    return [*_costs(pairs), *_growth(sessions)]


def _costs(pairs: Sequence[tuple[Cost, float]]) -> list[Figure]:
    ours, bare = median(cost.cpu_s for cost, _ in pairs), median(cpu for _, cpu in pairs)
    ratio = median(cost.cpu_s / cpu for cost, cpu in pairs)
    how = f"{ours * 1000:.1f} ms to {bare * 1000:.1f} ms, median of {len(pairs)} pairs"
    written = [cost.written for cost, _ in pairs if cost.written is not None]
    return [
        Figure("turn", "CPU of a turn to CPU of the bare SDK", ratio, "x", CPU_AIM, how),
        _counted("commits of a turn", [cost.commits for cost, _ in pairs], "", COMMITS_AIM, "with the writer's"),
        _counted("statements of a turn", [cost.statements for cost, _ in pairs], "", STATEMENTS_AIM),
        _counted("bytes written by a turn", written, "B", BYTES_AIM, "log, checkpoints and diary of the database"),
    ]


def _counted(name: str, values: Sequence[float], unit: str, aim: float, how: str = "") -> Figure:
    return Figure("turn", name, median(values) if values else None, unit, aim, how)


def _growth(sessions: Sequence[Sequence[Cost]]) -> list[Figure]:
    def grown(of: Callable[[Cost], float]) -> float:
        young = median(of(cost) for costs in sessions for cost in costs[:EDGE])
        old = median(of(cost) for costs in sessions for cost in costs[-EDGE:])
        return old / young

    how = f"turns {SESSION - EDGE + 1} to {SESSION} over turns 1 to {EDGE}, {len(sessions)} sessions"
    counted = all(cost.written for costs in sessions for cost in costs)
    written = grown(lambda cost: cost.written or 0) if counted else None
    return [
        Figure("turn", "growth of CPU in a session", grown(lambda cost: cost.cpu_s), "x", GROWTH_AIM, how),
        Figure("turn", "growth of bytes in a session", written, "x", GROWTH_AIM, how),
    ]


async def _pairs(ends: FarEnds, data: Path) -> list[tuple[Cost, float]]:
    bare = _Bare(ends.model_url)
    async with rig(ends, data, [Probe()]) as made:
        for number in range(WARM_UP):
            await _turn(made, number + 1)
            await bare.turn()
        pairs = [(await _turn(made, WARM_UP + number + 1), await _cpu_of(bare.turn)) for number in range(PAIRS)]
    await bare.close()
    return pairs


async def _session(ends: FarEnds, data: Path) -> list[Cost]:
    """The costs of the turns of one session, after some in other ones to warm up."""
    async with rig(ends, data, [Probe()]) as made:
        for number in range(WARM_UP):
            await _turn(made, number + 1)
        costs = [await _turn(made, WARM_UP + 1)]
        thread = str(made.one("SELECT thread_ts FROM sessions ORDER BY created_at DESC LIMIT 1"))
        costs += [await _turn(made, WARM_UP + number, thread) for number in range(2, SESSION + 1)]
    return costs


async def _turn(made: Rig, number: int, thread: str | None = None) -> Cost:
    """One turn, the `number`th here, and what it took until its last word was said and written."""
    db = made.app.db
    commits, statements, written, cpu = db.commits, db.statements, written_bytes(), cpu_s()
    made.say(ASK, thread=thread)
    await made.quiet(number)
    used = cpu_s() - cpu
    after = written_bytes()
    return Cost(
        used,
        db.commits - commits,
        db.statements - statements,
        None if after is None or written is None else after - written,
    )


async def _cpu_of(work: Callable[[], Awaitable[None]]) -> float:
    before = cpu_s()
    await work()
    return cpu_s() - before


class _Bare:
    """The same conversation with nothing but the SDK."""

    def __init__(self, url: str) -> None:
        self._client = AsyncAnthropic(
            api_key="local", base_url=url, http_client=DefaultAsyncHttpxClient(trust_env=False)
        )
        self._asked = 0

    async def turn(self) -> None:
        """Ask until there is an answer."""
        self._asked += 1
        messages: list[Any] = [{"role": "user", "content": [{"type": "text", "text": f"{ASK} # {self._asked}"}]}]
        while True:
            async with self._client.messages.stream(
                model=MODEL, max_tokens=4096, system=SYSTEM, tools=_TOOLS, messages=messages
            ) as stream:
                answer = await stream.get_final_message()
            if answer.stop_reason != "tool_use":
                return
            calls = [block for block in answer.content if block.type == "tool_use"]
            results = [{"type": "tool_result", "tool_use_id": block.id, "content": FOUND} for block in calls]
            messages += [{"role": "assistant", "content": answer.content}, {"role": "user", "content": results}]

    async def close(self) -> None:
        await self._client.close()


_TOOLS: Any = [{"name": "probe", "description": Probe().spec.description, "input_schema": dict(ARGUMENTS)}]
