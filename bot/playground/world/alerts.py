"""The alerts of the incident, which Prometheus shows as series and Alertmanager as alerts."""

from __future__ import annotations

import math
from dataclasses import dataclass

from bot.playground.world.incident import GUILTY_LOOKING, Incident


@dataclass(frozen=True, slots=True)
class Firing:
    """One alert that fires from `since` until `until`."""

    labels: dict[str, str]
    summary: str
    since: float
    until: float = math.inf


def alerts(incident: Incident) -> list[Firing]:
    """Checkout's fires from three minutes after the first 504 to five after the last; web-3's since the backup."""
    checkout = {"alertname": "CheckoutErrorRate", "namespace": "shop", "service": "checkout", "severity": "critical"}
    host = {"alertname": "HostHighCpu", "host": GUILTY_LOOKING, "severity": "warning"}
    found = [
        Firing(checkout, "5xx answers of checkout are above 5 %", began + 180, ended + 300)
        for began, ended in incident.throttled_spans()
    ]
    busy = f"The processors of {GUILTY_LOOKING} are above 85 % for 10 minutes"
    return [*found, Firing(host, busy, incident.backup_began + 600)]
