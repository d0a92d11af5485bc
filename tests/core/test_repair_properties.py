"""The suture on generated histories: healthy ones come out as they are, damaged ones come out valid or named.

A damaged history is a healthy one with one to six damages, each a way in which stores, gateways and clients
really break them. A thousand damaged histories a run.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.repair import MARK, NotRepairable, Sutured, suture
from core.validator import Profile, problems

History = list[dict[str, Any]]
NOT_WORDS = frozenset({"type", "id", "tool_use_id", "name", "role", "media_type", "signature", "data", "ttl"})
QUIET = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def words(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for each in value:
            yield from words(each)
    elif isinstance(value, dict):
        for name, each in value.items():
            if name not in NOT_WORDS or not isinstance(each, str):
                yield from words(each)


@st.composite
def healthy(draw: st.DrawFn) -> History:
    """A conversation as the product writes it: batches, steers, thinking, searches of the API."""
    rng = random.Random(draw(st.integers(0, 2**32)))
    history: History = [{"role": "user", "content": "question 0 of ann"}]
    for turn in range(draw(st.integers(1, 5))):
        history.extend(_turn(rng, turn))
    return history


def _turn(rng: random.Random, turn: int) -> History:
    ids = [f"toolu_{turn}_{at}" for at in range(rng.randrange(4))]
    answer: list[dict[str, Any]] = []
    if rng.random() < 0.3:
        answer.append({"type": "thinking", "thinking": f"thought {turn}", "signature": "Qk1z"})
    if rng.random() < 0.2:
        search, found = f"srvtoolu_{turn}", {"type": "web_search_tool_result"}
        call = {"type": "server_tool_use", "id": search, "name": "web_search", "input": {"query": f"query {turn}"}}
        answer.extend([call, {**found, "tool_use_id": search, "content": []}])
    if rng.random() < 0.5 or not ids:
        answer.append({"type": "text", "text": f"answer {turn} of the model"})
    answer.extend(
        {"type": "tool_use", "id": each, "name": rng.choice(["logs", "restart"]), "input": {"app": f"app {each}"}}
        for each in ids
    )
    reply = [_result(rng, each) for each in ids]
    if rng.random() < 0.5 or not ids:
        reply.append({"type": "text", "text": f"words {turn} of ben"})
    return [{"role": "assistant", "content": answer}, {"role": "user", "content": reply}]


def _result(rng: random.Random, call_id: str) -> dict[str, Any]:
    said = f"output of {call_id}"
    content: Any = rng.choice([said, [{"type": "text", "text": said}]])
    return {"type": "tool_result", "tool_use_id": call_id, "content": content}


BLOCKS: list[Any] = [
    None,
    7,
    "a bare text",
    [],
    {},
    {"text": "no type here"},
    {"type": 5},
    {"type": "text"},
    {"type": "text", "text": ""},
    {"type": "text", "text": " \n"},
    {"type": "text", "text": "half \ud800 and\0nul"},
    {"type": "text", "text": "mark", "cache_control": {"type": "ephemeral"}},
    {"type": "text", "text": "long mark", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
    {"type": "sticker", "caption": "unknown block"},
    {"type": "thinking", "thinking": "thought unsigned"},
    {"type": "redacted_thinking", "data": "abc"},
    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "PGh0bWw+"}},
    {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "doc"}},
    {"type": "tool_use", "id": "stray", "name": "logs", "input": {"app": "stray app"}},
    {"type": "tool_use", "name": "a.b", "input": '{"cut'},
    {"type": "tool_result", "tool_use_id": "nobody", "content": "output of nobody"},
    {"type": "tool_result", "content": "output without id"},
    {"type": "tool_result", "tool_use_id": "toolu_0_0", "content": ["s", 7], "is_error": True},
    {"type": "server_tool_use", "id": "srvtoolu_x", "name": "web_search", "input": {"query": "query x"}},
    {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_y", "content": []},
]
CONTENTS: list[Any] = [None, {"a": "an object"}, 5, [], "", [{"type": "text", "text": ""}], float("nan")]
MESSAGES: list[Any] = ["inserted words", "", "  ", [], None, [{"type": "text", "text": "inserted list"}]]
ROLES: list[Any] = ["user", "assistant", "system", "developer", "tool", "human", "somebody", None]
IDS: list[Any] = ["twice", "a.b:c", "", "toolu_0_0", None, 7]


def _content(rng: random.Random, history: History) -> list[Any]:
    found = rng.choice(history).get("content")
    return found if isinstance(found, list) else []


def _set(rng: random.Random, history: History, kind: str, field: str, values: list[Any]) -> None:
    for block in _content(rng, history):
        if isinstance(block, dict) and block.get("type") == kind:
            block[field] = copy.deepcopy(rng.choice(values))
            return


def drop_a_message(rng: random.Random, history: History) -> None:
    del history[rng.randrange(len(history))]


def repeat_a_message(rng: random.Random, history: History) -> None:
    history.insert(rng.randrange(len(history) + 1), copy.deepcopy(rng.choice(history)))


def swap_messages(rng: random.Random, history: History) -> None:
    left, right = rng.randrange(len(history)), rng.randrange(len(history))
    history[left], history[right] = history[right], history[left]


def insert_a_message(rng: random.Random, history: History) -> None:
    message = {"role": rng.choice(ROLES), "content": copy.deepcopy(rng.choice(MESSAGES))}
    history.insert(rng.randrange(len(history) + 1), message)


def join_two_messages(rng: random.Random, history: History) -> None:
    at = rng.randrange(len(history))
    following = history[at + 1 : at + 2]
    content = history[at].get("content")
    if following and isinstance(content, list) and isinstance(following[0].get("content"), list):
        content.extend(following[0]["content"])
        del history[at + 1]


def change_a_role(rng: random.Random, history: History) -> None:
    rng.choice(history)["role"] = rng.choice(ROLES)


def add_a_field(rng: random.Random, history: History) -> None:
    rng.choice(history)["stored_at"] = 7


def drop_a_block(rng: random.Random, history: History) -> None:
    content = _content(rng, history)
    if content:
        del content[rng.randrange(len(content))]


def repeat_a_block(rng: random.Random, history: History) -> None:
    content = _content(rng, history)
    if content:
        content.insert(rng.randrange(len(content) + 1), copy.deepcopy(rng.choice(content)))


def shuffle_blocks(rng: random.Random, history: History) -> None:
    rng.shuffle(_content(rng, history))


def insert_a_block(rng: random.Random, history: History) -> None:
    content = _content(rng, history)
    content.insert(rng.randrange(len(content) + 1), copy.deepcopy(rng.choice(BLOCKS)))


def change_a_call_id(rng: random.Random, history: History) -> None:
    _set(rng, history, "tool_use", "id", IDS)


def change_a_result_id(rng: random.Random, history: History) -> None:
    _set(rng, history, "tool_result", "tool_use_id", IDS)


def change_a_result(rng: random.Random, history: History) -> None:
    _set(rng, history, "tool_result", "content", CONTENTS)


def change_a_name(rng: random.Random, history: History) -> None:
    _set(rng, history, "tool_use", "name", ["", "a.b", "n" * 300, None])


def change_an_input(rng: random.Random, history: History) -> None:
    _set(rng, history, "tool_use", "input", [None, "{cut", ["a list"], {"half \ud800": "key"}])


DAMAGES: list[Callable[[random.Random, History], None]] = [
    drop_a_message,
    repeat_a_message,
    swap_messages,
    insert_a_message,
    join_two_messages,
    change_a_role,
    add_a_field,
    drop_a_block,
    repeat_a_block,
    shuffle_blocks,
    insert_a_block,
    change_a_call_id,
    change_a_result_id,
    change_a_result,
    change_a_name,
    change_an_input,
]
PARTS: list[dict[str, Any]] = [
    {},
    {},
    {"tools": []},
    {"allow_system": True},
    {"prefill": True},
    {"thinking": {"type": "enabled", "budget_tokens": 1024}},
    {"thinking": {"type": "disabled"}},
]


@st.composite
def damaged(draw: st.DrawFn) -> dict[str, Any]:
    history = draw(healthy())
    rng = random.Random(draw(st.integers(0, 2**32)))
    for damage in draw(st.lists(st.sampled_from(DAMAGES), min_size=1, max_size=6)):
        if history:
            damage(rng, history)
    return {"messages": history, **draw(st.sampled_from(PARTS))}


def sewn(request: Mapping[str, Any], profile: Profile) -> Sutured | None:
    """None for the two named cases: nothing was said, or nothing is left at all."""
    try:
        return suture(request, profile=profile)
    except NotRepairable as error:
        assert "there is nothing to answer" in str(error)
        return None


@settings(QUIET, max_examples=100)
@given(healthy(), st.sampled_from(list(Profile)))
def test_a_healthy_history_comes_out_byte_for_byte(history: History, profile: Profile) -> None:
    before = json.dumps(history)
    sutured = suture(history, profile=profile)
    assert json.dumps(sutured.messages) == before
    assert sutured.repairs == []


@settings(QUIET, max_examples=1000)
@given(damaged(), st.sampled_from(list(Profile)))
def test_a_damaged_history_comes_out_valid_honest_and_for_good(request: dict[str, Any], profile: Profile) -> None:
    given_, before = copy.deepcopy(request), repr(request)
    sutured = sewn(request, profile)
    assert repr(request) == before
    if sutured is None:
        return
    _is_valid_for_good(request, sutured, profile)
    _is_honest(given_, sutured)


JUNK: list[Any] = [
    *(
        None,
        0,
        -1,
        1.5,
        True,
        "",
        " ",
        "x",
        "\ud800",
        "\0",
        float("nan"),
        10**30,
        [],
        {},
        ["x"],
        {"a": 1},
        [[]],
        [{}],
    ),
    *({"type": "text"}, {"type": ["x"]}, "tool_use", [{"type": "text", "text": "n"}], {"type": "text", "text": "o"}),
]
FIELDS = [
    *("type", "role", "content", "id", "tool_use_id", "name", "input", "text"),
    *("source", "is_error", "cache_control", "tool_calls", "parts", "data"),
]


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a JSON value."""
    yield place
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, each in inner:
        yield from places(each, (*place, name))


def put_junk_somewhere(rng: random.Random, request: dict[str, Any]) -> None:
    """A value of any shape in any place, or under a name of the API where it does not belong."""
    place = rng.choice([place for place in places(request) if len(place) > 1])
    inside: Any = request
    for name in place[:-1]:
        inside = inside[name]
    inside[rng.choice(FIELDS) if isinstance(inside, dict) and rng.random() < 0.3 else place[-1]] = copy.deepcopy(
        rng.choice(JUNK)
    )


@settings(QUIET, max_examples=250)
@given(damaged(), st.integers(0, 2**32), st.integers(1, 4), st.sampled_from(list(Profile)))
def test_junk_in_any_place_is_sewn_or_named(
    request: dict[str, Any], seed: int, pieces: int, profile: Profile
) -> None:
    rng = random.Random(seed)
    for _ in range(pieces):
        if any(len(place) > 1 for place in places(request)):
            put_junk_somewhere(rng, request)
    sutured = sewn(request, profile)
    if sutured is not None:
        _is_valid_for_good(request, sutured, profile)


def _is_valid_for_good(request: Mapping[str, Any], sutured: Sutured, profile: Profile) -> None:
    sent = {**request, **sutured.changes, "messages": sutured.messages}
    assert problems(sent, profile) == []
    again = suture(sent, profile=profile)
    assert json.dumps(again.messages) == json.dumps(sutured.messages)
    assert again.repairs == []
    assert bool(sutured.repairs) is bool(problems(request, profile))


def _is_honest(request: Mapping[str, Any], sutured: Sutured) -> None:
    """Thinking, unsendable bytes, and queries of searches that can't be sent may go; nothing else may."""
    given_, kept = set(words(request["messages"])), list(words([sutured.messages, sutured.deferred]))
    everything = "\n".join(kept)
    for said in given_:
        mortal = said.startswith(("thought", "query", "half")) or not said.strip()
        assert mortal or said in everything or said in _roles(request), said
    for new in kept:
        assert new in given_ or MARK in new or new.rstrip() in {each.rstrip() for each in given_}, new


def _roles(request: Mapping[str, Any]) -> set[str]:
    return {str(message.get("role")) for message in request["messages"] if isinstance(message, dict)}


@settings(QUIET, max_examples=40)
@given(damaged())
def test_what_comes_later_never_changes_how_the_past_is_named(request: dict[str, Any]) -> None:
    """Ids that were given once are given again in every later request."""
    history = request["messages"]
    first = sewn({"messages": history}, Profile.EVERYWHERE)
    more = [*history, {"role": "user", "content": "and then?"}]
    second = sewn({"messages": more}, Profile.EVERYWHERE)
    if first is not None and second is not None:
        assert _ids(second.messages)[: len(_ids(first.messages))] == _ids(first.messages)


def _ids(messages: History) -> list[str]:
    return [
        block["id"]
        for message in messages
        if isinstance(message["content"], list)
        for block in message["content"]
        if block["type"] == "tool_use"
    ]
