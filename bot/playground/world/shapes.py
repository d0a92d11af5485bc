"""What every Kubernetes object of the playground has: its metadata, its owner, its times."""

from __future__ import annotations

from typing import Any

from bot.playground.world.incident import mix
from bot.playground.world.logs import stamp

Object = dict[str, Any]


def uid(*parts: object) -> str:
    digits = f"{mix(*parts):016x}{mix(parts, 2):016x}"
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:32]}"


def seconds(t: float) -> str:
    return stamp(t)[:19] + "Z"


def meta(kind: str, name: str, namespace: str | None, created: float, *, version: object = 0, **more: Any) -> Object:
    """The metadata of an object; `version` is what else its `resourceVersion` depends on."""
    place = {"namespace": namespace} if namespace else {}
    return {
        "name": name,
        **place,
        "uid": uid(kind, namespace, name),
        "resourceVersion": str(8_000_000 + mix(kind, name, created, version) % 900_000),
        "creationTimestamp": seconds(created),
        **more,
    }


def owner(kind: str, name: str, namespace: str) -> list[Object]:
    version = "batch/v1" if kind == "Job" else "apps/v1"
    return [
        {"apiVersion": version, "kind": kind, "name": name, "uid": uid(kind, namespace, name), "controller": True}
    ]
