"""`python -m bench [--only PART ...] [--json]`: measure, and print every figure beside its aim."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from rich.console import Console

from bench import crowd, cuts, gateway, histories, start, turns
from bench.figures import Figure, as_json, show
from bench.machine import this_machine

PARTS: Mapping[str, Callable[[Path], Awaitable[list[Figure]]]] = {
    "turns": turns.measure,
    "cuts": cuts.measure,
    "gateway": gateway.measure,
    "crowd": crowd.measure,
    "start": start.measure,
    "histories": histories.measure,
}


async def _measure(parts: Sequence[str], progress: Console) -> list[Figure]:
    figures: list[Figure] = []
    for part in parts:
        with (
            progress.status(f"measuring {part} ..."),
            tempfile.TemporaryDirectory(prefix="pilothouse-bench-", ignore_cleanup_errors=True) as work,
        ):
            figures += await PARTS[part](Path(work))
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description="What Pilothouse costs, beside its aims.")
    parser.add_argument("--only", action="append", choices=list(PARTS), help="one part (may be given several times)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    given = parser.parse_args()
    machine = this_machine()
    figures = asyncio.run(_measure(given.only or list(PARTS), Console(stderr=True)))
    if given.json:
        print(as_json(figures, machine))
    else:
        show(figures, machine, Console())
    return 0


if __name__ == "__main__":
    sys.exit(main())
