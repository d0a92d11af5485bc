"""What an MCP server offers, as the model may see it.

All of it comes from outside: names, descriptions and schemas are cleaned and capped, and what can't be made safe is
left out with a sentence that says so. What a server says of its tools can only make them less trusted than the
configuration does. A print of each tool tells later whether it is still the one that was taken.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from mcp_types import Tool as Offered

from bot.settings_mcp import McpServerPart
from bot.tools.shaping import capped, cleaned, one_line
from core.ports import Tier, ToolSpec

LONGEST_NAME = 64
LONGEST_DESCRIPTION = 1_000
LONGEST_SCHEMA = 16_000
DEEPEST_SCHEMA = 16
MOST_STEPS = 2_000
MOST_NAMED = 5
LONGEST_PATTERN = 200
MOST_UNBOUNDED = 2
SLOW = re.compile(r"\)[*+{]|\\[1-9]")
UNBOUNDED = re.compile(r"[*+]|\{\d*,\}")
NOT_FOR_THE_MODEL = {"$schema", "$id", "x-mcp-header"}
NAMING = {"properties", "$defs", "definitions", "dependentSchemas", "patternProperties"}
LOOSE = {"pattern", "patternProperties", "propertyNames", "additionalProperties", "unevaluatedProperties"} | {
    *("not", "if", "then", "else", "contains", "minContains", "maxContains"),
}
TRUST = (Tier.READ, Tier.WRITE, Tier.EXTERNAL)


@dataclass(frozen=True, slots=True)
class Print:
    """What a tool was when it was taken. `shape`: arguments and hints; `words`: what the server says it does."""

    shape: str
    words: str


@dataclass(frozen=True, slots=True)
class Taken:
    """A tool that the model is offered; `name` is what the server calls it."""

    name: str
    spec: ToolSpec
    print: Print


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
    for one in wanted[: part.max_tools]:
        if why := unusable(one.input_schema):
            findings.append(f"{one_line(cleaned(one.name), 60)} is left out: {why}")
        else:
            taken.append(_taken(server, part, one))
    return Offer(taken, findings)


def _taken(server: str, part: McpServerPart, one: Offered) -> Taken:
    tier = tier_of(one, part.tiers.get(one.name, part.default_tier))
    said = one_line(visible(one.description or one.title or "no description"), LONGEST_DESCRIPTION)
    spec = ToolSpec(
        name=joined(server, one.name),
        description=f"(from MCP server {server}) {said}",
        input_schema=plain_schema(one.input_schema),
        tier=tier,
        interruptible=tier is Tier.READ,
        timeout_s=part.timeout_s,
    )
    return Taken(one.name, spec, print_of(one))


def joined(server: str, tool: str) -> str:
    """`server__tool` as the Messages API takes it; what had to be changed carries a mark made of the whole name."""
    name = f"{server}__{tool}"
    fit = re.sub("[^a-zA-Z0-9_-]", "_", name)
    if fit == name and len(name) <= LONGEST_NAME and tool:
        return name
    mark = hashlib.sha256(tool.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{fit[: LONGEST_NAME - 9]}_{mark}"


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


def unusable(schema: Mapping[str, Any]) -> str | None:
    """Why a schema can't be offered or checked, if so."""
    try:
        text = json.dumps(schema)
        if len(text) > LONGEST_SCHEMA:
            return f"its schema has {len(text)} characters, and {LONGEST_SCHEMA} are read"
        if schema.get("type") != "object":
            return "its arguments are not an object"
        if _depth(schema) > DEEPEST_SCHEMA:
            return "its schema is nested too deeply"
        if any(not str(to).startswith("#") for to in _references(schema)):
            return "its schema refers to another document, and none is fetched"
        if _steps(schema, schema, (), [MOST_STEPS]) < 0:
            return "its schema takes too long to check"
        Draft202012Validator.check_schema(plain_schema(schema))
    except (SchemaError, RecursionError, ValueError):
        return "its schema is not valid"
    return None


def plain_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema without invisible text and without regular expressions that could take for ever to check.

    Where one of those goes, whatever depends on it being there goes too: the server checks the rest itself.
    """
    made = _plain(schema, loose=not all(_quick(one) for one in _patterns(schema)))
    return made if isinstance(made, dict) else {}


def _plain(value: Any, *, loose: bool, named: bool = False) -> Any:
    """`named`: the keys are the server's own names, not words of JSON Schema."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, list):
        return [_plain(one, loose=loose) for one in value]
    if not isinstance(value, dict):
        return value
    if named:
        return {visible(key): _plain(one, loose=loose) for key, one in value.items()}
    drop = NOT_FOR_THE_MODEL | (LOOSE if loose else set())
    return {
        "anyOf" if loose and key == "oneOf" else key: one
        if key in ("enum", "const", "default")
        else _plain(one, loose=loose, named=key in NAMING)
        for key, one in value.items()
        if key not in drop
    }


def _patterns(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        for one in value:
            yield from _patterns(one)
    if isinstance(value, dict):
        for key, one in value.items():
            if key == "pattern" and not isinstance(one, dict):
                yield one
            if key == "patternProperties" and isinstance(one, dict):
                yield from one
            yield from _patterns(one)


def _quick(pattern: Any) -> bool:
    """Whether an expression is one that Python reads and that is surely done in a moment."""
    if not isinstance(pattern, str) or len(pattern) > LONGEST_PATTERN or SLOW.search(pattern):
        return False
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError):
        return False
    return len(UNBOUNDED.findall(pattern)) <= MOST_UNBOUNDED


def visible(text: str) -> str:
    """Clean text without characters that people can't see: they are a way to say something to the model alone."""
    return "".join(
        one for one in cleaned(text) if one in "\n\t" or unicodedata.category(one) not in ("Cc", "Cf", "Co", "Cn")
    )


def _references(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        for one in value:
            yield from _references(one)
    if isinstance(value, dict):
        for key, one in value.items():
            if key in ("$ref", "$dynamicRef", "$recursiveRef") and not isinstance(one, dict):
                yield one
            else:
                yield from _references(one)


def _depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max((_depth(one) for one in inner), default=0)


def _steps(root: Any, value: Any, via: tuple[str, ...], left: list[int]) -> int:
    """How many steps are left of those that a check may take when each reference is followed once; below 0: none."""
    left[0] -= 1
    if left[0] < 0:
        return left[0]
    if isinstance(value, list):
        for one in value:
            _steps(root, one, via, left)
    if isinstance(value, dict):
        to = value.get("$ref")
        if isinstance(to, str) and to not in via:
            _steps(root, _at(root, to), (*via, to), left)
        for one in value.values():
            _steps(root, one, via, left)
    return left[0]


def _at(root: Any, reference: str) -> Any:
    found = root
    for step in reference.removeprefix("#").split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        found = found.get(step) if isinstance(found, dict) else None
    return found


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(one_line(cleaned(name), 60) for name in names[:MOST_NAMED])
    return f"{shown} and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else capped(shown, 400)
