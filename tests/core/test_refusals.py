"""What the API means when it refuses a conversation: the rule by its text, and what may be sent instead."""

from __future__ import annotations

import pytest

from core.refusals import Remedy, counted, remedy_for, rule_of, told

TEXTS = [
    ("R20", "messages.22: `tool_use` ids were found without `tool_result` blocks immediately after: toolu_1. Each"),
    ("R20", "Did not find 1 tool_result block(s) at the beginning of this message."),
    ("R21", "messages.0.content.0: unexpected `tool_use_id` found in `tool_result` blocks: toolu_1. Each"),
    ("R22", "messages.1.content.1: `tool_use` ids must be unique"),
    ("R23", "messages.60.content.1: each tool_use must have a single result. Found multiple `tool_result` blocks"),
    ("R08", "messages.1: all messages must have non-empty content except for the optional final assistant message"),
    ("R10", "messages: text content blocks must be non-empty"),
    ("R11", "messages: text content blocks must contain non-whitespace text"),
    ("R06", 'messages: roles must alternate between "user" and "assistant", but found multiple "user" roles'),
    ("R03", 'messages: first message must use the "user" role'),
    ("R04", "This model does not support assistant message prefill. The conversation must end with a user message."),
    ("R07", "messages.1.reasoning_details: Extra inputs are not permitted"),
    ("R26", "messages.1.content.1.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'"),
    ("R27", "messages.61.content.0.tool_use.input: Input should be a valid dictionary"),
    ("R30", "all content must be type `text` if `is_error` is true"),
    ("R35", "`web_search` tool use with id `srvtoolu_1` was found without a corresponding `web_search_tool_result`"),
    ("R36", "messages.7.content.0: unexpected `tool_use_id` found in `advisor_tool_result` blocks: srvtoolu_1."),
    ("R40", "messages.9.content.0.thinking.signature: Field required"),
    ("R41", "messages.1.content.0.thinking: each thinking block must contain thinking"),
    ("R42", "messages.5.content.2: Invalid `signature` in `thinking` block"),
    ("R42", "messages.5.content.2: Invalid `data` in `redacted_thinking` block"),
    (
        "R43",
        "a final `assistant` message must start with a thinking block (preceeding the lastmost set of",
    ),
    ("R45", "When thinking is disabled, an `assistant` message in the final position cannot contain `thinking`."),
    ("R47", "`thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified."),
    ("R48", "Invalid `signature` in `thinking` block. The block is bound to a different conversation. Remove the"),
    ("R49", "The block is bound to a different conversation. an earlier thinking block is missing or out of order"),
    ("R62", "Could not process image"),
    ("R61", "messages.3.content.0.image.source.base64.data: Image does not match the provided media type image/png"),
    ("R63", "messages.0.content.1: image exceeds 5 MB maximum: 5316852 bytes > 5242880 bytes"),
    ("R70", "The request body is not valid JSON: no low surrogate in string: line 1 column 195621 (char 195620)"),
    ("R72", "Request exceeds the maximum allowed number of bytes"),
    ("R73", "prompt is too long: 209840 tokens > 200000 maximum"),
]


@pytest.mark.parametrize(("rule", "text"), TEXTS)
def test_each_text_of_the_api_names_its_rule(rule: str, text: str) -> None:
    assert rule_of(text) == rule
    assert told(text) == f"The model API refuses this history by its rule {rule}: {text}"


def test_what_nobody_knows_is_told_as_it_came() -> None:
    assert rule_of("messages: something new") is None
    assert told("messages: something new") == "The model API refuses this history: messages: something new"


@pytest.mark.parametrize(("rule", "text"), TEXTS)
def test_thinking_pictures_and_size_have_a_remedy_of_their_own(rule: str, text: str) -> None:
    expected = Remedy.ANEW
    if rule in ("R40", "R41", "R42", "R43", "R45", "R47", "R48", "R49"):
        expected = Remedy.WITHOUT_THINKING
    if rule in ("R61", "R62", "R63"):
        expected = Remedy.WITHOUT_PICTURES
    if rule in ("R72", "R73"):
        expected = Remedy.CONDENSED
    assert remedy_for(text) is expected


def test_the_size_of_a_prompt_is_read_from_the_refusal() -> None:
    assert counted("prompt is too long: 209840 tokens > 200000 maximum") == (209840, 200000)
    assert counted("prompt is too long") is None
