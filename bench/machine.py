"""What a figure was measured on, and what the operating system counts for this process."""

from __future__ import annotations

import os
import platform
import resource
import sqlite3
from dataclasses import dataclass
from pathlib import Path

IO = Path("/proc/self/io")
STATM = Path("/proc/self/statm")
CPU_INFO = Path("/proc/cpuinfo")
MB = 1_000_000


@dataclass(frozen=True, slots=True)
class Machine:
    """What the figures were measured on. `load` is how many processes wanted to run when it began."""

    cores: int
    cpu: str
    python: str
    sqlite: str
    system: str
    load: float

    @property
    def sentence(self) -> str:
        return (
            f"{self.cores} cores ({self.cpu}), Python {self.python}, SQLite {self.sqlite}, {self.system}, "
            f"load {self.load:.1f} at the start"
        )


def this_machine() -> Machine:
    """The machine that this runs on."""
    return Machine(
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        cpu=_cpu(),
        python=platform.python_version(),
        sqlite=sqlite3.sqlite_version,
        system=f"{platform.system()} {platform.release().split('-')[0]}",
        load=os.getloadavg()[0],
    )


def cpu_s() -> float:
    """Seconds of CPU that this process, all its threads together, has used."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def written_bytes() -> int | None:
    """Bytes that this process has handed to `write`: files, and not sockets. None where nobody counts them."""
    if not IO.exists():
        return None
    counted = dict(line.split(": ") for line in IO.read_text().splitlines())
    return int(counted["wchar"])


def memory_bytes() -> int | None:
    """Memory of this process that is in use now. None where nobody says."""
    if not STATM.exists():
        return None
    return int(STATM.read_text().split()[1]) * resource.getpagesize()


def _cpu() -> str:
    if CPU_INFO.exists():
        for line in CPU_INFO.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
