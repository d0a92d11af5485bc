"""Imports that wait until what they bring is needed: some libraries take half a second and more.

Nothing that an import makes is garbage, and there is much of it: the collector, which would look through all of it
again and again, rests meanwhile. That saves a quarter of the time of a start.
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
        if not resting:
            gc.enable()
