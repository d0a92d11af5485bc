"""From the start of a process to the first request of a turn that it resumes, beyond `import anthropic`.

A turn is left behind in a database file by a worker that drained while the model was writing. Then `pilothouse serve`
starts on that file, as an operator would start it, and the clock stops when the model's end sees the request.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median

from bench.figures import Figure
from bench.rig import MODEL, PATIENCE_S, FarEnds, Probe, far_ends, rig
from core.limits import Limits

STARTS = 5
AIM_S = 0.5
ASK_S = 0.01
LEFT = Limits(drain_s=4.0, drain_stream_margin_s=4.0)
SERVE = "import sys; from bot.cli import main; sys.exit(main())"
IMPORT = "import time; began = time.perf_counter(); import anthropic; print(time.perf_counter() - began)"


async def measure(work: Path) -> list[Figure]:
    """The figure of this part."""
    async with far_ends(lenient=True) as ends:
        await _leave_behind(ends, work / "left")
        starts: list[float] = []
        imports: list[float] = []
        for number in range(STARTS):
            data = work / f"start-{number}"
            shutil.copytree(work / "left", data)
            imports.append(await asyncio.to_thread(_import_s))
            starts.append(await _start(ends, data))
    beyond = median(start - imported for start, imported in zip(starts, imports, strict=True))
    how = f"{median(starts):.2f} s, {median(imports):.2f} s of it the import; median of {STARTS}"
    return [Figure("start", "start to the first step, beyond the import", beyond, "s", AIM_S, how)]


async def _leave_behind(ends: FarEnds, data: Path) -> None:
    """A database file with a turn that nobody runs."""
    async with rig(ends, data, [Probe()], LEFT) as made:
        made.say(f"what is going on? plan before={PATIENCE_S}")
        await _asked(ends)


async def _asked(ends: FarEnds) -> float:
    """Wait for a request to the model; when it came, in seconds since the epoch."""
    async with asyncio.timeout(PATIENCE_S):
        while (at := (await ends.ask("report"))["first_request_at"]) is None:  # noqa: ASYNC110
            await asyncio.sleep(ASK_S)
    return float(at)


async def _start(ends: FarEnds, data: Path) -> float:
    """Seconds from the start of a process on this file to its first request."""
    ends.tell(do="forget")
    began = time.time()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SERVE, "serve", "--data", str(data), env=_environment(ends), stderr=subprocess.DEVNULL
    )
    try:
        return await _asked(ends) - began
    finally:
        process.kill()
        await process.wait()


def _environment(ends: FarEnds) -> Mapping[str, str]:
    return {
        **os.environ,
        "SLACK_BOT_TOKEN": ends.workspace["bot_token"],
        "SLACK_APP_TOKEN": ends.workspace["app_token"],
        "SLACK_API_BASE_URL": ends.slack_url,
        "ANTHROPIC_API_KEY": "local",
        "ANTHROPIC_BASE_URL": ends.model_url,
        "PILOTHOUSE_MODEL": MODEL,
        "PILOTHOUSE_MODEL__DIRECT": "true",
        "PILOTHOUSE_SLACK__HTTP_PORT": "0",
    }


def _import_s() -> float:
    return float(subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, check=True).stdout)
