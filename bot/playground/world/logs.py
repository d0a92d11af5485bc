"""The log lines of the playground: every stream is a function from a tick number to a line, so it can be read
at any place, newest first, without being stored. Whether the gateway gives a request up follows from the same
latency table and time limit as the metrics do.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from bot.playground.world.incident import (
    GUILTY_LOOKING,
    HOSTS,
    LATENCY_BUSY,
    LATENCY_HEALTHY,
    Incident,
    Pod,
    latency_at,
    mix,
)

Line = Callable[[float, int], str | None]


@dataclass(frozen=True, slots=True)
class Stream:
    """One log stream. At tick k, every `period_s`, `line(t, noise)` is what it says; `fixed` are single lines."""

    labels: dict[str, str]
    since: float
    until: float
    period_s: float
    line: Line
    fixed: tuple[tuple[float, str], ...] = ()

    def backwards(self, since: float, until: float) -> Iterator[tuple[float, str]]:
        """Its lines with since <= t < until, newest first."""
        since, until = max(since, self.since), min(until, self.until)
        rest = sorted((entry for entry in self.fixed if since <= entry[0] < until), reverse=True)
        seed = mix(*sorted(self.labels.items()))
        for tick in range(math.floor(until / self.period_s), math.floor(since / self.period_s) - 1, -1):
            noise = _scrambled(seed + tick)
            t = round((tick + (noise % 997) / 1000) * self.period_s, 3)
            while rest and rest[0][0] > t:
                yield rest.pop(0)
            if since <= t < until and (text := self.line(t, noise >> 10)) is not None:
                yield t, text
        yield from rest


def _scrambled(number: int) -> int:
    """One round of splitmix64: cheap noise for a tick."""
    number = (number * 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
    number ^= number >> 30
    number = (number * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
    return number ^ (number >> 27)


def streams(incident: Incident) -> list[Stream]:
    """All streams of the last day and later."""
    found = [
        _of_pod(incident, pod)
        for name in incident.rollouts
        for pod in incident.pods(name)
        if pod.until > incident.day - 86_400.0
    ]
    return [*found, _backup(incident), _deploys(incident)]


def _of_pod(incident: Incident, pod: Pod) -> Stream:
    line = {"gateway": _gateway_line, "checkout": _checkout_line, "catalog": _catalog_line}[pod.deployment]
    labels = {
        "namespace": "shop", "app": pod.deployment, "container": pod.deployment,
        "pod": pod.name, "host": pod.host, "job": f"shop/{pod.deployment}",
    }  # fmt: skip
    return Stream(labels, pod.since - 3, pod.until, 4.0, line(incident, pod), _greeting(pod))


def stamp(t: float) -> str:
    return datetime.fromtimestamp(t, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _greeting(pod: Pod) -> tuple[tuple[float, str], ...]:
    version = pod.template.image.rpartition(":")[2]
    if pod.deployment != "gateway":
        text = json.dumps({"ts": stamp(pod.since - 2.5), "level": "info", "msg": f"{pod.deployment} {version} ready"})
        return ((pod.since - 2.5, text),)
    limit = _seconds(pod.template.checkout_limit_s)
    routes = pod.template.args[0].partition("=")[2]
    return (
        (pod.since - 2.6, f'ts={stamp(pod.since - 2.6)} level=info msg="gateway {version} starting" workers=4'),
        (
            pod.since - 2.1,
            f'ts={stamp(pod.since - 2.1)} level=info msg="routes loaded" file={routes} '
            f"/checkout.timeout={limit} /catalog.timeout=2s /catalog/v2.timeout=2s",
        ),
    )


def _seconds(value: float) -> str:
    return f"{value:g}s" if value >= 1 else f"{value * 1000:.0f}ms"


def _duration(pod_host: str, t: float, noise: int, incident: Incident) -> float:
    """How long checkout took for one request on this host, in seconds."""
    busy = pod_host == GUILTY_LOOKING and t >= incident.backup_began
    return latency_at((noise % 9973) / 9973, LATENCY_BUSY if busy else LATENCY_HEALTHY)


def _limit_at(incident: Incident, t: float, noise: int) -> float:
    """The time limit of the gateway pod through which a request came."""
    serving = [pod for pod in incident.pods("gateway") if pod.lived(t)]
    return serving[noise % len(serving)].template.checkout_limit_s if serving else 3.0


def _gateway_line(incident: Incident, pod: Pod) -> Line:
    limit_s = pod.template.checkout_limit_s
    checkouts = {pod.host: pod.ip for pod in incident.pods("checkout")}

    def line(t: float, noise: int) -> str | None:
        if t < pod.since:
            return None
        head, trace = f"ts={stamp(t)} level=", f"trace_id={noise % 16**8:08x}"
        kind = noise // 7 % 20
        if kind == 0:
            return f'{head}info msg="health check" upstreams_up=6 upstreams_down=0'
        if kind < 10:
            route = "/catalog/v2/items" if noise % 3 else "/catalog/items"
            took = 18 + noise % 61
            return f"{head}info msg=request method=GET route={route} status=200 duration_ms={took} {trace}"
        host = HOSTS[noise // 11 % 3]
        took_s = _duration(host, t, noise // 13, incident)
        upstream = f"upstream=checkout upstream_addr={checkouts[host]}:8080 upstream_host={host}"
        if took_s > limit_s:
            limit = _seconds(limit_s)
            words = f"upstream timed out ({limit}) while reading response header from checkout"
            return (
                f'{head}error msg="{words}" method=POST route=/checkout status=504 '
                f"duration_ms={limit_s * 1000:.0f} {upstream} {trace}"
            )
        took = round(took_s * 1000)
        return f"{head}info msg=request method=POST route=/checkout status=200 duration_ms={took} {upstream} {trace}"

    return line


def _checkout_line(incident: Incident, pod: Pod) -> Line:
    def line(t: float, noise: int) -> str | None:
        if t < pod.since:
            return None
        entry: dict[str, object] = {"ts": stamp(t), "level": "info", "logger": "checkout.api"}
        busy = pod.host == GUILTY_LOOKING and t >= incident.backup_began
        if busy and noise % 23 == 0:
            lag = 40 + noise // 23 % 30
            entry |= {"level": "warn", "logger": "checkout.runtime", "msg": "event loop lag", "lag_ms": lag}
            return json.dumps(entry)
        took_s = _duration(pod.host, t, noise // 13, incident)
        order = {"order": f"o-{noise % 10**7:07d}", "items": 1 + noise // 17 % 6, "duration_ms": round(took_s * 1000)}
        if took_s > _limit_at(incident, t, noise // 5):
            words = "client closed the connection before the answer was written"
            return json.dumps(entry | {"level": "warn", "msg": words, "status": 499, **order})
        if noise // 19 % 90 == 0:
            return json.dumps(entry | {"msg": "discount code not valid", "status": 400, **order})
        return json.dumps(entry | {"msg": "order placed", "status": 200, **order})

    return line


def _catalog_line(incident: Incident, pod: Pod) -> Line:
    def line(t: float, noise: int) -> str | None:
        if t < pod.since:
            return None
        entry: dict[str, object] = {"ts": stamp(t), "level": "info", "logger": "catalog.api"}
        if noise % 40 == 0:
            return json.dumps(entry | {"msg": "search index refreshed", "documents": 48_211 + noise % 90})
        found, took = noise // 3 % 60, 12 + noise // 7 % 70
        return json.dumps(entry | {"msg": "items listed", "status": 200, "found": found, "duration_ms": took})

    return line


BACKUP_POD = "nightly-backup-29341-x7k2p"


def _backup(incident: Incident) -> Stream:
    began = incident.backup_began
    labels = {
        "namespace": "ops", "app": "nightly-backup", "container": "backup",
        "pod": BACKUP_POD, "host": GUILTY_LOOKING, "job": "ops/nightly-backup",
    }  # fmt: skip

    def line(t: float, noise: int) -> str:
        percent = min(99, int((t - began) / 72))
        return f"backup: {percent}% of orders-archive compressed (zstd -19, 4 threads), {60 + noise % 25} MB/s"

    fixed = (
        (began + 1, "backup: started by schedule 40 13 * * * (UTC), moved from 02:40 by OPS-512"),
        (began + 4, "backup: source /srv/orders-archive on web-3, target s3://shop-backups/orders-archive"),
    )
    return Stream(labels, began, math.inf, 30.0, line, fixed)


def _deploys(incident: Incident) -> Stream:
    labels = {"namespace": "ops", "app": "deploybot", "container": "deploybot", "pod": "deploybot-0", "host": "web-1"}
    fixed = []
    for rollouts in incident.rollouts.values():
        for rollout in rollouts:
            if rollout.cause or rollout.template.restarted:
                continue
            what = f"deploybot: applying shop/{rollout.deployment} revision {rollout.revision}"
            fixed.append((rollout.at - 4, f"{what} ({rollout.template.cause}) image {rollout.template.image}"))
            fixed.append((rollout.at + rollout.ready_after_s[2] + 2, f"{what}: rollout complete, 3/3 ready"))

    def line(t: float, noise: int) -> str:
        return "deploybot: repository up to date, nothing to apply"

    return Stream(labels, incident.day - 40 * 86_400.0, math.inf, 300.0, line, tuple(fixed))
