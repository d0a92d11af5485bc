"""The metrics of the playground: every series is a function of time, its counters are integrals in closed form.

A series lives as long as the pod that it belongs to, so a rollout ends some series and begins others at 0, and a
query over the rollout sees what a real Prometheus would show.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from bot.playground.world.alerts import alerts
from bot.playground.world.incident import (
    GUILTY_LOOKING,
    HOSTS,
    LATENCY_BUSY,
    LATENCY_HEALTHY,
    Incident,
    Pod,
    flow,
    mix,
    swing,
    timed_out_share,
)

Bounds = tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Series:
    """One time series. `labels` holds `__name__`; `value` is asked only within `since` <= t < `until`."""

    labels: dict[str, str]
    value: Callable[[float], float]
    since: float = -math.inf
    until: float = math.inf


@dataclass(frozen=True, slots=True)
class Family:
    """What Prometheus's metadata says of a metric name."""

    type: str
    help: str
    unit: str = ""


FAMILIES = {
    "up": Family("gauge", "1 if the target could be scraped."),
    "ALERTS": Family("gauge", "Alerts that are pending or firing."),
    "http_requests_total": Family(
        "counter", "Requests as the client saw them answered, by the service and host that had to serve them."
    ),
    "http_request_duration_seconds": Family(
        "histogram", "Time in which the service itself had its answer ready, whoever still waited for it.", "seconds"
    ),
    "gateway_upstream_timeouts_total": Family(
        "counter", "Requests that the gateway gave up because the upstream took longer than the route allows."
    ),
    "gateway_route_timeout_seconds": Family("gauge", "Time limit of a route as the gateway loaded it.", "seconds"),
    "gateway_config_last_reload_timestamp_seconds": Family("gauge", "When the gateway loaded its routes.", "seconds"),
    "db_pool_connections_in_use": Family("gauge", "Connections of the database pool in use."),
    "db_pool_connections_max": Family("gauge", "Size of the database pool."),
    "process_resident_memory_bytes": Family("gauge", "Resident memory size in bytes.", "bytes"),
    "container_cpu_usage_seconds_total": Family("counter", "Cumulative cpu time consumed in seconds.", "seconds"),
    "container_memory_working_set_bytes": Family("gauge", "Current working set of the container in bytes.", "bytes"),
    "kube_pod_container_status_restarts_total": Family("counter", "The number of container restarts per container."),
    "kube_deployment_status_replicas_available": Family("gauge", "The number of available replicas per deployment."),
    "kube_deployment_status_observed_generation": Family(
        "gauge", "The generation observed by the deployment controller."
    ),
    "kube_job_status_active": Family("gauge", "The number of actively running pods of a job."),
    "node_cpu_seconds_total": Family("counter", "Seconds the CPUs spent in each mode.", "seconds"),
    "instance:node_cpu_utilisation:rate5m": Family("gauge", "Share of the host's CPU time that is not idle."),
    "node_load1": Family("gauge", "1m load average."),
    "node_memory_MemTotal_bytes": Family("gauge", "Memory information field MemTotal_bytes.", "bytes"),
    "node_memory_MemAvailable_bytes": Family("gauge", "Memory information field MemAvailable_bytes.", "bytes"),
    "node_filesystem_avail_bytes": Family("gauge", "Filesystem space available to non-root users in bytes.", "bytes"),
    "node_network_receive_bytes_total": Family("counter", "Network device statistic receive_bytes.", "bytes"),
}

# Requests a second and host; share of the few healthy answers that are not 200, by status.
TRAFFIC = {"gateway": 52.0, "checkout": 18.0, "catalog": 31.0}
SHARE_OF_HOST = {"web-1": 1.0, "web-2": 0.985, "web-3": 1.01}
ORDINARY = {
    "gateway": {"304": 0.04, "404": 0.012, "502": 0.0001},
    "checkout": {"400": 0.011, "409": 0.004, "500": 0.0002},
    "catalog": {"304": 0.12, "404": 0.009, "500": 0.0001},
}
METHOD = {"gateway": "GET", "checkout": "POST", "catalog": "GET"}
FAST: Bounds = ((0.05, 0.71), (0.1, 0.9), (0.2, 0.975), (0.3, 0.992), (0.4, 0.997), (0.5, 0.9985),
                (0.6, 0.9992), (0.75, 0.9996), (1.0, 0.9999), (2.5, 1.0))  # fmt: skip
MEMORY_MB = {"gateway": 182, "checkout": 640, "catalog": 410}
CPU_CORES = {"gateway": 0.35, "checkout": 0.62, "catalog": 0.48}
CPU_COUNT = 4
CPU_SHARES = {"idle": (0.64, 0.08), "user": (0.26, 0.55), "system": (0.08, 0.22), "iowait": (0.02, 0.15)}


def catalogue(incident: Incident) -> list[Series]:
    """All series of the world in its present state."""
    found: list[Series] = []
    for name in incident.rollouts:
        for pod in incident.pods(name):
            if pod.until > incident.day - 86_400.0:
                found += _of_pod(incident, pod)
        found += _of_deployment(incident, name)
    for host in HOSTS:
        found += _of_host(incident, host)
    found += _alerts(incident)
    return found


@lru_cache(maxsize=200)
def _seed(*parts: object) -> int:
    return mix(*parts) % 628


def _series(name: str, labels: dict[str, str], value: Callable[[float], float], life: Pod | None = None) -> Series:
    labels = {"__name__": name, **labels}
    return Series(labels, value, life.since, life.until) if life else Series(labels, value)


def _of_pod(incident: Incident, pod: Pod) -> Iterator[Series]:
    service = pod.deployment
    seed = _seed(service, pod.host)
    labels = {
        "namespace": "shop", "job": f"shop/{service}", "service": service,
        "host": pod.host, "pod": pod.name, "instance": f"{pod.ip}:9102",
    }  # fmt: skip
    container = {"namespace": "shop", "pod": pod.name, "container": service, "host": pod.host}
    memory, cores = MEMORY_MB[service] * 1e6, CPU_CORES[service]
    yield _series("up", labels, _always(1.0), pod)
    yield from _requests(incident, pod, labels)
    yield from _durations(incident, pod, labels)
    if service == "gateway":
        yield from _gateway(incident, pod, labels)
    if service != "gateway":
        yield _series("db_pool_connections_in_use", labels, lambda t: round(11 * swing(seed, t)), pod)
        yield _series("db_pool_connections_max", labels, _always(40.0), pod)
    yield _series("process_resident_memory_bytes", labels, lambda t: round(memory * swing(seed, t)), pod)
    yield _series(
        "container_memory_working_set_bytes", container, lambda t: round(memory * 1.1 * swing(seed, t)), pod
    )
    yield _series("container_cpu_usage_seconds_total", container, lambda t: _since(pod, cores, seed, t), pod)
    yield _series("kube_pod_container_status_restarts_total", container, _always(0.0), pod)


def _always(value: float) -> Callable[[float], float]:
    return lambda t: value


def _part(share: float, count: Callable[[float], float]) -> Callable[[float], float]:
    return lambda t: share * count(t)


def _traffic(service: str, host: str) -> float:
    return TRAFFIC[service] * SHARE_OF_HOST[host]


def _since(pod: Pod, per_s: float, seed: int, t: float) -> float:
    return flow(per_s, seed, t) - flow(per_s, seed, pod.since)


def timeouts(incident: Incident, per_s: float, seed: int, since: float, t: float) -> float:
    """How many of a stream of checkout requests the gateway threw away from `since` to `t`."""
    total = 0.0
    for gateway in incident.pods("gateway"):
        first, last = max(since, gateway.since), min(t, gateway.until)
        if last > first:
            share = timed_out_share(gateway.template.checkout_limit_s) / len(HOSTS)
            total += share * (flow(per_s, seed, last) - flow(per_s, seed, first))
    return total


def _requests(incident: Incident, pod: Pod, labels: dict[str, str]) -> Iterator[Series]:
    service = pod.deployment
    per_s, seed, ordinary = _traffic(service, pod.host), _seed(service), ORDINARY[service]

    def total(t: float) -> float:
        return _since(pod, per_s, seed, t)

    def lost(t: float) -> float:
        if service == "checkout":
            return timeouts(incident, per_s, seed, pod.since, t)
        if service == "gateway":
            share = timed_out_share(pod.template.checkout_limit_s)
            return share * _since(pod, _traffic("checkout", pod.host), _seed("checkout"), t)
        return 0.0

    def counter(status: str, count: Callable[[float], float]) -> Series:
        extra = {"method": METHOD[service], "status": status}
        return _series("http_requests_total", labels | extra, lambda t: math.floor(count(t)), pod)

    def answered(t: float) -> float:
        return total(t) - lost(t)

    yield counter("200", _part(1 - sum(ordinary.values()), answered))
    for status, share in ordinary.items():
        yield counter(status, _part(share, answered))
    if service != "catalog":
        yield counter("504", lost)


def _durations(incident: Incident, pod: Pod, labels: dict[str, str]) -> Iterator[Series]:
    """Buckets of `http_request_duration_seconds`; the sum is that of the buckets' middles."""
    name = "http_request_duration_seconds"
    per_s, seed = _traffic(pod.deployment, pod.host), _seed(pod.deployment)
    before = LATENCY_HEALTHY if pod.deployment == "checkout" else FAST
    busy = pod.deployment == "checkout" and pod.host == GUILTY_LOOKING
    after = LATENCY_BUSY if busy else before
    switch = max(pod.since, incident.backup_began)

    def summed(early: float, late: float, t: float) -> float:
        first, second = flow(per_s, seed, min(t, switch)), flow(per_s, seed, max(t, switch))
        turn = flow(per_s, seed, switch)
        return early * (first - flow(per_s, seed, pod.since)) + late * (second - turn)

    def counted(early: float, late: float) -> Callable[[float], float]:
        return lambda t: math.floor(summed(early, late, t))

    for (bound, early), (_, late) in zip(before, after, strict=True):
        yield _series(f"{name}_bucket", labels | {"le": f"{bound:g}"}, counted(early, late), pod)
    yield _series(f"{name}_bucket", labels | {"le": "+Inf"}, counted(1, 1), pod)
    yield _series(f"{name}_count", labels, counted(1, 1), pod)
    yield _series(f"{name}_sum", labels, lambda t: summed(_mean(before), _mean(after), t), pod)


def _mean(bounds: Bounds) -> float:
    total, below = 0.0, (0.0, 0.0)
    for bound in bounds:
        total += (bound[1] - below[1]) * (bound[0] + below[0]) / 2
        below = bound
    return total


def _gateway(incident: Incident, pod: Pod, labels: dict[str, str]) -> Iterator[Series]:
    limit_s = pod.template.checkout_limit_s
    limits = {"/checkout": limit_s, "/catalog": 2.0, "/catalog/v2": 2.0}
    per_s = {upstream: _traffic(upstream, pod.host) for upstream in ("checkout", "catalog")}
    shares = {"checkout": timed_out_share(limit_s), "catalog": 0.00005}

    def given_up(upstream: str, share: float) -> Callable[[float], float]:
        return lambda t: math.floor(share * _since(pod, per_s[upstream], _seed(upstream), t))

    for upstream, share in shares.items():
        extra = {"upstream": upstream, "route": f"/{upstream}"}
        yield _series("gateway_upstream_timeouts_total", labels | extra, given_up(upstream, share), pod)
    for route, seconds in limits.items():
        yield _series("gateway_route_timeout_seconds", labels | {"route": route}, _always(seconds), pod)
    yield _series("gateway_config_last_reload_timestamp_seconds", labels, _always(pod.since - 2), pod)


def _of_deployment(incident: Incident, name: str) -> Iterator[Series]:
    labels = {"namespace": "shop", "deployment": name, "job": "kube-state-metrics"}
    pods = incident.all_pods(name)
    yield _series(
        "kube_deployment_status_replicas_available", labels, lambda t: float(sum(pod.lived(t) for pod in pods))
    )
    yield _series("kube_deployment_status_observed_generation", labels, lambda t: incident.generation(name, t))


def _of_host(incident: Incident, host: str) -> Iterator[Series]:
    seed = _seed("host", host)
    labels = {"job": "node", "host": host, "instance": f"{host}:9100"}
    busy_from = incident.backup_began if host == GUILTY_LOOKING else math.inf
    began = incident.day - 20 * 86_400.0

    def busy(t: float) -> bool:
        return t >= busy_from

    def spent(mode: str, cpu: int) -> Callable[[float], float]:
        quiet, loud = CPU_SHARES[mode]

        def seconds(t: float) -> float:
            turn = min(t, busy_from)
            return quiet * (turn - began) + loud * (t - turn) + 0.4 * math.sin(t / 97 + cpu + seed)

        return seconds

    for cpu in range(CPU_COUNT):
        for mode in CPU_SHARES:
            extra = {"cpu": str(cpu), "mode": mode}
            yield _series("node_cpu_seconds_total", labels | extra, spent(mode, cpu))

    def utilisation(t: float) -> float:
        return (0.92 if busy(t) else 0.36) * (0.8 + 0.2 * swing(seed, t))

    yield _series("instance:node_cpu_utilisation:rate5m", labels, utilisation)
    yield _series("node_load1", labels, lambda t: (6.4 if busy(t) else 1.5) * swing(seed, t))
    yield _series("node_memory_MemTotal_bytes", labels, _always(16_777_216_000.0))
    yield _series("node_memory_MemAvailable_bytes", labels, lambda t: round(9.1e9 * swing(seed, t)))
    disk = labels | {"mountpoint": "/", "device": "/dev/vda1", "fstype": "ext4"}
    yield _series("node_filesystem_avail_bytes", disk, lambda t: round(61e9 * (1 + 0.001 * swing(seed, t))))
    network = labels | {"device": "eth0"}
    yield _series("node_network_receive_bytes_total", network, lambda t: math.floor(flow(2.4e6, seed, t - began)))
    yield _series("up", labels, _always(1.0))
    if host == GUILTY_LOOKING:
        job = {"namespace": "ops", "job_name": "nightly-backup-29341", "host": host}
        yield Series({"__name__": "kube_job_status_active", **job}, _always(1.0), busy_from)


def _alerts(incident: Incident) -> Iterator[Series]:
    for one in alerts(incident):
        yield Series({"__name__": "ALERTS", "alertstate": "firing", **one.labels}, _always(1.0), one.since, one.until)
