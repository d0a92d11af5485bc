"""What is a stop, what it reaches, and what it makes of whatever waits."""

import time
import unicodedata

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.control import StopFact
from core.messages import Level, UserId
from core.stop import (
    DEFAULT,
    DUPLICATE,
    FATES,
    Aim,
    Fate,
    StopWord,
    StopWords,
    Waiting,
    aim_of_click,
    escalate,
    fate_of,
    reaches,
    recognise,
)

steady = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
BOT = "U0BOT0001"
US = f"<@{BOT}>"
STEP, TASK = Level.STEP, Level.TASK


def read(text: str, words: StopWords = DEFAULT) -> StopWord | None:
    return recognise(text, bot_user=BOT, words=words)


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("stop", STEP),
        ("Stop.", STEP),
        ("STOP!!!", STEP),
        ("halt", STEP),
        ("停", STEP),
        ("停一下", STEP),
        ("刹车", STEP),
        ("先别执行", STEP),
        ("停止。", STEP),
        ("煞車！", STEP),
        ("ストップ", STEP),
        ("ｽﾄｯﾌﾟ", STEP),
        ("止めてください", STEP),
        ("멈춰!", STEP),
        (unicodedata.normalize("NFD", "멈춰"), STEP),
        ("Stopp bitte", STEP),
        ("arrête !", STEP),
        ("¡Detente!", STEP),
        ("стоп", STEP),
        ("cancel", TASK),
        ("abort", TASK),
        ("取消", TASK),
        ("キャンセル", TASK),
        ("취소해주세요", TASK),
        ("abbrechen", TASK),
        ("annule", TASK),
        ("cancela, por favor", TASK),
        ("annulla", TASK),
        ("отмена", TASK),
        ("hold on", STEP),
        ("wait", STEP),
        ("等一下", STEP),
    ],
)
def test_a_stop_word_alone_is_a_stop_in_the_languages_that_teams_use(text: str, level: Level) -> None:
    assert read(text) == StopWord(level, bare=True)


@pytest.mark.parametrize(
    "text",
    [
        "ＳＴＯＰ",
        "st\u200bop",
        "\ufeffstop",
        "*STOP*",
        "_stop_",
        f"{US} STOP!!",
        f"<@{BOT}|pilot> stop",
        f"stop {US}",
        "please stop",
        "stop, please 🙏",
        "请先停一下，谢谢",
        "麻烦停一下",
        "stop stop stop",
        "停停停",
        "停，停一下！",
        "wait, stop",
        "stop :rage:",
        "🛑",
        ":octagonal_sign:",
        "!stop",
        "＋ stop",
        "  stop\n",
        "&gt; shall I restart it?\nstop",
    ],
)
def test_dress_and_politeness_do_not_hide_a_stop_word(text: str) -> None:
    assert read(text) == StopWord(STEP, bare=True)


@pytest.mark.parametrize(
    "text",
    [
        "stop the rollout",
        "please stop the canary rollout of api",
        "don't stop",
        "别停",
        "别停一下子就好",
        "停止吗？",
        "stop?",
        "stop ?",
        "can you stop",
        "stopping now",
        "stop-gap measure",
        "non-stop",
        "`stop`",
        "```stop```",
        "stop `kubectl delete`",
        '"stop"',
        "~stop~",
        "&gt; stop\nno, please go on",
        "> stop\nwhat did he mean?",
        "&gt;&gt;&gt; well\nstop",
        "<@U0BEN0001> stop",
        "stop <@U0BEN0001>",
        "wait, wrong cluster",
        "hold on to that thought",
        f"{US} wait for the deploy",
        "停web服务",
        "중지하지마",
        "please",
        "",
        "+ stop the db",
        "/stopwatch",
        "// stop the pods later",
    ],
)
def test_a_stop_word_inside_a_sentence_a_quote_or_code_is_not_a_stop(text: str) -> None:
    assert read(text) is None


@pytest.mark.parametrize(
    ("text", "level", "rest"),
    [
        ("stop, wrong cluster", STEP, "wrong cluster"),
        ("刹车，先停一下，我还没确认范围", STEP, "我还没确认范围"),
        ("停！那是 ＷＥＢ-３", STEP, "那是 ＷＥＢ-３"),
        ("stop. It is the gateway.", STEP, "It is the gateway."),
        ("stop; look at `redis`", STEP, "look at `redis`"),
        ("stop: wrong host", STEP, "wrong host"),
        ("stop — wrong host", STEP, "wrong host"),
        ("stop\nwrong host", STEP, "wrong host"),
        ("cancel, Ben does it", TASK, "Ben does it"),
        ("stop, cancel the deploy later", STEP, "cancel the deploy later"),
        (f"stop, {US} look at the db", STEP, "look at the db"),
        (f"{US} hold on, I check the gateway", STEP, "I check the gateway"),
        ("stop, ask <@U0BEN0001>", STEP, "ask <@U0BEN0001>"),
        ("stop\n&gt; this is wrong", STEP, "&gt; this is wrong"),
    ],
)
def test_a_closed_stop_word_at_the_start_is_a_stop_and_the_rest_is_kept_as_it_was_written(
    text: str, level: Level, rest: str
) -> None:
    assert read(text) == StopWord(level, bare=False, rest=rest)


def test_slash_commands_that_arrive_as_text_are_understood() -> None:
    assert read("/stop") == read("／stop") == read("//stop") == StopWord(STEP, bare=True)
    assert read("/cancel") == read("/cancel please") == StopWord(TASK, bare=True)
    assert read("/cancel the investigation") == StopWord(TASK, bare=False, rest="the investigation")


def test_a_row_with_one_word_for_the_task_ends_the_task() -> None:
    assert read("stop, cancel!") == StopWord(TASK, bare=True)


def test_every_default_word_is_recognised_alone_and_politely() -> None:
    for word in DEFAULT.step | DEFAULT.task | DEFAULT.weak:
        expected = StopWord(TASK if word in DEFAULT.task else STEP, bare=True)
        assert read(word) == read(f"please {word}") == read(f"请{word}") == expected, word


def test_the_lists_do_not_contradict_each_other() -> None:
    kinds = [DEFAULT.step, DEFAULT.task, DEFAULT.weak, DEFAULT.polite]
    assert sum(map(len, kinds)) == len(frozenset.union(*kinds))


def test_a_channel_can_add_and_replace_words() -> None:
    assert read("avast", DEFAULT.plus(step=["Avast"])) == StopWord(STEP, bare=True)
    only = StopWords(frozenset({"enough"}), frozenset(), frozenset(), frozenset())
    assert read("enough", only) == StopWord(STEP, bare=True)
    assert read("stop", only) is None


@steady
@given(st.text(max_size=60), st.sampled_from([" ", "x ", "do not "]))
def test_any_text_gets_an_answer_and_a_stop_is_never_found_behind_other_words(text: str, lead: str) -> None:
    read(text)
    assert read(f"look at web-3{lead}stop") is None


@pytest.mark.parametrize("text", [":" + "a" * 40_000, "<" * 40_000, "`" * 40_000, "~a" * 20_000, "stop " * 8_000])
def test_a_huge_text_costs_little(text: str) -> None:
    started = time.process_time()
    read(text)
    assert time.process_time() - started < 1


# -- scope -----------------------------------------------------------------------------------------------------------


def stop_at(ts: str, level: Level = STEP, author: str = "U0ANN0001") -> StopFact:
    return StopFact(level, UserId(author), ts)


def test_a_stop_reaches_exactly_the_turns_that_know_nothing_newer() -> None:
    assert reaches("1790000013.000200", ["1790000013.000100", "1790000000.000100"])
    assert not reaches("1790000013.000200", ["1790000000.000100", "1790000013.000300"])
    assert not reaches("1790000013.000200", ["1790000013.000200"])


def test_timestamps_are_compared_as_slack_counts_them_and_not_as_text_or_floats() -> None:
    assert reaches("1790000013.000200", ["999999999.000300"])
    assert not reaches("1790000013.000001", ["1790000013.000002"])


@pytest.mark.parametrize(
    ("gap", "verdict"),
    [
        ("1790000000.000100", DUPLICATE),
        ("1790000002.000099", DUPLICATE),
        ("1790000002.000100", TASK),
        ("1790000030.000100", TASK),
        ("1790000030.000101", STEP),
    ],
)
def test_a_second_stop_of_the_same_person_is_a_duplicate_then_a_cancel_then_a_stop_of_its_own(
    gap: str, verdict: object
) -> None:
    assert escalate(stop_at("1790000000.000100"), stop_at(gap)) == verdict


def test_fifty_clicks_in_a_second_are_one_stop() -> None:
    first = stop_at("1790000000.000000")
    clicks = [stop_at(f"1790000000.{n * 20_000:06d}") for n in range(1, 50)]
    assert {escalate(first, click) for click in clicks} == {DUPLICATE}


def test_two_people_who_stop_do_not_make_a_cancel() -> None:
    first = stop_at("1790000000.000000")
    assert escalate(first, stop_at("1790000005.000000", author="U0BEN0001")) == STEP
    assert escalate(None, stop_at("1790000005.000000")) == STEP


def test_cancel_right_after_stop_is_never_swallowed_as_a_duplicate() -> None:
    assert escalate(stop_at("1790000000.000000"), stop_at("1790000000.500000", TASK)) == TASK
    assert escalate(stop_at("1790000000.000000", TASK), stop_at("1790000000.500000")) == DUPLICATE


def test_a_stop_of_the_step_turns_queued_words_into_notes_and_a_cancel_ends_them() -> None:
    assert FATES[Waiting.QUEUE] == {STEP: Fate.BECOMES_NOTE, TASK: Fate.STOPPED}
    for level in Level:
        assert FATES[Waiting.STEER][level] is FATES[Waiting.START][level] is Fate.STOPPED
        assert FATES[Waiting.HELPER_REPORT][level] is Fate.BECOMES_NOTE
        assert FATES[Waiting.NOTE][level] is Fate.STAYS


def test_a_stop_touches_nothing_that_was_written_after_it() -> None:
    stop = stop_at("1790000010.000000", TASK)
    assert fate_of(Waiting.STEER, "1790000009.999999", stop) is Fate.STOPPED
    assert fate_of(Waiting.STEER, "1790000010.000001", stop) is Fate.STAYS


def test_a_click_on_the_card_of_a_steered_turn_means_the_successor_unless_that_knows_something_newer() -> None:
    click = "1790000010.000000"
    assert aim_of_click(click, settled=None, successor_consumed=None) is Aim.THIS
    assert aim_of_click(click, settled="steered", successor_consumed=["1790000009.000000"]) is Aim.SUCCESSOR
    assert aim_of_click(click, settled="steered", successor_consumed=["1790000011.000000"]) is Aim.ENDED
    assert aim_of_click(click, settled="steered", successor_consumed=None) is Aim.ENDED
    assert aim_of_click(click, settled="completed", successor_consumed=["1790000009.000000"]) is Aim.ENDED
