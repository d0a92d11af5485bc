"""The arguments of a call: held to the schema of their tool, and told in one short line."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, best_match
from referencing import Registry
from referencing.exceptions import Unresolvable

from core.ports import ToolSpec
from core.redaction import SECRET_NAME, redact, redact_values

UNUSABLE_SCHEMA = "The schema of this tool's arguments can't be used, so nothing was run. Use another tool."


def check_of(spec: ToolSpec) -> Draft202012Validator | None:
    """The check of a tool's arguments, which fetches nothing; None when its schema is not one."""
    try:
        Draft202012Validator.check_schema(spec.input_schema)
    except (SchemaError, RecursionError):
        return None
    return Draft202012Validator(spec.input_schema, registry=Registry())


def fault_of(check: Draft202012Validator | None, arguments: Mapping[str, Any]) -> str | None:
    """Why a call with these arguments must not run, in words for the model; None when it may."""
    if check is None:
        return UNUSABLE_SCHEMA
    try:
        error = best_match(check.iter_errors(dict(arguments)))
    except (Unresolvable, RecursionError, re.error):
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
    line = redact(" ".join(" ".join(parts).split()))
    return line if len(line) <= 160 else f"{line[:159]}…"


def _short(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)[:200]
