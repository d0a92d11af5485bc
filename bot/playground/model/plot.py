"""The plot of the incident, as tables: what can be looked at, in which order, and what a person's words point to.

Namespace `shop` runs gateway, checkout and catalog on web-1 to web-3. Checkout answers 5xx since 14:05, and web-3
is busy: left alone, the SRE looks at the errors first, then goes for that host, sees that it explains nothing, and
comes to the gateway. Whoever says "gateway" sends it there at once. Each look has other ways to the same thing, for
when the first fails or finds nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from bot.playground.model.reading import Look

NAMESPACE = "shop"
ERRORS = 'status=~"5.."'
ERRORS_BY_ANOTHER_NAME = 'code=~"5.."'
CPU = "instance:node_cpu_utilisation:rate5m"
CPU_BY_ANOTHER_NAME = "node_cpu_utilisation"
CPU_FROM_SECONDS = '1 - avg by (host) (rate(node_cpu_seconds_total{mode="idle"}[5m]))'
TIMEOUTS = "sum by (upstream) (rate(gateway_upstream_timeouts_total[5m]))"


class Stage(StrEnum):
    """One step of the investigation."""

    OVERVIEW = "overview"
    HOST = "host"
    GATEWAY = "gateway"
    CONFIRM = "confirm"
    DATABASE = "database"
    CATALOG = "catalog"
    LATENCY = "latency"
    CHANGES = "changes"
    EVENTS = "events"


FULL = (Stage.OVERVIEW, Stage.HOST, Stage.GATEWAY, Stage.CONFIRM)
Ways = Sequence[Look]
"""The same question in other ways; the first that is answered counts."""


def instant(query: str) -> Look:
    return Look("prometheus_query", {"query": query})


def series(query: str, minutes_back: int = 60) -> Look:
    return Look("prometheus_range", {"query": query, "minutes_back": minutes_back, "step_s": 60})


def logs(query: str, minutes_back: int = 30, limit: int = 20) -> Look:
    return Look("loki_query", {"query": query, "minutes_back": minutes_back, "limit": limit})


def objects(kind: str, name: str | None = None) -> Look:
    arguments: Mapping[str, Any] = {"kind": kind, "namespace": NAMESPACE}
    return Look("kubernetes_get", {**arguments, "name": name} if name else arguments)


def history(deployment: str) -> Look:
    return Look("kubernetes_rollout_history", {"namespace": NAMESPACE, "deployment": deployment})


def pod_logs(pod: str) -> Look:
    return Look("kubernetes_logs", {"namespace": NAMESPACE, "pod": pod, "tail_lines": 50})


def _errors(by: str, labels: str = "") -> Ways:
    ways = [
        f"sum by ({by}) (rate(http_requests_total{{{labels}{one}}}[5m]))" for one in (ERRORS, ERRORS_BY_ANOTHER_NAME)
    ]
    return [*(instant(way) for way in ways), logs(f'{{namespace="{NAMESPACE}"}} |= "status=5"')]


EVENTS = Look("kubernetes_events", {"namespace": NAMESPACE})
CPU_WAYS = (instant(CPU), instant(CPU_BY_ANOTHER_NAME), instant(CPU_FROM_SECONDS))


def looks_of(stage: Stage, host: str, pods: Mapping[str, str]) -> Sequence[Ways]:
    """What a stage looks at. `host` is the one under suspicion; `pods` are names seen so far, by deployment."""
    gateway_pod = [pod_logs(pods["gateway"])] if "gateway" in pods else []
    checkout_pod = [pod_logs(pods["checkout"])] if "checkout" in pods else []
    p99 = "histogram_quantile(0.99, sum by (le, service) (rate(http_request_duration_seconds_bucket[5m])))"
    table: dict[Stage, Sequence[Ways]] = {
        Stage.OVERVIEW: (_errors("service"), _errors("host", 'service="checkout",'), CPU_WAYS),
        Stage.HOST: (
            [series(f'{name}{{host="{host}"}}') for name in (CPU, CPU_BY_ANOTHER_NAME)],
            [logs(f'{{namespace="{NAMESPACE}", host="{host}"}} |= "error"'), *checkout_pod],
            [objects("pods"), EVENTS],
        ),
        Stage.GATEWAY: (
            [history("gateway"), EVENTS],
            [objects("configmaps", "gateway-routes"), objects("configmaps")],
            [logs(f'{{namespace="{NAMESPACE}", app="gateway"}} |= "timed out"'), *gateway_pod, instant(TIMEOUTS)],
        ),
        Stage.CONFIRM: ([series(TIMEOUTS)], [instant(p99)]),
        Stage.DATABASE: (
            [instant("max by (service) (db_pool_connections_in_use)")],
            [instant("max by (service) (db_pool_connections_max)")],
            [logs(f'{{namespace="{NAMESPACE}"}} |~ "(?i)database|postgres|db pool"')],
        ),
        Stage.CATALOG: (
            _errors("service"),
            [instant(p99)],
            [history("catalog")],
        ),
        Stage.LATENCY: ([instant(p99)], [series(p99)]),
        Stage.CHANGES: ([history("gateway")], [history("checkout")], [history("catalog")], [EVENTS]),
        Stage.EVENTS: ([EVENTS],),
    }
    return table[stage]


SAYS: Mapping[Stage, tuple[str, str]] = {
    Stage.OVERVIEW: (
        "Errors first: which service answers 5xx, on which hosts, and is a host in trouble?",
        "I'll look at the error rate by service and by host, and at the hosts themselves.",
    ),
    Stage.HOST: (
        "{host} stands out. Is it where the errors come from, or only a coincidence?",
        "{host} is much busier than the others. Looking at its CPU over the hour, its logs and its pods.",
    ),
    Stage.GATEWAY: (
        "The gateway stands in front of checkout: what changed there, and what does it log?",
        "Looking at the gateway: its rollout history, its routes and its logs.",
    ),
    Stage.CONFIRM: (
        "Does the time of the change fit the errors, and is checkout itself slower than the limit?",
        "Checking that against the metrics: when the time-outs began, and how long checkout takes.",
    ),
    Stage.DATABASE: (
        "Connections in use against the pool's size, and what the logs say about the database.",
        "Looking at the database: connection pools and log lines.",
    ),
    Stage.CATALOG: (
        "Errors, latency and recent changes of catalog.",
        "Looking at catalog: errors, latency, rollout history.",
    ),
    Stage.LATENCY: ("Latency by service, now and over the hour.", "Looking at latency by service."),
    Stage.CHANGES: ("What was changed today, in all three deployments?", "Looking at what was rolled out lately."),
    Stage.EVENTS: ("What does the cluster say about itself?", "Looking at the events of the namespace."),
}
"""Per stage: what it thinks, and what it says before it calls its tools."""


class Wish(StrEnum):
    """What a person wants that is no place to look at."""

    GO_ON = "go on"
    ACT = "act"
    CLARIFY = "clarify"
    THANKS = "thanks"


NOT = (
    r"(?:\bnot\b|n't\b|\bno longer\b|\bforget\b|\bskip\b|\bignore\b|\bleave\b|别看|不用看|不看|不是)"
    r"(?:(?!\bbut\b|\bit\b|是)[^,.;:!?，。；！？\n]){0,30}?"
)
"""A refusal reaches to the next place that is named in the same breath."""

PLACES: Sequence[tuple[str, tuple[Stage, ...]]] = (
    (r"gate ?ways?|网关", (Stage.GATEWAY, Stage.CONFIRM)),
    (r"(?:web-\d+|hosts?|nodes?|cpu|machines?|主机|机器|节点)", (Stage.HOST,)),
    (r"(?:db|databases?|postgres\w*|sql|connection pools?|数据库)", (Stage.DATABASE,)),
    (r"(?:catalog(?:ue)?|商品|目录)", (Stage.CATALOG,)),
    (r"(?:latency|latencies|slow\w*|p99|p95|延迟|慢)", (Stage.LATENCY,)),
    (r"(?:what changed|changes?|deploy\w*|rollouts?|releases?|revisions?|发布|变更)", (Stage.CHANGES,)),
    (r"(?:events?|事件)", (Stage.EVENTS,)),
    (r"(?:errors?|5xx|error rate|status|still|recovered|better|again|错误|恢复|现在)", (Stage.OVERVIEW,)),
)
WISHES: Sequence[tuple[str, Wish]] = (
    (
        r"roll(?:ing)?(?: it| that| this| the \w+)? ?back|revert|undo|\bfix\b|restart|scale|silence|回滚|重启",
        Wish.ACT,
    ),
    (r"wrong (?:cluster|namespace|channel|service|region|environment)|集群不对|搞错", Wish.CLARIFY),
    (r"\bgo on\b|continue|carry on|resume|keep going|proceed|继续|接着", Wish.GO_ON),
    (r"\bthank|\bthx\b|谢谢|多谢|辛苦", Wish.THANKS),
)
ALSO = re.compile(r"\balso\b|\btoo\b|as well|in addition|顺便|也(?:看|查)|还有", re.I)


@dataclass(frozen=True, slots=True)
class Direction:
    """What one text says: places to look at, in order; places to leave alone; other wishes."""

    to: tuple[Stage, ...] = ()
    without: frozenset[Stage] = frozenset()
    also: bool = False
    wish: Wish | None = None
    host: str | None = None


def direction(text: str) -> Direction:
    """Read one person's text."""
    to: list[Stage] = []
    without: set[Stage] = set()
    for pattern, stages in PLACES:
        word = (
            rf"(?<![\w-])(?:{pattern})(?![\w-])" if pattern.isascii() else rf"(?<![a-z0-9])(?:{pattern})(?![a-z0-9])"
        )
        refused = re.search(NOT + word, text, re.I)
        named = len(re.findall(word, text, re.I)) - (1 if refused else 0)
        if named > 0:
            to += [stage for stage in stages if stage not in to]
        elif refused:
            without.add(stages[0])
    wish = next((wish for pattern, wish in WISHES if re.search(pattern, text, re.I)), None)
    host = re.search(r"\bweb-\d+\b", text)
    return Direction(tuple(to), frozenset(without), bool(ALSO.search(text)), wish, host.group() if host else None)
