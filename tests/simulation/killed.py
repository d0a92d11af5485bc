"""`kill -9` of real processes: one plays a story until it kills itself, the next one goes on with its file.

    python -m tests.simulation.killed DIRECTORY TEMPLATE STORY NUMBER ...

Each NUMBER is the moment at which the first process dies. The processes are forks of this one, which has everything
imported. The exit code is 0 when every story came to a good end; otherwise what broke is on the standard error.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from tests.simulation.files import Files
from tests.simulation.stories import finished, play


def forked(work: Callable[[], object]) -> int:
    """Do `work` in a process of its own; how that ended, as `os.waitpid` says it."""
    pid = os.fork()
    if pid:
        return os.waitpid(pid, 0)[1]
    code = 1
    try:
        work()
        code = 0
    except BaseException:  # noqa: BLE001 - whatever it is, the parent process is told
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def killed(files: Files, story: str, dies_at: int) -> bool:
    """One story with one death; whether it came to a good end."""
    death = forked(lambda: play(story, files, [dies_at], by_signal=True))
    if not os.WIFSIGNALED(death) or os.WTERMSIG(death) != signal.SIGKILL:
        print(f"{story}: nobody died at {dies_at}", file=sys.stderr)  # noqa: T201 - this is a program
        return False
    return forked(lambda: finished(*play(story, files, process="next-"))) == 0


def main(directory: str, template: str, story: str, *numbers: str) -> int:
    files = Files(Path(directory), Path(template))
    ends = {number: killed(files, story, int(number)) for number in numbers}
    bad = [number for number, good in ends.items() if not good]
    if bad:
        print(f"{story}: broken by a death at {', '.join(bad)}", file=sys.stderr)  # noqa: T201 - this is a program
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
