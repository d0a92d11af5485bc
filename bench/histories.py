"""Checking and repairing a long history: the time must be linear, and 10,000 messages take at most 2 s of one core.

Every tenth call lost its result, every thirtieth has two, and some words stand between call and result: what older
faults leave behind.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.figures import Figure
from core.repair import suture
from core.validator import problems

SIZES = (1_000, 10_000, 100_000)
MIDDLE = 10_000
AIM_S = 2.0
LINEAR_AIM = 1.5
TEXT = "rate by code over the last hour: 504 through gateway-7 only, since 14:05"


async def measure(work: Path) -> list[Figure]:
    """All figures of this part."""
    took = {size: _took_s(size) for size in SIZES}
    shown = ", ".join(f"{size:,}: {seconds:.2f} s" for size, seconds in took.items())
    per_message = {size: seconds / size for size, seconds in took.items()}
    growth = per_message[SIZES[-1]] / per_message[MIDDLE]
    return [
        Figure("histories", f"check and repair {MIDDLE:,} messages", took[MIDDLE], "s", AIM_S, shown),
        Figure(
            "histories",
            "time a message, of ten times as many",
            growth,
            "x",
            LINEAR_AIM,
            f"1 is linear; {SIZES[-1]:,} to {MIDDLE:,}",
        ),
    ]


def _took_s(size: int) -> float:
    """CPU seconds to check a damaged history of `size` messages, repair it, and check what came out."""
    request = {"messages": list(_damaged(size))}
    began = time.process_time()
    found = problems(request)
    sutured = suture(request)
    left = problems({"messages": sutured.messages})
    took = time.process_time() - began
    if not found or not sutured.repairs or left:
        raise RuntimeError("this history was to be broken before the repair and whole after it")
    return took


def _damaged(size: int) -> Iterator[dict[str, Any]]:
    for number in range(size // 2):
        words = [{"type": "text", "text": f"and then? ({number})"}]
        yield {"role": "user", "content": [*_results(number - 1), *words]}
        call = {"type": "tool_use", "id": f"toolu_{number}", "name": "probe", "input": {"query": TEXT}}
        yield {"role": "assistant", "content": [{"type": "text", "text": TEXT}, call]}


def _results(number: int) -> list[dict[str, Any]]:
    if number < 0 or number % 10 == 9:
        return []
    result = {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": TEXT}
    return [result, dict(result)] if number % 30 == 5 else [result]
