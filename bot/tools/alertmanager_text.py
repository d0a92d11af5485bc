"""Alerts and silences as Alertmanager sends them, and as a model or a person should read them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from pydantic import AwareDatetime, BaseModel, TypeAdapter

from bot.tools.matchers import Matcher
from bot.tools.series import named, shared_line, split_labels
from bot.tools.shaping import age, left_out, moment, one_line, table

MOST_ALERTS = 50
MOST_NAMES = 15
MOST_HIDDEN = 20
SUMMARIES = ("summary", "description", "message")


class Status(BaseModel):
    """What becomes of an alert, and by which silences, alerts (fingerprints) and time intervals it is held back."""

    silencedBy: list[str] = []
    inhibitedBy: list[str] = []
    mutedBy: list[str] = []


class Alert(BaseModel):
    """One element of `/api/v2/alerts`."""

    labels: dict[str, str]
    annotations: dict[str, str] = {}
    fingerprint: str = ""
    startsAt: AwareDatetime
    status: Status

    @property
    def name(self) -> str:
        return self.labels.get("alertname", "(no alertname)")

    @property
    def states(self) -> frozenset[str]:
        """`active` if it notifies, else `silenced` or `inhibited` or both."""
        held = {"silenced": self.status.silencedBy, "inhibited": self.status.inhibitedBy}
        return frozenset(name for name, by in held.items() if by) or frozenset({"active"})

    def __str__(self) -> str:
        labels = {key: value for key, value in self.labels.items() if key != "alertname"}
        since = moment(self.startsAt.timestamp())
        return f"{one_line(named({**labels, '__name__': self.name}) if labels else self.name, 300)} since {since}"


class Match(BaseModel):
    """One matcher of a silence."""

    name: str
    value: str
    isRegex: bool
    isEqual: bool = True

    def matcher(self) -> Matcher:
        return Matcher(self.name, self.value, self.isRegex, self.isEqual)


class SilenceStatus(BaseModel):
    """`pending`, `active` or `expired`."""

    state: str


class Silence(BaseModel):
    """`/api/v2/silence/{id}`."""

    matchers: list[Match]
    endsAt: AwareDatetime
    createdBy: str = ""
    comment: str = ""
    status: SilenceStatus


class Created(BaseModel):
    """What comes back for a new silence."""

    silenceID: str


class About(BaseModel):
    """`/api/v2/status`, as far as it shows that this is an Alertmanager."""

    versionInfo: dict[str, str]


FOUND, SILENCE, CREATED, ABOUT = (
    TypeAdapter(list[Alert]), TypeAdapter(Silence), TypeAdapter(Created), TypeAdapter(About)
)  # fmt: skip


def alerts_text(found: Sequence[Alert], now: float) -> str:
    """Alerts as a table, newest first."""
    rows = sorted(found, key=lambda alert: alert.startsAt, reverse=True)
    names = {alert.fingerprint: alert.name for alert in found}
    shared, keys = split_labels([alert.labels for alert in rows])
    keys = [key for key in keys if key != "alertname"]
    shared.pop("alertname", None)
    cells = [
        [
            alert.name,
            _state(alert, names),
            f"{moment(alert.startsAt.timestamp())} ({age(now - alert.startsAt.timestamp())})",
            ", ".join(f"{key}={alert.labels[key]}" for key in keys if key in alert.labels),
            next((alert.annotations[key] for key in SUMMARIES if alert.annotations.get(key)), ""),
        ]
        for alert in rows[:MOST_ALERTS]
    ]
    text = f"{_many(len(rows))}{_counted(rows)}{shared_line(shared)}\n"
    text += table(["alert", "state", "since", "labels", "summary"], cells)
    return text + left_out(len(cells), len(rows), "alerts", "add matchers")


def _state(alert: Alert, names: Mapping[str, str]) -> str:
    status = alert.status
    parts = [f"silenced by {', '.join(status.silencedBy)}"] if status.silencedBy else []
    if status.inhibitedBy:
        parts.append(f"inhibited by {', '.join(names.get(one, one) for one in status.inhibitedBy)}")
    if status.mutedBy:
        parts.append(f"muted by {', '.join(status.mutedBy)}")
    return " and ".join(parts) or "active"


def _counted(found: Sequence[Alert]) -> str:
    """How many there are of each name, where the table can't show them all."""
    if len(found) <= MOST_ALERTS:
        return ""
    counts = Counter(alert.name for alert in found).most_common()
    more = f", and {len(counts) - MOST_NAMES} more names" if len(counts) > MOST_NAMES else ""
    return ": " + ", ".join(f"{one_line(name, 80)} {count}" for name, count in counts[:MOST_NAMES]) + more


def would_hide_text(fitting: Sequence[Alert], everything: Sequence[Alert] | None) -> str:
    """Which of the alerts that notify now a silence hides; `fitting` are those that its matchers fit.

    `everything` is None where there are too many alerts to read them all.
    """
    hidden = [alert for alert in fitting if "active" in alert.states]
    loud = [alert for alert in everything or () if "active" in alert.states]
    among = "the alerts" if everything is None else f"the {max(len(loud), len(hidden))} alerts"
    if not hidden:
        text = f"It would hide none of {among} that notify now, only such that begin to fire later."
    elif everything is None or len(hidden) < len(loud):
        text = f"It would hide {len(hidden)} of {among} that notify now:{listed(hidden)}"
    elif len(hidden) == 1:
        text = f"It would hide the only alert that notifies now:{listed(hidden)}"
    else:
        text = f"It would hide ALL {len(hidden)} alerts that notify now:{listed(hidden)}"
    held = len(fitting) - len(hidden)
    return text + (f"\n{held} more that fit are silenced or inhibited already." if held else "")


def would_show_text(silence_id: str, fitting: Sequence[Alert]) -> str:
    """Which alerts notify again when a silence ends."""
    hidden = [alert for alert in fitting if silence_id in alert.status.silencedBy]
    freed = [alert for alert in hidden if len(alert.status.silencedBy) == 1 and not alert.status.inhibitedBy]
    text = f"{_many(len(freed))} would notify again{':' if freed else '.'}{listed(freed)}"
    held = len(hidden) - len(freed)
    return text + (f"\n{held} more that it hides are held back by something else too." if held else "")


def _many(count: int) -> str:
    return "1 alert" if count == 1 else f"{count} alerts"


def listed(alerts: Sequence[Alert]) -> str:
    """One line for each, up to twenty."""
    lines = "".join(f"\n  {alert}" for alert in alerts[:MOST_HIDDEN])
    more = len(alerts) - MOST_HIDDEN
    return lines + (f"\n  and {more} more" if more > 0 else "")


def matchers_text(matchers: Sequence[Matcher]) -> str:
    """One line for each."""
    return "".join(f"\n  {one_line(str(one), 600)}" for one in matchers)
