"""What version this is."""

from __future__ import annotations

from importlib import metadata


def version() -> str:
    """The installed version, or that there is none."""
    try:
        return metadata.version("pilothouse")
    except metadata.PackageNotFoundError:
        return "(from a checkout)"
