"""The story of the playground, and the one place where cause and effect meet.

At 14:04 revision 42 of the gateway cut its time limit for /checkout from 3 s to 300 ms. Checkout's answers
always took 450 to 600 ms at the 99th percentile, so from 14:05 on four in ten of them are thrown away as 504.
Host web-3 looks guilty and is not: a backup keeps its processors at 92 % since 13:40.

Everything else in this package (series, logs, Kubernetes objects) is derived from the pods of an `Incident`
and from `timed_out_share`, so a rollback heals metrics, logs and objects together, and nobody needs to keep
them in step. There is no randomness: `mix` and `flow` make the same noise at every run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import blake2b
from itertools import pairwise

DAY_S = 86_400.0
HOSTS = ("web-1", "web-2", "web-3")
GUILTY_LOOKING = "web-3"
SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"


def hour(text: str) -> float:
    """Seconds since midnight of `14:04` or `14:04:30`."""
    hours, minutes, *seconds = text.split(":")
    return int(hours) * 3600.0 + int(minutes) * 60.0 + (float(seconds[0]) if seconds else 0.0)


OPENING = hour("14:20")
BACKUP_BEGINS = hour("13:40")
SCALED_UP_S = 12.0

# Share of checkout's answers that are ready within so many seconds.
LATENCY_HEALTHY = (
    (0.05, 0.02), (0.1, 0.08), (0.2, 0.35), (0.3, 0.62), (0.4, 0.86), (0.5, 0.985),
    (0.6, 0.998), (0.75, 0.9995), (1.0, 0.9999), (2.5, 1.0),
)  # fmt: skip
# On the busy host only the slowest answers get slower: as many as elsewhere take longer than 300 ms.
LATENCY_BUSY = (
    (0.05, 0.02), (0.1, 0.08), (0.2, 0.35), (0.3, 0.62), (0.4, 0.82), (0.5, 0.955),
    (0.6, 0.985), (0.75, 0.997), (1.0, 0.9995), (2.5, 1.0),
)  # fmt: skip


def timed_out_share(limit_s: float) -> float:
    """Cause and effect: the share of checkout's answers that a gateway with this time limit throws away."""
    below = (0.0, 0.0)
    for bound in LATENCY_HEALTHY:
        if limit_s <= bound[0]:
            width = bound[0] - below[0]
            return 1.0 - (below[1] + (bound[1] - below[1]) * (limit_s - below[0]) / width)
        below = bound
    return 0.0


def latency_at(share: float, bounds: tuple[tuple[float, float], ...]) -> float:
    """The duration in seconds which `share` of the answers stay under."""
    below = (0.01, 0.0)
    for bound in bounds:
        if share <= bound[1]:
            return below[0] + (bound[0] - below[0]) * (share - below[1]) / (bound[1] - below[1])
        below = bound
    return below[0]


def mix(*parts: object) -> int:
    """A well-mixed 64-bit number that is always the same for the same parts."""
    return int.from_bytes(blake2b(repr(parts).encode(), digest_size=8).digest(), "big")


def suffix(length: int, *parts: object) -> str:
    """Letters as Kubernetes puts them behind names."""
    number, letters = mix(*parts), ""
    for _ in range(length):
        number, index = divmod(number, len(SUFFIX_LETTERS))
        letters += SUFFIX_LETTERS[index]
    return letters


def flow(per_s: float, seed: int, t: float) -> float:
    """How much a stream of about `per_s` carried up to `t`: its rate swings by 8 % in 30 minutes, 3 % in 7."""
    return per_s * _flowed(seed, t)


@lru_cache(maxsize=50_000)
def _flowed(seed: int, t: float) -> float:
    slow, fast = 2 * math.pi / 1800, 2 * math.pi / 430
    return t - 0.08 * math.cos(slow * t + seed) / slow - 0.03 * math.cos(fast * t + 2 * seed) / fast


def swing(seed: int, t: float) -> float:
    """A gentle factor around 1 for gauges."""
    return 1 + 0.05 * math.sin(2 * math.pi * t / 1500 + seed) + 0.02 * math.sin(2 * math.pi * t / 390 + 2 * seed)


@dataclass(frozen=True, slots=True)
class Template:
    """What a revision of a deployment runs. `checkout_limit_s` matters for the gateway only."""

    revision: int
    cause: str
    image: str
    args: tuple[str, ...] = ()
    checkout_limit_s: float = 3.0
    restarted: str = ""


@dataclass(frozen=True, slots=True)
class Rollout:
    """A template going live at `at`; its first three pods, one a host, are ready so many seconds later.

    `cause` is what the one who rolled out said of it, where that is not the template's own.
    """

    deployment: str
    revision: int
    template: Template
    at: float
    ready_after_s: tuple[float, float, float] = (40.0, 60.0, 80.0)
    cause: str = ""

    def ready_at(self, index: int) -> float:
        """When its pod number `index` is ready."""
        return self.at + self.ready_after_s[min(index, len(self.ready_after_s) - 1)]


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod. It serves from `since` until `until` (infinite while nothing has replaced it)."""

    name: str
    deployment: str
    replica_set: str
    host: str
    ip: str
    template: Template
    since: float
    until: float = math.inf
    index: int = 0

    def lived(self, t: float) -> bool:
        return self.since <= t < self.until


IMAGE = "images.shop.example/shop/"
ROUTES = "--routes=/etc/gateway/routes-r{}.yaml"
PAST: dict[str, tuple[tuple[float, Template], ...]] = {
    "gateway": (
        (-12 * DAY_S + hour("10:31"),
         Template(39, "PLAT-2228: raise worker count to 4", IMAGE + "gateway:1.18.2", (ROUTES.format(39),))),
        (-9 * DAY_S + hour("15:12"),
         Template(40, "PLAT-2240: gateway 1.18.4", IMAGE + "gateway:1.18.4", (ROUTES.format(39),))),
        (-6 * DAY_S + hour("09:47"),
         Template(41, "PLAT-2267: route /catalog/v2", IMAGE + "gateway:1.18.4", (ROUTES.format(41),))),
        (hour("14:04"),
         Template(42, "PLAT-2291: tighten upstream timeouts", IMAGE + "gateway:1.18.4",
                  (ROUTES.format(42),), checkout_limit_s=0.3)),
    ),
    "checkout": (
        (-20 * DAY_S + hour("11:05"),
         Template(17, "SHOP-871: checkout 5.2.0", IMAGE + "checkout:5.2.0")),
        (-2 * DAY_S + hour("13:22"),
         Template(18, "SHOP-902: checkout 5.2.1, fix rounding of discounts", IMAGE + "checkout:5.2.1")),
    ),
    "catalog": (
        (-30 * DAY_S + hour("08:58"),
         Template(7, "SHOP-833: catalog 3.9.4", IMAGE + "catalog:3.9.4")),
        (hour("11:26"),
         Template(8, "SHOP-911: catalog 3.10.0, new search index", IMAGE + "catalog:3.10.0")),
    ),
}  # fmt: skip
SUBNET = {"gateway": 3, "checkout": 7, "catalog": 9}


@dataclass(slots=True)
class Incident:
    """The state of the world: which revisions ran when. `day` is midnight UTC, in seconds since the epoch.

    `scales` holds by deployment since when how many pods are wanted; `restarts` when the deploybot was restarted, and
    the stamp of each.
    """

    day: float
    rollouts: dict[str, list[Rollout]] = field(init=False)
    scales: dict[str, list[tuple[float, int]]] = field(init=False)
    restarts: list[tuple[float, str]] = field(init=False, default_factory=list)
    _pods: dict[str, list[Pod]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.rollouts = {
            name: [Rollout(name, template.revision, template, self.day + at) for at, template in past]
            for name, past in PAST.items()
        }
        self.scales = {name: [(-math.inf, len(HOSTS))] for name in PAST}

    @property
    def opening(self) -> float:
        """14:20, when the playground begins."""
        return self.day + OPENING

    @property
    def backup_began(self) -> float:
        return self.day + BACKUP_BEGINS

    def roll_back(self, deployment: str, revision: int, at: float, cause: str = "") -> Rollout:
        """Bring the template of an earlier revision back, as a new revision. Raises KeyError if there is none."""
        earlier = next((past for past in self.rollouts[deployment] if past.revision == revision), None)
        if earlier is None:
            raise KeyError(f"deployment {deployment} has no revision {revision}")
        return self._rolled_out(deployment, earlier.template, at, cause)

    def restart(self, deployment: str, stamp: str, at: float) -> Rollout:
        """The same template once more, with the stamp that tells it apart."""
        last = self.rollouts[deployment][-1]
        template = replace(last.template, revision=last.revision + 1, restarted=stamp)
        return self._rolled_out(deployment, template, at, last.cause)

    def _rolled_out(self, deployment: str, template: Template, at: float, cause: str) -> Rollout:
        history = self.rollouts[deployment]
        rollout = Rollout(deployment, history[-1].revision + 1, template, at, (5.0, 10.0, 15.0), cause)
        history.append(rollout)
        self._pods.pop(deployment, None)
        return rollout

    def scale(self, deployment: str, replicas: int, at: float) -> None:
        """Want so many pods from now on."""
        self.scales[deployment].append((at, replicas))
        self._pods.pop(deployment, None)

    def replicas(self, deployment: str, t: float) -> int:
        """How many pods are wanted at `t`."""
        return next(wanted for since, wanted in reversed(self.scales[deployment]) if since <= t)

    def generation(self, deployment: str, t: float) -> int:
        """How often what is wanted of the deployment has changed, as Kubernetes counts."""
        begun = max((rollout.revision for rollout in self.rollouts[deployment] if rollout.at <= t), default=0)
        return begun + sum(since <= t for since, _ in self.scales[deployment]) - 1

    def pods(self, deployment: str) -> list[Pod]:
        """Every pod that the deployment ever had, oldest first; one of them a host serves."""
        return [pod for pod in self.all_pods(deployment) if pod.index < len(HOSTS)]

    def all_pods(self, deployment: str) -> list[Pod]:
        """Those of `pods`, and what a larger scale put beside them: ready, but each host has its serving pod."""
        if deployment not in self._pods:
            self._pods[deployment] = self._born(deployment)
        return self._pods[deployment]

    def _born(self, deployment: str) -> list[Pod]:
        pods: list[Pod] = []
        history = self.rollouts[deployment]
        most = max(wanted for _, wanted in self.scales[deployment])
        for rollout, following in [*pairwise(history), (history[-1], None)]:
            for index in range(max(most, len(HOSTS))):
                until = following.ready_at(index) if following else math.inf
                pods += self._in_turn(rollout, index, until)
        return pods

    def _in_turn(self, rollout: Rollout, index: int, until: float) -> Iterator[Pod]:
        """The pods number `index` of a rollout: one, and after each time that it was scaled away another."""
        name, deployment = replica_set(rollout.deployment, rollout.template), rollout.deployment
        for turn, (begins, ends) in enumerate(self._wanted(deployment, index)):
            since, last = max(rollout.ready_at(index), begins + SCALED_UP_S), min(until, ends)
            if since >= last:
                continue
            letters = suffix(5, name, rollout.revision, index, *([turn] if turn else []))
            host = index % len(HOSTS)
            ip = f"10.42.{host + 1}.{SUBNET[deployment] * 20 + (rollout.revision + index // len(HOSTS)) % 20}"
            yield Pod(f"{name}-{letters}", deployment, name, HOSTS[host], ip, rollout.template, since, last, index)

    def _wanted(self, deployment: str, index: int) -> Iterator[tuple[float, float]]:
        """The spans in which more than `index` pods are wanted."""
        begins: float | None = None
        for since, wanted in self.scales[deployment]:
            if wanted > index and begins is None:
                begins = since
            if wanted <= index and begins is not None:
                yield begins, since
                begins = None
        if begins is not None:
            yield begins, math.inf

    def throttled_spans(self) -> list[tuple[float, float]]:
        """When at least one gateway pod threw answers of checkout away: (from, until), until may be infinite."""
        spans: list[tuple[float, float]] = []
        for pod in self.pods("gateway"):
            if timed_out_share(pod.template.checkout_limit_s) < 0.01:
                continue
            if spans and pod.since <= spans[-1][1]:
                spans[-1] = (spans[-1][0], max(spans[-1][1], pod.until))
            else:
                spans.append((pod.since, pod.until))
        return spans


def replica_set(deployment: str, template: Template) -> str:
    """The name of the replica set: the same template always gives the same one, as in Kubernetes."""
    return f"{deployment}-{suffix(9, deployment, template.revision)}"
