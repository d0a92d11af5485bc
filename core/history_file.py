"""A history as somebody has it in a file: read, checked, repaired. The command line prints what comes back.

A file holds a JSON list of messages, or an object with `messages` and any other part of a request (tools,
system, thinking, tool_choice). Whatever else it holds is a `BadInput` of one sentence.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from core.errors import BadInput
from core.repair import Sutured, suture
from core.validator import Problem, Profile, problems

PIECE_DIGITS: Final = 4_000
"""Python refuses to read longer numbers in one piece. The validator calls them R75."""
CONVERSATION: Final = "a JSON list of messages, or an object with a list called messages"


def _whole_number(digits: str) -> int:
    sign, digits = (-1, digits[1:]) if digits.startswith("-") else (1, digits)
    value = 0
    for at in range(0, len(digits), PIECE_DIGITS):
        piece = digits[at : at + PIECE_DIGITS]
        value = value * 10 ** len(piece) + int(piece)
    return sign * value


def parse(text: str | bytes) -> dict[str, Any]:
    """The request in a file. Raises `BadInput`; nothing that a file can hold raises anything else."""
    value = _json_of(_decoded(text))
    if isinstance(value, list):
        value = {"messages": value}
    if not isinstance(value, dict) or not isinstance(value.get("messages"), list):
        raise BadInput(f"The file holds no conversation: give {CONVERSATION}.")
    return value


def _decoded(text: str | bytes) -> str:
    if isinstance(text, str):
        return text.removeprefix("\ufeff")
    try:
        return text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(
            f"The file is not UTF-8: byte {error.start} can't be read; save it as UTF-8 and try again."
        ) from None


def _json_of(text: str) -> Any:
    try:
        return json.loads(text, parse_int=_whole_number)
    except json.JSONDecodeError as error:
        raise BadInput(f"The file is not JSON: {error.msg} at line {error.lineno}, column {error.colno}.") from None
    except RecursionError:
        raise BadInput(f"The file is nested too deeply to be a conversation: give {CONVERSATION}.") from None


def check(request: Mapping[str, Any], profile: Profile = Profile.EVERYWHERE) -> list[Problem]:
    """Every reason for which the API would refuse the request; empty when it is valid."""
    return problems(request, profile)


def repair(
    request: Mapping[str, Any], profile: Profile = Profile.EVERYWHERE, *, without_thinking: bool = False
) -> dict[str, Any]:
    """`messages` and `repairs` (rule, path, what), ready for JSON. `changes` (other parts of the request that
    must change) and `deferred` (words that must wait for the next message) only when there are any.

    Raises `core.repair.NotRepairable`.
    """
    return _as_json(suture(request, profile=profile, without_thinking=without_thinking))


def _as_json(sutured: Sutured) -> dict[str, Any]:
    repairs = [{"rule": each.rule, "path": each.path, "what": each.what} for each in sutured.repairs]
    out: dict[str, Any] = {"messages": sutured.messages, "repairs": repairs}
    if sutured.changes:
        out["changes"] = sutured.changes
    if sutured.deferred:
        out["deferred"] = sutured.deferred
    return out
