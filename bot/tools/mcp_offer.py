"""What an MCP server offers, as the model may see it.

All of it comes from outside: names, descriptions and schemas are cleaned and capped, and what can't be made safe is
left out with a sentence that says so. What a server says of its tools can only make them less trusted than the
configuration does. A print of each tool tells later whether it is still the one that was taken.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mcp_types import Tool as Offered

from bot.settings_mcp import McpServerPart
from bot.tools.mcp_schema import fitting, for_the_model, unusable, visible
from bot.tools.shaping import capped, cleaned, one_line
from core.ports import Tier, ToolSpec

LONGEST_NAME = 64
LONGEST_DESCRIPTION = 1_000
LONGEST_TOGETHER = 120_000
MOST_NAMED = 5
TRUST = (Tier.READ, Tier.WRITE, Tier.EXTERNAL)


@dataclass(frozen=True, slots=True)
class Print:
    """What a tool was when it was taken. `shape`: arguments and hints; `words`: what the server says it does."""

    shape: str
    words: str


@dataclass(frozen=True, slots=True)
class Taken:
    """A tool that the model is offered; `name` is what the server calls it, `renamed` what it calls its arguments."""

    name: str
    spec: ToolSpec
    print: Print
    renamed: Mapping[str, str] = field(default_factory=dict)

    def arguments(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments as the server knows them."""
        return {self.renamed.get(name, name): value for name, value in given.items()}


@dataclass(frozen=True, slots=True)
class Offer:
    """The tools of one server, and a sentence for each thing that is not as configured."""

    tools: Sequence[Taken]
    findings: Sequence[str]


def take(server: str, part: McpServerPart, offered: Sequence[Offered]) -> Offer:
    """The tools that the configuration allows and the model can be offered."""
    findings: list[str] = []
    unique = {one.name: one for one in reversed(offered)}
    if twice := sorted({one.name for one in offered if unique[one.name] is not one}):
        findings.append(f"it offers {_names(twice)} more than once; the first one counts")
    if missing := sorted(((part.allow or frozenset()) | frozenset(part.tiers)) - unique.keys()):
        findings.append(f"the configuration names {_names(missing)}, which it does not offer")
    wanted = [unique[name] for name in sorted(unique) if part.allow is None or name in part.allow]
    if len(wanted) > part.max_tools:
        findings.append(f"it offers {len(wanted)} tools, {part.max_tools} are taken: name those you need in allow")
    taken: list[Taken] = []
    left = LONGEST_TOGETHER
    for one in wanted[: part.max_tools]:
        why = unusable(one.input_schema)
        size = LONGEST_DESCRIPTION + len(json.dumps(one.input_schema)) if why is None else 0
        if why is None and size > left:
            why = "with those before it the model would have too much to read: name those you need in allow"
        if why is None:
            taken.append(_taken(server, part, one))
            left -= size
        else:
            findings.append(f"{one_line(cleaned(one.name), 60)} is left out: {why}")
    return Offer(taken, findings)


def _taken(server: str, part: McpServerPart, one: Offered) -> Taken:
    tier = tier_of(one, part.tiers.get(one.name, part.default_tier))
    said = one_line(visible(one.description or one.title or "no description"), LONGEST_DESCRIPTION)
    schema, renamed = for_the_model(one.input_schema)
    spec = ToolSpec(
        name=joined(server, one.name),
        description=f"(from MCP server {server}) {said}",
        input_schema=schema,
        tier=tier,
        interruptible=tier is Tier.READ,
        timeout_s=part.timeout_s,
    )
    return Taken(one.name, spec, print_of(one), renamed)


def joined(server: str, tool: str) -> str:
    """`server__tool` as the Messages API takes it; what had to be changed carries a mark made of the whole name."""
    return fitting(f"{server}__{tool}", "[^a-zA-Z0-9_-]", LONGEST_NAME, of=tool)


def tier_of(one: Offered, configured: Tier) -> Tier:
    """The configured tier, or a less trusted one where the server says that it has to be."""
    hints = one.annotations
    if hints is None:
        return configured
    said = Tier.READ
    if hints.destructive_hint or hints.read_only_hint is False:
        said = Tier.WRITE
    if hints.open_world_hint and not (hints.read_only_hint and not hints.destructive_hint):
        said = Tier.EXTERNAL
    return max(configured, said, key=TRUST.index)


def print_of(one: Offered) -> Print:
    hints = one.annotations.model_dump(mode="json", exclude={"title"}) if one.annotations else None
    return Print(_digest([one.input_schema, hints]), _digest([one.description, one.title]))


def differences(taken: Sequence[Taken], offered: Sequence[Offered]) -> tuple[Mapping[str, str], Sequence[str]]:
    """Why tools that were taken can't be called any more, by the server's name; and what else is new, as phrases."""
    now = {one.name: print_of(one) for one in reversed(offered)}
    then = {one.name: one.print for one in taken}
    gone = [name for name in then if name not in now]
    changed = [name for name in then if name in now and now[name].shape != then[name].shape]
    reworded = [name for name in then if name in now and now[name].words != then[name].words]
    refused = {
        **dict.fromkeys(gone, "the server does not offer it any more"),
        **dict.fromkeys(changed, "the server has changed what it takes or does since it was taken"),
    }
    phrases = [
        *([f"no longer offers {_names(gone)}"] if gone else []),
        *([f"offers {_names(changed)} in another shape"] if changed else []),
        *([f"describes {_names(reworded)} in other words"] if reworded else []),
    ]
    return refused, phrases


def added(first: Iterable[str], offered: Sequence[Offered], allow: frozenset[str] | None) -> Sequence[str]:
    """Tools that were not there at the start, as phrases."""
    new = sorted({one.name for one in offered} - set(first))
    new = [name for name in new if allow is None or name in allow]
    return [f"offers {_names(new)} as well"] if new else []


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(one_line(cleaned(name), 60) for name in names[:MOST_NAMED])
    return f"{shown} and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else capped(shown, 400)
