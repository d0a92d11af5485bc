"""The schema of an MCP server's tool, made such that the model's API takes it and that checking it is harmless.

The API refuses a whole request, and so every session, for one schema that it doesn't take: for a name of an argument
that doesn't fit, or for alternatives at the top. What can be mended is mended; the server checks the rest itself.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

from bot.tools.shaping import cleaned, one_line

LONGEST_SCHEMA = 16_000
DEEPEST_SCHEMA = 16
DEEPEST_FOLD = 4
MOST_STEPS = 2_000
LONGEST_KEY = 64
LONGEST_PATTERN = 200
MOST_UNBOUNDED = 2
SLOW = re.compile(r"\)[*+{]|\\[1-9]")
UNBOUNDED = re.compile(r"[*+]|\{\d*,\}")
ODD = re.compile("[^a-zA-Z0-9_.-]")
NOT_FOR_THE_MODEL = {"$schema", "$id", "x-mcp-header"}
NAMING = {"properties", "$defs", "definitions", "dependentSchemas", "patternProperties"}
ALTERNATIVES = ("allOf", "anyOf", "oneOf")
LOOSE = {"pattern", "patternProperties", "propertyNames", "additionalProperties", "unevaluatedProperties"} | {
    *("not", "if", "then", "else", "contains", "minContains", "maxContains"),
}


def for_the_model(schema: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """The schema as it is offered, and the server's names of the arguments that had to be renamed in it."""
    made = _folded(plain_schema(schema))
    given = {fitting(name, "[^a-zA-Z0-9_.-]", LONGEST_KEY): name for name in made.get("properties", {})}
    renamed = {name: own for name, own in given.items() if name != own}
    if renamed:
        made["properties"] = {name: made["properties"][own] for name, own in given.items()}
        offered = {own: name for name, own in given.items()}
        made["required"] = [offered.get(name, name) for name in made.get("required", [])]
        made = {key: value for key, value in made.items() if key not in ("dependentRequired", "dependentSchemas")}
    return made, renamed


def fitting(name: str, odd: str, longest: int, of: str | None = None) -> str:
    """`name`, or one without `odd` characters that carries a mark made of the whole name (or of `of`)."""
    fit = re.sub(odd, "_", name)
    if fit == name and 0 < len(name) <= longest and of != "":
        return name
    mark = hashlib.sha256((name if of is None else of).encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{fit[: longest - 9]}_{mark}"


def _folded(schema: dict[str, Any], root: Mapping[str, Any] | None = None, depth: int = 0) -> dict[str, Any]:
    """The schema with what stands in its alternatives at the top as properties of its own."""
    root = schema if root is None else root
    branches = [(key, one) for key in ALTERNATIVES for one in schema.get(key, ())]
    if "$ref" in schema:
        branches.append(("allOf", _at(root, schema["$ref"])))
    if not branches:
        return schema
    made = {key: value for key, value in schema.items() if key not in (*ALTERNATIVES, "$ref")}
    properties, required = dict(schema.get("properties", {})), list(schema.get("required", ()))
    for key, branch in branches:
        inner = _folded(branch, root, depth + 1) if isinstance(branch, dict) and depth < DEEPEST_FOLD else {}
        for name, value in inner.get("properties", {}).items():
            known = properties.setdefault(name, value)
            if known != value:
                properties[name] = {"anyOf": [known, value]}
        required += inner.get("required", ()) if key == "allOf" else ()
    return {**made, "properties": properties, "required": list(dict.fromkeys(required))}


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
        odd = [name for name in _inner_names(schema) if not 0 < len(name) <= LONGEST_KEY or ODD.search(name)]
        if odd:
            return f"a name in its schema is none that the model's API takes ({one_line(cleaned(odd[0]), 40)})"
        Draft202012Validator.check_schema(plain_schema(schema))
        Draft202012Validator.check_schema(for_the_model(schema)[0])
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


def _inner_names(schema: Mapping[str, Any]) -> Iterator[str]:
    """The names of properties below the top, which are not renamed."""
    top = schema.get("properties")
    for key, value in schema.items():
        inner = value.values() if key == "properties" and value is top and isinstance(value, dict) else [value]
        for one in inner:
            yield from _names_in(one)


def _names_in(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for one in value:
            yield from _names_in(one)
    if isinstance(value, dict):
        if isinstance(value.get("properties"), dict):
            yield from value["properties"]
        for one in value.values():
            yield from _names_in(one)


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
