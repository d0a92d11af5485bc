"""Answers as Slack gets them: whole, within the limits, and unable to call anybody."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import regex
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from bot.slack.blocks import answer_messages, plain_messages, summary_messages
from bot.slack.escape import clean, known_host, quiet, size, unescape
from bot.slack.message import SlackMessage
from bot.slack.split import cut, cut_line
from core.messages import TurnId, UserId
from tests.contracts.sendable import assert_sendable, calls_nobody, strings

ANN = UserId("U0ANN0001")


def answer(markdown: str, **more: Any) -> list[SlackMessage]:
    more = {"allowed_mentions": {ANN}, "footer": "3 steps", "feedback_turn": None} | more
    return answer_messages(markdown, asked_by=ANN, **more)


def plain(markdown: str, **more: Any) -> list[SlackMessage]:
    return plain_messages(markdown, **({"asked_by": ANN, "allowed_mentions": {ANN}, "footer": "3 steps"} | more))


def markdown_of(messages: list[SlackMessage]) -> list[str]:
    return [block["text"] for message in messages for block in message.blocks if block["type"] == "markdown"]


def one(markdown: str, **more: Any) -> str:
    (text,) = markdown_of(answer(markdown, **more))
    return text


def words(text: str) -> Counter[str]:
    return Counter(regex.findall(r"[^\W_]+", text.replace("\u200b", "")))


def assert_keeps_every_word(markdown: str, shown: str) -> None:
    said = regex.sub(r"<@([UW][A-Z0-9]+)(?:\|[^<>\n]*)?>", r" \1 ", clean(markdown))
    assert not words(said) - (words(unescape(shown)) | words(shown))


def test_the_first_part_mentions_who_asked_and_the_last_has_footer_and_feedback() -> None:
    messages = answer("First.\n\n" + "word " * 4_000, footer="3 steps · $0.03", feedback_turn="turn-1")
    assert len(messages) > 1
    assert messages[0].text.startswith("<@U0ANN0001> First.")
    assert messages[0].blocks[0]["text"]["text"] == "<@U0ANN0001>"
    assert [block["type"] for block in messages[0].blocks] == ["section", "markdown"]
    assert [block["type"] for block in messages[-1].blocks] == ["markdown", "context", "context_actions"]
    feedback = messages[-1].blocks[-1]["elements"][0]
    assert feedback["positive_button"]["value"] == "turn-1:up"
    assert feedback["negative_button"]["value"] == "turn-1:down"


def test_markdown_that_slack_draws_is_left_as_it_is() -> None:
    markdown = (
        "# Root cause\n\nThe **gateway** *change* at 14:05:12 ~~host~~.\n\n"
        "1. roll back\n   - then `watch`\n2. done\n\n> quoted\n\n---\n\n```bash\nkubectl get pods\n```"
    )
    assert one(markdown) == markdown


BROADCASTS = [
    "Root cause found. <!channel> please restart. <!subteam^S0SRE0001> <@U0CEO0001> also @here",
    "<!here|harmless label> <!everyone> <!date^1^{date}|x>",
    "`<!channel>` and\n\n```\n<!here>\n@channel\n```",
    "@channel, (@here) **@everyone** _@here_ 请@here",
    "＠here @ｃhannel @\u200bhere @he\u00adre ＜!channel＞ <\u200b!channel> @CHANNEL",
    "[@here](https://example.com/@channel) ![<!here>](https://example.com/x)",
    "# @here\n\n> <!channel>\n\n- <!here>\n\n| <!channel> | @here |\n|---|---|\n| <@U0CEO0001> | <!here> |",
    r"\@here \<!channel> @\here <@U0CEO0001|channel> &lt;!channel&gt; &#60;!here&#62; &commat;here",
    "<!chan" + "x" * 11_500 + "nel> <!here>",
    "x" * 10_993 + "@here " + "y" * 3_000,
]


@pytest.mark.parametrize("markdown", BROADCASTS)
def test_no_broadcast_token_survives_on_any_path(markdown: str) -> None:
    for message in [*answer(markdown), *plain(markdown)]:
        assert_sendable(message, {ANN})
    assert_sendable(summary_messages(markdown, asked_by=ANN, turn_id=TurnId("t"), footer="")[-1], {ANN})


def test_people_are_mentioned_only_if_they_may_be() -> None:
    assert one("ask <@U0ANN0001|ann> or <@U0CEO0001> or <@U0BOB0001|bob>") == (
        "ask <@U0ANN0001> or @U0CEO0001 or @bob (U0BOB0001)"
    )


def test_an_entity_of_the_text_is_escaped_once_and_never_unescaped() -> None:
    assert one("a &lt;!channel&gt; b & c") == "a &amp;lt;!channel&amp;gt; b &amp; c"


def test_a_command_in_code_can_be_copied_and_a_token_in_code_is_none() -> None:
    command = "kubectl get pods | grep '<none>' && curl -s a?x=1\\&y=2 > out <!channel> <https://x.test|y>"
    safe = command.replace("<!", "&lt;!").replace("<https", "&lt;https")
    assert one(f"`{command}`") == f"`{safe}`"
    assert one(f"```\n{command}\n```") == f"```\n{safe}\n```"
    assert "grep '&lt;none&gt;' &amp;&amp; curl" in plain(f"`{command}`")[0].text


def test_an_answer_to_an_alert_mentions_nobody() -> None:
    (message,) = answer_messages(
        "Fine.", asked_by=UserId("B0ALERTS"), footer="", allowed_mentions=(), feedback_turn=None
    )
    assert message.text == "Fine."
    assert [block["type"] for block in message.blocks] == ["markdown"]


def test_an_address_is_no_broadcast() -> None:
    assert one("write to ops@here.example.org") == "write to ops@here.example.org"


LINKS = [
    ("[dash](https://grafana.example.com/d?a=1&b=2)", "[dash](https://grafana.example.com/d?a=1&b=2)"),
    ("https://example.com/x.", "[https://example.com/x](https://example.com/x)."),
    ("[dash](https://evil.test/?q=secret)", "dash (`https://evil.test/?q=secret`)"),
    ("<https://evil.test>", "`https://evil.test`"),
    ("see https://evil.test/x, www.evil.test", "see `https://evil.test/x`, `www.evil.test`"),
    ("[a](https://example.com@evil.test/)", "a (`https://example.com@evil.test/`)"),
    ("[a](https://notexample.com/)", "a (`https://notexample.com/`)"),
    ("![chart](https://evil.test/a.png)", "chart (`https://evil.test/a.png`)"),
    ("![chart](https://example.com/a.png)", "[chart](https://example.com/a.png)"),
    ("[a](javascript:alert)", "[a] (javascript:alert)"),
    ("evil.test/steal?q=1", "`evil.test/steal?q=1`"),
]


@pytest.mark.parametrize(("written", "sent"), LINKS)
def test_links_lead_to_known_hosts_or_are_code(written: str, sent: str) -> None:
    assert one(written, known_hosts={"example.com"}) == sent


@pytest.mark.parametrize(
    ("address", "known"),
    [
        ("https://example.com", True),
        ("https://a.b.example.com:8443/x", True),
        ("http://EXAMPLE.com./", True),
        ("ftp://example.com", False),
        ("https://example.com.evil.test", False),
        ("https://evil.test\\@example.com", False),
        ("https://[::1", False),
        ("https://example.com:port/", False),
        ("https://", False),
    ],
)
def test_a_host_is_known_label_by_label(address: str, known: bool) -> None:
    assert known_host(address, {"example.com"}) is known


@pytest.mark.parametrize(
    ("written", "sent"),
    [
        ("12:34:56:warning:disk", "`12:34:56:warning:disk`"),
        ("at 10:20:30 :error: came", "at 10:20:30 `:error:` came"),
        ("磁盘:warning:满了", "磁盘`:warning:`满了"),
        ("**x** :+1: and :100:", "**x** `:+1:` and `:100:`"),
        ("14:05:12 and a:b", "14:05:12 and a:b"),
        ("it`s 10:error: here", "it's `10:error:` here"),
    ],
)
def test_log_text_does_not_turn_into_emoji(written: str, sent: str) -> None:
    assert one(written) == sent


def test_an_empty_cell_gets_a_dash_and_a_pipe_stays_in_its_cell() -> None:
    table = "| a | b |\n|---|---|\n| 1 |  |\n| `x\\|y` | **z** |"
    assert one(table) == "| a | b |\n| --- | --- |\n| 1 | - |\n| `x\\|y` | **z** |"


@pytest.mark.parametrize(
    "table",
    [
        "| " + " | ".join("abcdefghijklmnopqrstu") + " |\n|" + "---|" * 21 + "\n| 1 |",
        "| a |\n|---|\n" + "| row |\n" * 101,
        "| a | b |\n|---|---|\n" + f"| {'x' * 3_000} | y |\n" * 4,
        "- item\n\n  | a | b |\n  |---|---|\n  | 1 | 2 |",
    ],
)
def test_a_table_that_slack_would_refuse_is_a_code_block(table: str) -> None:
    messages = answer(table)
    assert all("```" in text and "---|" not in text for text in markdown_of(messages))
    assert_keeps_every_word(table, "\n".join(markdown_of(messages)))


def test_a_row_with_too_many_cells_loses_none_of_them() -> None:
    assert "extra" in one("| a | b |\n|---|---|\n| 1 | 2 | extra |")


def test_the_tables_of_one_message_share_one_budget() -> None:
    table = "| a |\n|---|\n" + f"| {'x' * 90} |\n" * 60
    messages = markdown_of(answer(f"{table}\n\nthen\n\n{table}"))
    assert len(messages) == 2


def test_headings_and_rules_are_counted_as_the_blocks_that_slack_makes_of_them() -> None:
    messages = markdown_of(answer("# h\n\npara\n\n---\n\n" * 40))
    assert len(messages) == 3
    assert all(len(text.split("\n\n")) <= 40 for text in messages)


def test_a_list_with_many_code_blocks_is_cut_before_slack_counts_them() -> None:
    messages = markdown_of(answer("- x\n\n  ```\n  y\n  ```\n" * 60))
    assert all(text.count("```") <= 80 for text in messages)
    assert sum(text.count("y") for text in messages) == 60


def test_a_long_code_block_is_closed_and_opened_again() -> None:
    messages = markdown_of(answer("```yaml\n" + "a &lt; b line & more\n" * 1_200 + "```"))
    assert len(messages) > 2
    for text in messages:
        assert text.startswith("```yaml\n") and text.endswith("\n```")
        assert not regex.search(r"&(?! more|lt; b)", text)
    assert "\n".join(messages).count("a &lt; b line & more") == 1_200


def test_a_code_block_in_a_list_keeps_its_place_when_it_is_cut() -> None:
    messages = markdown_of(answer("- item\n\n  ```sh\n" + "  echo 1\n" * 2_000 + "  ```\n- last"))
    assert all(text.startswith("  ```sh\n") for text in messages[1:])
    assert all(text.endswith("\n  ```") for text in messages[:-1])


@pytest.mark.parametrize("limit", [40, 100])
@pytest.mark.parametrize(
    "atom", ["&amp;", "<@U0ANN0001>", "👩‍👩‍👧", "🇩🇪", "e\u0301", "`co de`", "[a b](https://x/y)", "<https://x|a b>"]
)
def test_nothing_that_belongs_together_is_cut(atom: str, limit: int) -> None:
    parts = cut_line(atom * 60, limit * 2)
    assert "".join(parts) == atom * 60
    assert all(len(part) % len(atom) == 0 and size(part) <= limit * 2 for part in parts)


@settings(deadline=None)
@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=400), st.integers(100, 200))
def test_a_cut_line_loses_nothing(text: str, limit: int) -> None:
    line = text.replace("\n", " ").replace("`", "")
    parts = cut_line(line, limit)
    assert "".join(parts) == line
    assert all(size(part) <= limit for part in parts)


@pytest.mark.parametrize(
    "mark", ["**", "*", "~~", "`", "[", "> ", "- ", "![", "_", ":", "@", "x.", "a:", "<", "&", "|", "\\"]
)
def test_marks_without_end_end(mark: str) -> None:
    markdown = mark * 3_000 + "word" + mark * 3_000
    shown = "".join(markdown_of(answer(markdown)))
    assert "word" in shown


def test_a_paragraph_longer_than_a_message_is_cut_between_words() -> None:
    markdown = "**" + "alpha beta gamma " * 3_000 + "omega**"
    messages = markdown_of(answer(markdown))
    assert set(" ".join(messages).split()) == {"alpha", "beta", "gamma", "omega"}


def test_what_no_client_can_draw_is_cleaned() -> None:
    assert one("a\x00b \ud83d x\u202ey\r\nz") == "ab \ufffd xy\nz"


def test_an_answer_without_text_is_still_a_message() -> None:
    assert "The answer has no text." in answer(" \n ")[0].text
    assert "The answer has no text." in plain("")[0].text


def test_the_plain_fallback_speaks_the_dialect_of_texts() -> None:
    (message,) = plain(
        "# Why\n\nThe **gateway**, see [dash](https://example.com/d?a&b).", known_hosts=["example.com"]
    )
    assert message.blocks == []
    assert message.text == (
        "<@U0ANN0001>\n\n*Why*\n\nThe *gateway*, see <https://example.com/d?a&amp;b|dash>.\n\n3 steps"
    )


def test_the_plain_fallback_loses_nothing_of_what_slack_refused() -> None:
    markdown = "x" * 9_000 + "\n\n| a | b |\n|---|---|\n" + "| one | two |\n" * 500
    messages = plain(markdown)
    assert len(messages) > 3
    joined = "".join(message.text for message in messages)
    assert joined.count("x") == 9_000 and joined.count("two") == 500


def test_a_summary_says_that_it_is_no_answer_and_offers_retry() -> None:
    messages = summary_messages("- loki: 12 errors", asked_by=ANN, turn_id=TurnId("turn-1"), footer="3 steps")
    assert messages[0].text.startswith("<@U0ANN0001> *There is no answer.*")
    assert messages[-1].blocks[-1]["elements"][0]["action_id"] == "retry"


# fmt: off
MARKS = st.sampled_from([
    "*", "**", "`", "```", "~~~", "\n", "\n\n", "> ", "- ", "1. ", "# ", "| a | b |\n|---|---|\n", "|", "---", "[x](",
    "](https://example.com)", "    ", "\\", "!", "~~", "_", "<!channel>", "<@U0ANN0001>", "<@U0CEO0001|x>", "@here",
    "&lt;", ":error:", "https://evil.test/a", "](https://evil.test/)",
    "[ref]: x", "<b>", "word", " ", "磁盘", "\u200b", "\ud800", "\x00",
])
# fmt: on
READER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
MARKDOWN = st.one_of(st.text(max_size=400), st.lists(st.one_of(MARKS, st.text(max_size=8)), max_size=60).map("".join))


@settings(max_examples=200, deadline=None)
@given(MARKDOWN)
@example("[ref]: https://x.test\n\n[ref]")
@example("foo\n    ```\nbar :error:")
@example("> " * 30 + "deep")
@example("```a b\nc\n```")
def test_any_text_arrives_whole_within_the_limits_and_calls_nobody(markdown: str) -> None:
    rich, flat = answer(markdown, known_hosts={"example.com"}), plain(markdown, known_hosts={"example.com"})
    for message in [*rich, *flat]:
        assert_sendable(message, {ANN})
    assert_keeps_every_word(markdown, "\n".join(markdown_of(rich)))
    assert_keeps_every_word(markdown, "".join(message.text for message in flat))


@settings(max_examples=200, deadline=None)
@given(MARKDOWN)
@example("\\https://evil.test/a")
@example("`a`:error:`b`")
@example("](https://example.com)<b>](https://evil.test/)")
@example("[000]:0\n[000]")
@example("[[]()]()")
@example("!<https://example.com/a.png>")
def test_a_reader_of_the_sent_markdown_finds_no_emoji_no_image_and_no_unknown_link(markdown: str) -> None:
    for sent in markdown_of(answer(markdown, known_hosts={"example.com"})):
        for token in READER.parse(sent):
            inner = token.children or []
            prose = "".join(one.content if one.type.startswith("text") else " " for one in inner)
            assert not regex.search(r":[\w+'-]*[^\W\d][\w+'-]*:|https?://(?!example\.com)", prose)
            assert not {"image", "html_inline"} & {one.type for one in inner}
            links = [str(one.attrGet("href")) for one in inner if one.type == "link_open"]
            assert all(link.startswith("https://example.com") for link in links)


@settings(max_examples=10, deadline=None)
@given(st.lists(MARKS, min_size=20, max_size=40).map("".join), st.integers(100, 200))
@example("*****_***********_*\n", 100)
def test_any_long_text_arrives_whole_too(markdown: str, times: int) -> None:
    for message in [*answer(markdown * times), *plain(markdown * times)]:
        assert_sendable(message, {ANN})


@settings(deadline=None)
@given(st.text(max_size=300))
def test_quiet_is_idempotent_and_thorough(text: str) -> None:
    once = quiet(text)
    assert quiet(once) == once
    assert calls_nobody(once.replace("<", ""))


@settings(deadline=None)
@given(st.lists(st.sampled_from(["```", "a line", "", "x" * 90]), max_size=40))
def test_a_cut_never_leaves_a_code_block_open(lines: list[str]) -> None:
    for part in cut("\n".join(lines), 300)[:-1]:
        assert sum(line == "```" for line in part.split("\n")) % 2 == 0


def test_strings_finds_every_string() -> None:
    assert strings({"a": ["b", {"c": "d"}], "e": 1}) == ["b", "d"]
