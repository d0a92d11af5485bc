"""What the looks of a conversation prove, and the answer in Markdown that says no more than that.

Every figure, time and log line in an answer is quoted from a result that is in the conversation. What could not be
read is named; what is not proven is not claimed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from bot.playground.model.plot import Stage
from bot.playground.model.reading import Conversation, State, Taken, lines_with

HISTORY = "kubernetes_rollout_history"
EVENTS = "kubernetes_events"
REVISION = re.compile(r"(?:revision\W{0,3}|^\W*)(\d{1,6})(?![\d:.-])", re.I)
TICKET = re.compile(r"\b[A-Z]{2,}-\d+\b")
HOST_VALUE = re.compile(r"(web-\d+)\W[^\n]*?(?<![\w.:-])(\d+(?:\.\d+)?(?:e-?\d+)?)\s*%?\s*(?:$|\n)", re.M)
EVEN = 1.6
"""Hosts whose error rates differ by less than this factor fail alike."""


@dataclass(frozen=True, slots=True)
class Change:
    """The newest rollout of the gateway."""

    revision: int
    line: str
    ticket: str
    time: str


@dataclass(frozen=True, slots=True)
class Findings:
    """What was seen. Empty strings and lists where it was not."""

    change: Change | None
    limits: Sequence[str]
    log: str
    errors: Sequence[str]
    cpu: str
    even_hosts: Sequence[tuple[str, float]]
    timeouts: str
    latency: str
    pools: Sequence[str]
    pool_sizes: Sequence[str]
    catalog: Sequence[str]
    changes: Sequence[str]
    events: Sequence[str]

    @property
    def proven(self) -> bool:
        """A change of the gateway, and a trace of what it does."""
        return self.change is not None and bool(self.log or self.limits or self.timeouts)


def find(taken: Sequence[Taken], host: str) -> Findings:
    """Everything that the looks prove, the newest first."""
    about_gateway = [look for look in taken if "gateway" in look.look.key]
    hosts = _even_hosts([look for look in taken if "by (host) (rate(http_requests" in look.look.key])
    errors = [look for look in taken if "http_requests_total" in look.look.key and "by (service)" in look.look.key]
    histories = [look for look in taken if look.look.tool == HISTORY]
    return Findings(
        change=_change([look for look in histories if "gateway" in look.look.key]),
        limits=_limits(about_gateway),
        log="".join(lines_with(about_gateway, r"timed out|timeout.{0,40}exceeded|\b504\b", "loki"))
        or "".join(lines_with(about_gateway, r"timed out|\b504\b", "kubernetes_logs")),
        errors=lines_with(errors, r"checkout.*\d"),
        cpu="".join(lines_with([look for look in taken if "cpu" in look.look.key], rf"{re.escape(host)}.*\d")),
        even_hosts=hosts,
        timeouts="".join(
            lines_with([look for look in taken if "gateway_upstream" in look.look.key], r"checkout.*\d")
        ),
        latency="".join(lines_with([look for look in taken if "quantile" in look.look.key], r"checkout.*\d")),
        pools=lines_with([look for look in taken if "in_use" in look.look.key], r"(checkout|catalog).*\d", most=2),
        pool_sizes=lines_with([look for look in taken if "pool_connections_max" in look.look.key], r"checkout.*\d"),
        changes=_changes(histories),
        events=lines_with([look for look in taken if look.look.tool == EVENTS], r"warning|updated|killing", most=4),
        catalog=_catalog(errors, [look for look in taken if "quantile" in look.look.key], histories),
    )


def _change(taken: Sequence[Taken]) -> Change | None:
    """The line with the highest revision of the newest history that was read."""
    for look in reversed(taken):
        rows = [(int(match.group(1)), line) for line in look.text.splitlines() if (match := REVISION.search(line))]
        if look.state is State.SEEN and rows:
            revision, line = max(rows, key=lambda row: (row[0], bool(TICKET.search(row[1]))))
            ticket = TICKET.search(line)
            time = re.search(r"(?<!\d)\d{1,2}:\d{2}", line)
            found = " ".join(line.split())[:200].strip(" |-*")
            return Change(revision, found, ticket.group() if ticket else "", time.group() if time else "")
    return None


def _changes(histories: Sequence[Taken]) -> list[str]:
    """The newest rollout of each deployment whose history was read."""
    names = dict.fromkeys(str(look.look.arguments.get("deployment")) for look in histories)
    found = {
        name: _change([look for look in histories if look.look.arguments["deployment"] == name]) for name in names
    }
    return [f"{name} {quoted(change.line)}" for name, change in found.items() if change]


def _catalog(errors: Sequence[Taken], slow: Sequence[Taken], histories: Sequence[Taken]) -> list[str]:
    change = _change([look for look in histories if "catalog" in look.look.key])
    named = [
        ("5xx per second", "".join(lines_with(errors, r"catalog.*\d"))),
        ("slowest 1 %", "".join(lines_with(slow, r"catalog.*\d"))),
        ("last rollout", change.line if change else ""),
    ]
    return [f"{name} {quoted(line)}" for name, line in named if line]


def _limits(taken: Sequence[Taken]) -> list[str]:
    """Checkout's time limits as the routes give them, in the order of the revisions."""
    for look in reversed(taken):
        if look.look.tool == "kubernetes_get" and look.state is State.SEEN:
            text = look.text.replace("\\n", "\n")
            found = re.findall(r"/checkout\b(?:(?!match:).)*?timeout\W{1,4}(\d+(?:\.\d+)?\s?m?s)\b", text, re.S)
            if found:
                return list(dict.fromkeys(found))
    return []


def _even_hosts(taken: Sequence[Taken]) -> list[tuple[str, float]]:
    """Errors per second by host, if all of several hosts fail alike."""
    for look in reversed(taken):
        found = [(host, float(value)) for host, value in HOST_VALUE.findall(look.text)]
        values = [value for _, value in found]
        if look.state is State.SEEN and len(found) > 1 and min(values) > 0:
            return found if max(values) / min(values) < EVEN else []
    return []


def busiest_host(taken: Sequence[Taken]) -> str | None:
    """The host with the highest CPU in what was seen."""
    for look in reversed(taken):
        found = [(float(value), host) for host, value in HOST_VALUE.findall(look.text)]
        if "cpu" in look.look.key and look.state is State.SEEN and found:
            return str(max(found)[1])
    return None


def pods_of(taken: Sequence[Taken]) -> dict[str, str]:
    """One pod's name for each deployment, as far as names were seen."""
    names = re.findall(
        r"\b(gateway|checkout|catalog)(-[a-z0-9]{8,10}-[a-z0-9]{5})\b", "\n".join(one.text for one in taken)
    )
    return {name: name + rest for name, rest in names}


def alert_in(words: Sequence[str]) -> str | None:
    """The alert that somebody's words or the thread name, with its line."""
    for text in words:
        for line in text.splitlines():
            if re.search(r"\b(FIRING|firing|ALERT|[Aa]lert:?|alertname|CRITICAL|severity)\b", line):
                return re.sub(r"\s+", " ", line).strip(" *_`>")[:200]
    return None


def quoted(line: str) -> str:
    """A line as inline code, whatever is in it."""
    return f"`{' '.join(line.split()).replace('`', chr(39))}`"


def conclusion(found: Findings, host: str, *, chinese: bool) -> str:
    """The answer to "what is wrong?", as far as it is proven."""
    if not found.proven:
        return _unproven(found, host, chinese=chinese)
    assert found.change is not None
    number, (before, after) = found.change.revision, _span(found.limits)
    what = f"revision {number} of `gateway`" + (f" ({found.change.ticket})" if found.change.ticket else "")
    when = f" at {found.change.time}" if found.change.time else ""
    effect = f": it cut the time limit for `/checkout` from {before} to {after}" if before and after else ""
    lines = [f"**The cause is {what}, rolled out{when}{effect}.**"]
    if chinese:
        span = f"，把 `/checkout` 的上游超时从 {before} 改成了 {after}" if before and after else ""
        lines.append(f"**原因是 `gateway` 的第 {number} 版变更{_bracketed(found.change.ticket)}{span}。**")
    lines += ["", "**Evidence**", *(f"- {line}" for line in _evidence(found))]
    lines += ["", *_red_herring(found, host)]
    lines += [
        f"**Proposed next step:** roll `gateway` back to revision {number - 1}, then watch the 5xx rate of checkout "
        "for five minutes. I have changed nothing; reply `roll it back` and I ask for approval.",
    ]
    return "\n".join(lines)


def _bracketed(text: str) -> str:
    return f"（{text}）" if text else ""


def _span(limits: Sequence[str]) -> tuple[str, str]:
    return (limits[0], limits[-1]) if len(limits) > 1 else ("", "")


def _evidence(found: Findings) -> list[str]:
    """A short line for each proof: of a row only the cells that prove something, of a log line its words."""
    named = [
        ("Rollout history", _cell_with(found.change.ticket, found.change.line) if found.change else ""),
        ("Time limits for `/checkout` in `gateway-routes`", ", then ".join(found.limits)),
        ("Gateway log", _message(found.log)),
        ("Time-outs per second by upstream", _rise(found.timeouts)),
        ("Slowest 1 % of checkout, in seconds", _figure(found.latency)),
        *(("5xx per second", _figure(line)) for line in found.errors),
    ]
    return [f"{name}: {quoted(line)}" for name, line in named if line]


def _cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.split("|") if cell.strip()]


def _cell_with(word: str, row: str) -> str:
    return next((cell for cell in _cells(row) if word and word in cell), row)


def _message(line: str) -> str:
    """What a structured log line says, without the fields around it."""
    said = re.search(r'\bmsg="([^"]+)"', line)
    return said.group(1) if said else line


def _rise(row: str) -> str:
    """Of a series (name, first, last, lowest, highest, ...) where it began and how high it went."""
    cells = _cells(row)
    return f"{cells[1]}, highest {cells[4]}" if len(cells) > 4 else row


def _figure(row: str) -> str:
    return _cells(row)[-1] if _cells(row) else row


def _red_herring(found: Findings, host: str) -> list[str]:
    if not found.cpu:
        return []
    cpu = quoted(_figure(found.cpu))
    if found.even_hosts:
        rates = ", ".join(f"{name} {value:.3g}/s" for name, value in found.even_hosts)
        return [f"{host} is a red herring: its CPU is high ({cpu}), but all hosts fail alike ({rates}).", ""]
    return [f"{host} is busy ({cpu}), but nothing that I saw ties the errors to it.", ""]


def _unproven(found: Findings, host: str, *, chinese: bool) -> str:
    seen = [
        *_evidence(found),
        *([f"CPU: {quoted(found.cpu)}"] if found.cpu else []),
    ]
    lines = ["**I can't name the cause yet.**"]
    if chinese:
        lines.append("**目前还不能确定原因。**")
    if seen:
        lines += ["", "What I have seen so far:", *(f"- {line}" for line in seen)]
    else:
        lines += ["", "So far I have seen nothing that would prove one."]
    missing = "the gateway's rollout history and log" if found.change is None else "what the gateway logs"
    lines += ["", f"**Proposed next step:** look at {missing}. I have changed nothing."]
    return "\n".join(lines)


def about(stages: Sequence[Stage], found: Findings) -> list[str]:
    """What was seen of places that are not the incident's cause."""
    lines: list[str] = []
    if Stage.DATABASE in stages:
        lines.append(_database(found))
    if Stage.CATALOG in stages:
        seen = "; ".join(found.catalog)
        lines.append(f"**Catalog:** {seen}." if seen else "**Catalog:** I found neither errors nor figures for it.")
    if Stage.LATENCY in stages:
        lines.append(f"**Latency:** {quoted(found.latency)}." if found.latency else "**Latency:** no figures.")
    if Stage.CHANGES in stages:
        seen = "\n".join(f"- {line}" for line in found.changes)
        lines.append(f"**The newest rollouts**\n{seen}" if seen else "**Rollouts:** I could read none.")
    if Stage.EVENTS in stages:
        seen = "\n".join(f"- {quoted(line)}" for line in found.events)
        lines.append(f"**Events that stand out**\n{seen}" if seen else "**Events:** none that stand out.")
    if Stage.OVERVIEW in stages and Stage.GATEWAY not in stages:
        seen = "; ".join(quoted(line) for line in found.errors)
        lines.append(f"**Errors now:** {seen}." if seen else "**Errors now:** no 5xx that I can see.")
    return lines


def _database(found: Findings) -> str:
    if not found.pools:
        return "**Database:** I found no figures for it."
    used, size = _last_number(found.pools[0]), _last_number("".join(found.pool_sizes))
    seen = f"**Database:** connections in use {', '.join(map(quoted, found.pools))}"
    if not size:
        return f"{seen}; I found no pool size to compare with."
    verdict = "no shortage there" if used < 0.8 * size else "that is close to the limit"
    return f"{seen}, pool size {quoted(found.pool_sizes[0])}: {verdict}."


def _last_number(line: str) -> float:
    found = re.findall(r"\d+(?:\.\d+)?", line)
    return float(found[-1]) if found else 0.0


def not_read(conversation: Conversation) -> list[str]:
    """The looks of this episode that brought nothing and that nothing else made up for."""
    seen = {taken.look.key for taken in conversation.now.taken if taken.state is State.SEEN}
    lines = {}
    for taken in conversation.now.taken:
        if taken.state in (State.FAILED, State.CANCELLED) and taken.look.key not in seen:
            why = next(iter(taken.text.splitlines()), "")[:140]
            lines[taken.look.key] = f"- `{taken.look.tool}`: {why}"
    return ["", "Not read:", *lines.values()] if lines else []
