"""The arguments of a call: held to the schema of their tool, and told in one short line.

A schema may be somebody else's, and the arguments are the model's: their patterns are matched for a moment at most.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import regex
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError, best_match
from jsonschema.validators import extend
from referencing import Registry
from referencing.exceptions import Unresolvable

from core.evidence import whole
from core.ports import ToolSpec
from core.redaction import SECRET_NAME, redact, redact_values

UNUSABLE_SCHEMA = "The schema of this tool's arguments can't be used, so nothing was run. Use another tool."
MATCH_S = 0.05


def _finds(pattern: str, text: str) -> bool:
    """Whether a pattern is somewhere in a text. Raises TimeoutError when that takes too long."""
    return regex.search(pattern, text, timeout=MATCH_S) is not None


def _pattern(validator: Any, pattern: str, value: Any, _schema: Any) -> Iterator[ValidationError]:
    if validator.is_type(value, "string") and not _finds(pattern, value):
        yield ValidationError(f"{value!r} does not match {pattern!r}")


def _pattern_properties(validator: Any, patterns: Any, value: Any, _schema: Any) -> Iterator[ValidationError]:
    if validator.is_type(value, "object"):
        for pattern, schema in patterns.items():
            for name, held in value.items():
                if _finds(pattern, name):
                    yield from validator.descend(held, schema, path=name, schema_path=pattern)


def _additional(validator: Any, schema: Any, value: Any, around: Any) -> Iterator[ValidationError]:
    if not validator.is_type(value, "object"):
        return
    named, patterns = around.get("properties", {}), around.get("patternProperties", {})
    extra = [name for name in value if name not in named and not any(_finds(one, name) for one in patterns)]
    if validator.is_type(schema, "object"):
        for name in extra:
            yield from validator.descend(value[name], schema, path=name)
    elif not schema and extra:
        listed, were = ", ".join(repr(name) for name in extra), "was" if len(extra) == 1 else "were"
        yield ValidationError(f"Additional properties are not allowed ({listed} {were} unexpected)")


Check: Any = extend(  # type: ignore[no-untyped-call]
    Draft202012Validator,
    {"pattern": _pattern, "patternProperties": _pattern_properties, "additionalProperties": _additional},
)


def check_of(spec: ToolSpec) -> Draft202012Validator | None:
    """The check of a tool's arguments, which fetches nothing; None when its schema is not one."""
    try:
        Draft202012Validator.check_schema(spec.input_schema)
    except (SchemaError, RecursionError):
        return None
    made: Draft202012Validator = Check(spec.input_schema, registry=Registry())
    return made


def fault_of(check: Draft202012Validator | None, arguments: Mapping[str, Any]) -> str | None:
    """Why a call with these arguments must not run, in words for the model; None when it may."""
    if check is None:
        return UNUSABLE_SCHEMA
    try:
        error = best_match(check.iter_errors(dict(arguments)))
    except (Unresolvable, RecursionError, regex.error, TimeoutError):
        return UNUSABLE_SCHEMA
    if error is None:
        return None
    path = [str(part) for part in error.absolute_path]
    where = "/".join(path) or "arguments"
    if any(SECRET_NAME.search(part) for part in path):
        return (
            f"Nothing was run: {where[:100]}: this value is not allowed here (it is not repeated: it may be a secret)"
        )
    return f"Nothing was run: {where[:100]}: {redact(error.message)[:500]}"


def summarise(arguments: Mapping[str, Any]) -> str:
    """The arguments in one short line for people and logs."""
    parts = [f"{name}={_short(value)}" for name, value in redact_values(arguments).items()]
    line = whole(redact(" ".join(" ".join(parts).split())))
    return line if len(line) <= 160 else f"{line[:159]}…"


def _short(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)[:200]
