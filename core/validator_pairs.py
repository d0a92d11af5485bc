"""Rules about the order of messages, and about calls and what answers them.

R03 R04 R05 R06      first, last, and alternating roles
R20 R21 R24 R31      each call answered in the next message, in front of its texts
R22 R23              ids unique, one result a call
R35 R36              the same for the tools that the API runs itself
R80                  where a system message may stand
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from core.validator_rules import SERVER_CALLS, SERVER_RESULT_OF, SERVER_RESULTS, Group, Problem, Profile, Spot


def system_problems(groups: Sequence[Group]) -> Iterator[Problem]:
    """R80. A run of system messages counts as one."""
    before: Group | None = None
    for at, group in enumerate(groups):
        if group.role != "system":
            before = group
            continue
        after = groups[at + 1] if at + 1 < len(groups) else None
        path = f"messages.{group.message}"
        if before is None:
            continue
        if before.role == "assistant" and not _ends_with_server_result(before):
            text = "a 'system' message must follow a 'user' message or a server tool result"
            yield Problem("R80", path, f"{path}: {text}")
        elif after is not None and after.role not in ("assistant", "system"):
            text = "a 'system' message must be followed by an 'assistant' message or end the conversation"
            yield Problem("R80", path, f"{path}: {text}")
        for spot in group.spots:
            if spot.kind != "text":
                yield Problem("R80", spot.path, f"{spot.path}: 'system' messages support text blocks only")


def _ends_with_server_result(group: Group) -> bool:
    return bool(group.spots) and group.spots[-1].kind in SERVER_RESULTS


def duplicate_problems(groups: Sequence[Group]) -> Iterator[Problem]:
    """R22: every id of a call once in the whole request."""
    seen: set[str] = set()
    for group in groups:
        for spot in group.spots:
            if spot.kind == "tool_use" or spot.kind in SERVER_CALLS:
                call_id = str(spot.block.get("id"))
                if call_id in seen:
                    yield Problem("R22", spot.path, f"{spot.path}: `tool_use` ids must be unique")
                seen.add(call_id)


def pair_problems(groups: Sequence[Group], profile: Profile) -> Iterator[Problem]:
    """R20, R21, R23, R24 and R31, group by group; system messages don't stand between."""
    spoken = [group for group in groups if group.role != "system"]
    empty = Group(-1, "user", [])
    for at, group in enumerate(spoken):
        if group.role == "assistant":
            following = spoken[at + 1] if at + 1 < len(spoken) else empty
            if profile is Profile.EVERYWHERE:
                yield from _contiguous_problems(group)
            yield from _answer_problems(group, following)
        else:
            before = spoken[at - 1] if at else empty
            yield from _result_problems(group, before)


def _contiguous_problems(group: Group) -> Iterator[Problem]:
    calls = [spot.kind == "tool_use" for spot in group.spots]
    if True in calls and not all(calls[calls.index(True) :]):
        ids = [str(spot.block.get("id")) for spot in group.spots if spot.kind == "tool_use"]
        yield Problem("R31", f"messages.{group.message}", _unanswered(group, ids))


def _unanswered(group: Group, ids: Sequence[str]) -> str:
    return (
        f"messages.{group.message}: `tool_use` ids were found without `tool_result` blocks immediately after: "
        f"{', '.join(ids)}. Each `tool_use` block must have a corresponding `tool_result` block in the next "
        "message."
    )


def _leading(group: Group) -> set[str]:
    ids = set()
    for spot in group.spots:
        if spot.kind != "tool_result":
            break
        ids.add(str(spot.block.get("tool_use_id")))
    return ids


def _answer_problems(group: Group, following: Group) -> Iterator[Problem]:
    ids = [str(spot.block.get("id")) for spot in group.spots if spot.kind == "tool_use"]
    if not ids:
        return
    answering = following if following.role == "user" else Group(-1, "user", [])
    leading = _leading(answering)
    anywhere = {str(spot.block.get("tool_use_id")) for spot in answering.spots if spot.kind == "tool_result"}
    lost = [call_id for call_id in ids if call_id not in anywhere]
    late = [call_id for call_id in ids if call_id in anywhere and call_id not in leading]
    path = f"messages.{group.message}"
    if late:
        yield Problem("R24", f"messages.{answering.message}", _unanswered(group, late))
    if lost:
        yield Problem("R20", path, _unanswered(group, lost))


def _result_problems(group: Group, before: Group) -> Iterator[Problem]:
    calls = set()
    if before.role == "assistant":
        calls = {str(spot.block.get("id")) for spot in before.spots if spot.kind == "tool_use"}
    answered: set[str] = set()
    for spot in group.spots:
        if spot.kind != "tool_result":
            continue
        call_id = str(spot.block.get("tool_use_id"))
        if call_id not in calls:
            text = (
                f"unexpected `tool_use_id` found in `tool_result` blocks: {call_id}. Each `tool_result` block "
                "must have a corresponding `tool_use` block in the previous message."
            )
            yield Problem("R21", spot.path, f"{spot.path}: {text}")
        elif call_id in answered:
            text = "each tool_use must have a single result. Found multiple `tool_result` blocks with id"
            yield Problem("R23", spot.path, f"{spot.path}: {text}: {call_id}")
        answered.add(call_id)


def server_problems(groups: Sequence[Group]) -> Iterator[Problem]:
    """R35 and R36: a server call is answered in its own message, or across one message of client results."""
    spoken = [group for group in groups if group.role != "system"]
    waiting: dict[str, Spot] = {}
    for at, group in enumerate(spoken):
        if group.role != "assistant":
            continue
        opened, problems = _walk_server_blocks(group, waiting)
        yield from problems
        yield from (_open_problem(spot) for spot in waiting.values())
        waiting = {}
        for call_id, spot in opened.items():
            if at + 1 < len(spoken) and _only_client_results(group, spoken[at + 1]):
                waiting[call_id] = spot
            elif at + 1 < len(spoken) or not paused(group):
                yield _open_problem(spot)


def _walk_server_blocks(group: Group, waiting: dict[str, Spot]) -> tuple[dict[str, Spot], list[Problem]]:
    opened: dict[str, Spot] = {}
    problems: list[Problem] = []
    for spot in group.spots:
        if spot.kind in SERVER_CALLS:
            opened[str(spot.block.get("id"))] = spot
        elif spot.kind in SERVER_RESULTS:
            call_id = str(spot.block.get("tool_use_id"))
            call = opened.get(call_id) or waiting.get(call_id)
            if call is None or result_kind(call.block) != spot.kind:
                problems.append(_unexpected(spot, call_id))
            opened.pop(call_id, None)
            waiting.pop(call_id, None)
    return opened, problems


def result_kind(call: Mapping[str, Any]) -> str:
    """The type of the block that answers this server call."""
    if call.get("type") == "mcp_tool_use":
        return "mcp_tool_result"
    return SERVER_RESULT_OF.get(str(call.get("name")), "")


def _unexpected(spot: Spot, call_id: str) -> Problem:
    text = (
        f"unexpected `tool_use_id` found in `{spot.kind}` blocks: {call_id}. Each `{spot.kind}` block must have "
        "a corresponding `server_tool_use` block before it."
    )
    return Problem("R36", spot.path, f"{spot.path}: {text}")


def _open_problem(spot: Spot) -> Problem:
    name, call_id = spot.block.get("name"), spot.block.get("id")
    kind = result_kind(spot.block) or f"{name}_tool_result"
    text = f"`{name}` tool use with id `{call_id}` was found without a corresponding `{kind}` block"
    return Problem("R35", spot.path, f"{spot.path}: {text}")


def _only_client_results(group: Group, following: Group) -> bool:
    has_calls = any(spot.kind == "tool_use" for spot in group.spots)
    return has_calls and bool(following.spots) and all(spot.kind == "tool_result" for spot in following.spots)


def paused(group: Group) -> bool:
    """Whether this assistant message, standing last, is a turn that the API paused on a call of its own."""
    return bool(group.spots) and group.spots[-1].kind in SERVER_CALLS


def first_problems(groups: Sequence[Group]) -> Iterator[Problem]:
    """R03."""
    if groups and groups[0].role == "assistant":
        yield Problem("R03", "messages.0", 'messages: first message must use the "user" role')


def role_problems(groups: Sequence[Group]) -> Iterator[Problem]:
    """R06, with the profile everywhere only: the first-party API joins neighbours."""
    for before, group in pairwise(groups):
        if before.role == group.role and group.role != "system":
            text = (
                'messages: roles must alternate between "user" and "assistant", but found multiple '
                f'"{group.role}" roles in a row'
            )
            yield Problem("R06", f"messages.{group.message}", text)


def last_problems(groups: Sequence[Group], *, prefill: bool) -> Iterator[Problem]:
    """R04, or where prefill is allowed R05 and R4B."""
    last = next((group for group in reversed(groups) if group.role != "system"), None)
    if last is None or last.role != "assistant" or paused(last):
        return
    path = f"messages.{last.message}"
    if not prefill:
        text = "This model does not support assistant message prefill. The conversation must end with a user message."
        yield Problem("R04", path, text)
    tail = last.spots[-1] if last.spots else None
    if tail is None:
        return
    if tail.kind in ("thinking", "redacted_thinking"):
        text = "The final block in an assistant message cannot be `thinking`."
        yield Problem("R4B", tail.path, f"{path}: {text}")
    elif prefill and tail.kind == "text" and str(tail.block.get("text"))[-1:].isspace():
        text = "messages: final assistant content cannot end with trailing whitespace"
        yield Problem("R05", tail.path, text)
