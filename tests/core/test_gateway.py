"""The one door for tool calls: whatever is asked and whatever a tool does, there is one true result, in time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.arguments import summarise
from core.cancel import Cancel
from core.errors import ToolError
from core.evidence import clean
from core.gateway import Call, CallResult, CallStatus, Gateway, cancelled, not_run, recovered
from core.limits import Limits
from core.ports import Tier, Tool, ToolOutput, ToolSpec
from tests.core.doubles import FakeTool, after, call, stubborn, tool
from tests.support.scene import keeping
from tests.support.virtual_time import ends_within, in_virtual_time, now, run

LIMITS = Limits(tool_timeout_s=10.0, output_chars=1_000)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
QUERY = {
    "type": "object",
    "properties": {"query": {"type": "string", "minLength": 1}, "limit": {"type": "integer", "minimum": 1}},
    "required": ["query"],
    "additionalProperties": False,
}


def gateway(*tools: Tool, limits: Limits = LIMITS) -> Gateway:
    return Gateway(tools, limits, lambda: asyncio.get_running_loop().time())


def asked(name: str, schema: Mapping[str, Any] = QUERY) -> Gateway:
    return gateway(FakeTool(ToolSpec(name, "d", schema), after(0)))


ASKED = asked("query")


def block(name: str, given_: Any = None) -> dict[str, Any]:
    return {"type": "tool_use", "id": "toolu_1", "name": name, "input": {} if given_ is None else given_}


async def ran(work: Any, *, tier: Tier = Tier.READ, limits: Limits = LIMITS, **spec: Any) -> CallResult:
    """The result of one call of a tool that does `work`."""
    return await gateway(tool("it", work, tier=tier, **spec), limits=limits).run(call("it", tier))


# -- may it run


def test_the_model_is_offered_the_tools_in_a_stable_order() -> None:
    one, other = gateway(tool("b"), tool("a")), gateway(tool("a"), tool("b"))
    assert [spec.name for spec in one.specs] == ["a", "b"]
    assert one.declaration() == other.declaration()
    assert set(one.declaration()[0]) == {"name", "description", "input_schema"}


@pytest.mark.parametrize("name", ["QUERY", "query ", "", "rm -rf", "quer\u0443", "a" * 5_000])
def test_a_tool_that_is_not_on_the_list_is_refused_with_the_list(name: str) -> None:
    found = asked("query").admit(0, block(name), broken=False)
    assert found.refusal is not None and "The tools are: query." in found.refusal
    assert "nothing was run" in found.refusal
    assert len(found.refusal) < 500
    assert not found.writes


def test_without_tools_the_list_says_none() -> None:
    assert "The tools are: none." in str(gateway().admit(0, block("x"), broken=False).refusal)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"query": "up"}, None),
        ({"query": "up", "limit": 5}, None),
        ({}, "'query' is a required property"),
        ({"query": ""}, "query"),
        ({"query": "up", "limit": "5"}, "limit: '5' is not of type 'integer'"),
        ({"query": "up", "limit": -1}, "limit: -1 is less than the minimum"),
        ({"query": "up", "rm": "-rf"}, "'rm' was unexpected"),
        ({"query": ["up"]}, "is not of type 'string'"),
        ("up", "'query' is a required property"),
        (["up"], "'query' is a required property"),
    ],
)
def test_arguments_are_held_to_the_tools_schema(arguments: Any, says: str | None) -> None:
    refusal = asked("query").admit(0, block("query", arguments), broken=False).refusal
    if says is None:
        assert refusal is None
    else:
        assert refusal is not None and says in refusal and refusal.startswith("Nothing was run")


def test_a_call_that_was_cut_off_is_not_run_even_if_its_empty_arguments_would_do() -> None:
    found = asked("query", {"type": "object"}).admit(0, block("query", {}), broken=True)
    assert found.refusal is not None and "cut off" in found.refusal


@settings(max_examples=200, deadline=None)
@given(name=st.text() | st.just("query"), given_=JSON, broken=st.booleans())
def test_admitting_never_raises(name: str, given_: Any, broken: bool) -> None:
    found = ASKED.admit(3, block(name, given_), broken=broken)
    assert found.position == 3
    assert len(found.summary) <= 160
    assert found.refusal is None or len(found.refusal) < 1_000


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "nonsense"},
        {"properties": []},
        {"required": 5},
        {"$ref": "#/$defs/missing"},
        {"$ref": "https://schemas.example.com/arguments.json"},
        {"$ref": "#"},
        {"patternProperties": {"(?<a": {}}},
    ],
)
def test_a_schema_that_cannot_be_used_refuses_the_call_and_fetches_nothing(schema: Mapping[str, Any]) -> None:
    found = asked("remote", schema).admit(0, block("remote", {"a": 1}), broken=False)
    assert found.refusal is not None
    assert "nothing was run" in found.refusal


@pytest.mark.parametrize(
    ("schema", "arguments"),
    [
        ({"properties": {"q": {"pattern": "^(a+)+$"}}}, {"q": "a" * 40 + "!"}),
        ({"patternProperties": {"^(a+)+$": {}}, "additionalProperties": False}, {"a" * 40 + "!": 1}),
        ({"patternProperties": {"^(a|a)*$": {}}, "additionalProperties": False}, {"a" * 40 + "!": 1}),
    ],
)
def test_a_pattern_that_would_never_end_refuses_the_call_at_once(
    schema: Mapping[str, Any], arguments: Mapping[str, Any]
) -> None:
    began = time.process_time()
    found = asked("remote", {"type": "object", **schema}).admit(0, block("remote", arguments), broken=False)
    assert found.refusal is not None and "nothing was run" in found.refusal.lower()
    assert time.process_time() - began < 5.0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"id": "ab-1", "x-team": "sre"}, None),
        ({"id": "AB"}, "id: 'AB' does not match '^[a-z-]+[0-9]*$'"),
        ({"x-team": 5}, "x-team: 5 is not of type 'string'"),
        ({"other": 1, "more": 2}, "('other', 'more' were unexpected)"),
    ],
)
def test_patterns_of_a_schema_are_held(arguments: Mapping[str, Any], says: str | None) -> None:
    schema = {
        "type": "object",
        "properties": {"id": {"type": "string", "pattern": "^[a-z-]+[0-9]*$"}},
        "patternProperties": {"^x-": {"type": "string"}},
        "additionalProperties": False,
    }
    refusal = asked("look", schema).admit(0, block("look", arguments), broken=False).refusal
    assert (refusal is None) if says is None else (refusal is not None and says in refusal)


def test_only_reads_are_interruptible_whatever_a_tool_says_about_itself() -> None:
    for tier in Tier:
        found = gateway(tool("it", tier=tier, interruptible=True)).admit(0, block("it"), broken=False)
        assert found.interruptible is (tier is Tier.READ)
        assert found.writes is (tier is not Tier.READ)
    patient = gateway(tool("it", interruptible=False)).admit(0, block("it"), broken=False)
    assert not patient.interruptible


def test_a_refusal_does_not_repeat_the_secrets_of_the_arguments() -> None:
    found = asked("query").admit(
        0, block("query", {"query": "up", "x": {"password": "hunter2hunter2"}}), broken=False
    )
    assert "hunter2" not in str(found.refusal) + found.summary
    wrong = asked("query").admit(0, block("query", {"query": ["password=hunter2hunter2"]}), broken=False)
    assert "hunter2" not in str(wrong.refusal)


def test_a_value_under_a_secrets_name_is_not_repeated_by_its_refusal() -> None:
    schema = {"type": "object", "properties": {"db_password": {"type": "string", "maxLength": 3}}}
    found = asked("login", schema).admit(0, block("login", {"db_password": "abcd"}), broken=False)
    assert found.refusal is not None and "db_password: this value is not allowed here" in found.refusal
    assert "abcd" not in found.refusal + found.summary


def test_the_summary_of_arguments_is_one_short_line() -> None:
    assert summarise({"query": "up\n{a}", "limit": 5, "deep": {"a": [1]}}) == 'query=up {a} limit=5 deep={"a": [1]}'
    assert len(summarise({"query": "x" * 100_000})) == 160
    assert summarise({}) == ""


# -- what became of it


@in_virtual_time
async def test_what_a_tool_says_is_its_result() -> None:
    result = await ran(after(3, "42"))
    assert (result.status, result.text, result.duration_s, result.is_error) == (CallStatus.OK, "42", 3.0, False)


@in_virtual_time
async def test_a_refused_call_is_not_run() -> None:
    counted = tool("it")
    result = await gateway(counted).run(call("it", refusal="No."))
    assert (result.status, result.text, counted.began) == (CallStatus.REFUSED, "No.", 0)
    assert result.is_error


@in_virtual_time
async def test_an_output_that_says_error_is_one() -> None:
    async def bad(arguments: Mapping[str, Any]) -> ToolOutput:
        return ToolOutput("no such host", is_error=True)

    result = await ran(bad)
    assert (result.status, result.text) == (CallStatus.ERROR, "no such host")


@pytest.mark.parametrize("tier", Tier)
def test_what_the_model_can_mend_is_told_to_it_and_is_a_known_outcome(tier: Tier) -> None:
    result = run(ran(after(0, error=ToolError("There is no namespace 'prod'.")), tier=tier))
    assert (result.status, result.text) == (CallStatus.ERROR, "There is no namespace 'prod'.")


@pytest.mark.parametrize("tier", Tier)
@pytest.mark.parametrize(
    "error",
    [
        ValueError("key sk-ant-abcdef"),
        RecursionError("deep"),
        TimeoutError("its own"),
        asyncio.CancelledError("its own"),
        SystemExit(1),
        KeyboardInterrupt(),
        GeneratorExit(),
        BaseExceptionGroup("of both", [ValueError("a"), SystemExit(2)]),
        type("Odd", (BaseException,), {})("odd"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_whatever_a_tool_raises_is_a_result_and_of_a_write_an_unknown_one(error: BaseException, tier: Tier) -> None:
    result = run(ran(after(1, error=error), tier=tier))
    assert type(error).__name__ in result.text
    assert "sk-ant" not in result.text
    assert result.status is (CallStatus.ERROR if tier is Tier.READ else CallStatus.UNKNOWN)
    assert ("check before anything else" in result.text) is (tier is not Tier.READ)
    assert result.duration_s == 1.0


@in_virtual_time
async def test_a_read_that_does_not_answer_in_time_read_nothing() -> None:
    result = await ends_within(ran(after(3_600)), 10.0)
    assert result.status is CallStatus.TIMEOUT
    assert result.text == "No answer within 10 s, so nothing was read. Ask for less, or look another way."


@pytest.mark.parametrize("tier", [Tier.WRITE, Tier.EXTERNAL])
def test_a_write_that_does_not_answer_in_time_is_unknown(tier: Tier) -> None:
    result = run(ran(after(3_600), tier=tier))
    assert result.status is CallStatus.UNKNOWN
    assert "may have been done or not" in result.text


@pytest.mark.parametrize(("tier", "took"), [(Tier.READ, 10.0), (Tier.WRITE, 60.0)])
def test_a_tools_own_limit_shortens_a_read_and_gives_a_write_its_time(tier: Tier, took: float) -> None:
    assert run(ran(after(3_600), tier=tier, timeout_s=60.0)).duration_s == took
    assert run(ran(after(3_600), tier=tier, timeout_s=2.0)).duration_s == 2.0


@pytest.mark.parametrize("tier", Tier)
def test_a_tool_that_ignores_cancellation_is_left_behind_at_its_limit(tier: Tier) -> None:
    async def limited() -> CallResult:
        return await ends_within(ran(stubborn(3_600), tier=tier), 11.0)

    assert run(limited()).status is (CallStatus.TIMEOUT if tier is Tier.READ else CallStatus.UNKNOWN)


@in_virtual_time
async def test_an_answer_that_comes_while_a_late_tool_is_let_go_is_still_its_answer() -> None:
    result = await ran(stubborn(10.5, "done after all"), tier=Tier.WRITE)
    assert (result.status, result.text) == (CallStatus.OK, "done after all")


@in_virtual_time
async def test_cancelling_a_call_cancels_its_tool_and_is_passed_on() -> None:
    ended: list[str] = []

    async def long(arguments: Mapping[str, Any]) -> ToolOutput:
        try:
            await asyncio.sleep(3_600)
        finally:
            ended.append("tool")
        return ToolOutput("")

    task = asyncio.ensure_future(ran(long))
    await asyncio.sleep(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["tool"]


@in_virtual_time
async def test_cancelling_a_call_does_not_wait_for_a_tool_that_ignores_it() -> None:
    task = asyncio.ensure_future(ran(stubborn(3_600)))
    await asyncio.sleep(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert now() <= 2.0


@in_virtual_time
async def test_a_tool_that_returns_no_output_at_all_failed_inside() -> None:
    async def nothing(arguments: Mapping[str, Any]) -> Any:
        return None

    assert (await ran(nothing)).status is CallStatus.ERROR


# -- what is kept of it


@in_virtual_time
async def test_a_hundred_megabytes_are_cut_to_the_limit_and_say_so() -> None:
    result = await ran(after(0, "x" * 100_000_000))
    assert result.text == (
        f"{'x' * 1_000}\n[cut: 99,999,000 of 100,000,000 characters are left out here; the first 1,000,000 are kept "
        "for people. To see what is left out, look another way.]"
    )
    assert result.kept is not None and (len(result.kept.body), result.kept.chars) == (1_000_000, 100_000_000)


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("a\x00b", "a\ufffdb"),
        ("a\ud800b", "a\ufffdb"),
        ("\udc00", "\ufffd"),
        ("\ud83d\ude00", "\U0001f600"),
        ("\U0001f600", "\U0001f600"),
        ("token xoxb-1234-abcdef here", "token [redacted Slack token] here"),
        ("", ""),
        ("\x7fELF\x02\x01\x01\x00\x00" * 10, "[binary: 90 characters were not kept]"),
        ("\ufffdPNG\r\n\x1a\n" * 10, "[binary: 80 characters were not kept]"),
        ("\x1b[31m500\x1b[0m checkout\n" * 3, "\x1b[31m500\x1b[0m checkout\n" * 3),
        ("a\x00 b", "a\ufffd b"),
    ],
)
def test_output_is_cleaned_where_it_comes_in(said: str, kept: str) -> None:
    assert clean(said, 1_000) == kept
    assert run(ran(after(0, said))).text == kept
    assert run(ran(after(0, error=ToolError(said)))).text == kept


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet=st.characters(exclude_categories=[]), max_size=60), st.integers(1, 20))
def test_whatever_comes_in_what_is_kept_can_be_stored_and_is_bounded(text: str, limit: int) -> None:
    kept = clean(text, limit)
    kept.encode()
    assert "\x00" not in kept
    assert len(kept) <= limit + len("\n[cut: 60 more characters were not kept]")


@in_virtual_time
async def test_links_that_cannot_be_stored_or_hold_a_secret_are_left_out() -> None:
    good, bad = ("graph", "https://grafana.example.com/d/1"), ("a\x00\ud800", "https://x.example.com/\ud800")

    async def linked(arguments: Mapping[str, Any]) -> ToolOutput:
        return ToolOutput(
            "see", links=[good, bad, ("key", "https://x.example.com/?api_key=abcdef123456")] + [good] * 99
        )

    links = (await ran(linked)).links
    assert links[0] == good
    assert len(links) <= 20
    assert {url for _, url in links} == {good[1]}


# -- calls that did not run to their end


@pytest.mark.parametrize("reason", Cancel)
def test_a_cancelled_read_says_why_and_that_nothing_was_read(reason: Cancel) -> None:
    result = cancelled(call(), reason, 2.04)
    assert result.status is CallStatus.CANCELLED and result.is_error
    assert result.text.startswith("Cancelled after 2.0 s because ") and result.text.endswith("Nothing was read.")


def test_a_call_that_did_not_run_says_so() -> None:
    result = not_run(call(tier=Tier.WRITE), "a person stopped this step")
    assert (result.status, result.text) == (
        CallStatus.NOT_RUN,
        "Not run: a person stopped this step. Nothing was changed by it.",
    )


# -- tools that hold something for a turn


async def test_each_turn_has_its_own_and_all_of_a_turn_have_the_same() -> None:
    browser = keeping("browser")
    door = gateway(browser, tool("look"))
    one, other = door.limited(LIMITS), door.limited(LIMITS)
    for turn in (one, one, other):
        assert (await turn.run(call("browser"))).status is CallStatus.OK
    assert browser.held == [one, other] and one.declaration() == door.declaration()
    await other.close()
    assert browser.told == [("closed", 1)]
    await one.close()
    assert browser.told == [("closed", 1), ("closed", 0)]


async def test_what_a_turn_never_used_is_not_there_to_be_closed() -> None:
    browser = keeping("browser")
    turn = gateway(browser).limited(LIMITS)
    await turn.close()
    assert (browser.held, browser.told) == ([], [])


def test_a_tool_that_does_not_let_go_is_not_waited_for() -> None:
    browser = keeping("browser")
    browser.before_closing = lambda: stubborn(600)({})

    async def ran() -> None:
        turn = gateway(browser).limited(LIMITS)
        await turn.run(call("browser"))
        await ends_within(turn.close(), 2.0)
        assert browser.told == []

    run(ran())


READ, WRITE = call(), call(tier=Tier.WRITE)
REFUSED = call(refusal="There is no such tool.")


@pytest.mark.parametrize(
    ("found", "status", "output", "becomes", "says"),
    [
        (READ, CallStatus.OPEN, None, CallStatus.INTERRUPTED, "Nothing was read"),
        (READ, CallStatus.OK, "42", CallStatus.OK, "42"),
        (READ, CallStatus.OK, "", CallStatus.OK, ""),
        (READ, CallStatus.TIMEOUT, "late", CallStatus.TIMEOUT, "late"),
        (WRITE, CallStatus.OPEN, None, CallStatus.NOT_RUN, "before it was started"),
        (WRITE, CallStatus.INTENT, None, CallStatus.UNKNOWN, "outcome is unknown"),
        (WRITE, CallStatus.INTENT, "half", CallStatus.UNKNOWN, "outcome is unknown"),
        (WRITE, CallStatus.OK, "scaled", CallStatus.OK, "scaled"),
        (WRITE, CallStatus.UNKNOWN, "No answer", CallStatus.UNKNOWN, "No answer"),
        (WRITE, CallStatus.NOT_RUN, "Not run", CallStatus.NOT_RUN, "Not run"),
        (REFUSED, CallStatus.REFUSED, "There is no such tool.", CallStatus.REFUSED, "no such tool"),
        (REFUSED, CallStatus.OPEN, None, CallStatus.REFUSED, "no such tool"),
    ],
)
def test_after_a_crash_a_call_ends_as_what_its_row_knows(
    found: Call, status: CallStatus, output: str | None, becomes: CallStatus, says: str
) -> None:
    result = recovered(found, status, output)
    assert result.status is becomes
    assert says in result.text
