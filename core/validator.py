"""Is this request valid? The rules of the Messages API that a program can check, in the API's own words.

The scripted model refuses with it, and the suture ends with it: no test can pass by sending what the real API
would refuse. Two profiles: *everywhere* (the default) is what every endpoint that speaks the Messages API
accepts, *first-party* what Anthropic's own accepts, which joins neighbours of one role before it looks.

Beside the fields of the API a request may carry what its receiver can do:

    allow_system   true when the model takes system messages in the middle (R80)
    prefill        true when the last message may be the assistant's (R04 becomes R05)
    limits         smaller sizes than the API's (`core.validator_rules.Limits`)
    signatures     {"model": name} when the receiver checks the signatures of `core.fake_signer`

An absent tool list is one that is not known, and not checked; an empty one is empty (R51). Everything is
linear in the size of the request.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from core.fake_signer import signer_of
from core.validator_pairs import (
    duplicate_problems,
    first_problems,
    last_problems,
    pair_problems,
    role_problems,
    server_problems,
    system_problems,
)
from core.validator_request import (
    Verify,
    body_of,
    cache_problems,
    signature_problems,
    size_problems,
    thinking_problems,
    tool_problems,
    writable_problems,
)
from core.validator_rules import Limits, Problem, Profile, Spot, all_spots, groups_of, limits_of
from core.validator_shape import image_problems, message_problems

__all__ = ["Problem", "Profile", "Verify", "problems"]


def problems(
    request: Mapping[str, Any],
    profile: Profile = Profile.EVERYWHERE,
    *,
    verify: Verify | None = None,
) -> list[Problem]:
    """Every reason for which `request` would be refused, the most telling first; empty when it is valid.

    `verify(request, message_index, block_index)` checks the signature of a thinking block and returns the
    API's error text, or None when it is good; without it only the signatures of `core.fake_signer` can be
    checked, in a request that asks for it.
    """
    messages = request.get("messages")
    if isinstance(messages, tuple):
        messages, request = list(messages), {**request, "messages": list(messages)}
    if not isinstance(messages, list):
        return [Problem("R09", "messages", "messages: Input should be a valid list")]
    if not messages:
        return [Problem("R01", "messages", "messages: at least one message is required")]
    signer = signer_of(request)
    if verify is None and signer is not None:
        verify = signer.verify
    return list(_all_problems(request, messages, profile, verify))


def _all_problems(
    request: Mapping[str, Any], messages: list[Any], profile: Profile, verify: Verify | None
) -> Iterator[Problem]:
    limits = limits_of(request)
    if len(messages) > limits.max_messages:
        text = f"messages: There is a limit of {limits.max_messages} messages in a single request."
        yield Problem("R74", "messages", text)
    body = body_of(request)
    if body is None:
        yield from writable_problems(request)
    spots = all_spots(messages)
    yield from _message_problems(request, messages, spots, profile)
    if body is None or '"image"' in body:
        yield from _picture_problems(messages, limits)
    groups = groups_of(messages, profile, spots)
    yield from system_problems(groups)
    yield from duplicate_problems(groups)
    yield from pair_problems(groups, profile)
    yield from server_problems(groups)
    yield from first_problems(groups)
    if profile is Profile.EVERYWHERE:
        yield from role_problems(groups)
    yield from last_problems(groups, prefill=bool(request.get("prefill")))
    yield from thinking_problems(request, groups)
    yield from tool_problems(request, groups)
    if body is None or '"cache_control"' in body:
        yield from cache_problems(request)
    if body is not None:
        yield from size_problems(body, limits)
    if verify is not None:
        yield from signature_problems(request, groups, verify)


def _message_problems(
    request: Mapping[str, Any], messages: list[Any], spots: Sequence[Sequence[Spot]], profile: Profile
) -> Iterator[Problem]:
    system_allowed = bool(request.get("allow_system"))
    for at, message in enumerate(messages):
        last = at == len(messages) - 1
        yield from message_problems(message, at, spots[at], profile, system_allowed=system_allowed, last=last)


def _picture_problems(messages: list[Any], limits: Limits) -> Iterator[Problem]:
    pictures = list(pictures_of(messages))
    many = len(pictures) > limits.many_images
    for path, block in pictures:
        yield from image_problems(block, path, limits, many=many)


def pictures_of(messages: list[Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(path, block) of every image in the history, those inside results too."""
    for at, message in enumerate(messages):
        content = message.get("content") if isinstance(message, dict) else None
        yield from _pictures_in(content, f"messages.{at}.content")


def _pictures_in(content: Any, path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if not isinstance(content, list):
        return
    for index, block in enumerate(content):
        if not isinstance(block, dict):
            continue
        if block.get("type") == "image":
            yield f"{path}.{index}", block
        elif block.get("type") == "tool_result":
            yield from _pictures_in(block.get("content"), f"{path}.{index}.tool_result.content")
