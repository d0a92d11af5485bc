"""What a text says about itself."""

import pytest

from core.marker import Ruling, is_assent, is_doubtful, marker_of, parse_decision
from core.messages import Marker

BOT = "U0BOT0001"
US = f"<@{BOT}>"


def read(text: str) -> tuple[Marker, str]:
    marker, cleaned, _ = marker_of(text, bot_user=BOT, mentioned=US in text)
    return marker, cleaned


@pytest.mark.parametrize(
    ("text", "marker", "cleaned"),
    [
        ("look at redis", Marker.NONE, "look at redis"),
        (f"{US} look at redis", Marker.NONE, "look at redis"),
        (f"hey {US} look", Marker.NONE, "hey look"),
        ("<@U0BEN0001> can you join the call?", Marker.ADDRESSED, "<@U0BEN0001> can you join the call?"),
        ("<!subteam^S0SRE|@sre> look", Marker.ADDRESSED, "<!subteam^S0SRE|@sre> look"),
        ("<@U0BEN0001> stop", Marker.ADDRESSED, "<@U0BEN0001> stop"),
        (f"<@U0BEN0001> {US} stop the pods", Marker.NONE, "<@U0BEN0001> stop the pods"),
        ("; we talk about lunch", Marker.NOT_FOR_BOT, "; we talk about lunch"),
        ("；stop", Marker.NOT_FOR_BOT, "；stop"),
        ("// just between us", Marker.NOT_FOR_BOT, "// just between us"),
        ("stop, wrong cluster", Marker.STOP_STEP, "wrong cluster"),
        ("取消", Marker.CANCEL, ""),
        ("/cancel", Marker.CANCEL, ""),
        ("//stop", Marker.STOP_STEP, ""),
        ("approve ap-7", Marker.APPROVE, ""),
        (f"{US} deny ap-7 wrong namespace", Marker.DENY, ""),
        ("+ also check the db", Marker.AFTER, "also check the db"),
        ("＋还有数据库", Marker.AFTER, "还有数据库"),
        (f"{US} + the db", Marker.AFTER, "the db"),
        ("! it is the gateway", Marker.NOW, "it is the gateway"),
        ("！看网关", Marker.NOW, "看网关"),
        ("!stop", Marker.STOP_STEP, ""),
        ("+1", Marker.NONE, "+1"),
        ("+", Marker.NONE, "+"),
        ("!!!", Marker.NONE, "!!!"),
    ],
)
def test_the_first_marker_that_applies_decides(text: str, marker: Marker, cleaned: str) -> None:
    assert read(text) == (marker, cleaned)


def test_a_stop_comes_with_its_word() -> None:
    _, _, stop = marker_of("stop, wrong host", bot_user=BOT, mentioned=False)
    assert stop is not None
    assert (stop.bare, stop.rest) == (False, "wrong host")


@pytest.mark.parametrize(
    ("text", "ruling"),
    [
        ("approve", Ruling(Marker.APPROVE, None, "")),
        ("Approve AP-7!", Ruling(Marker.APPROVE, "ap-7", "")),
        ("approve ap-7 looks right", Ruling(Marker.APPROVE, "ap-7", "looks right")),
        ("/approve 4711", Ruling(Marker.APPROVE, "ap-4711", "")),
        ("deny", Ruling(Marker.DENY, None, "")),
        ("deny ap-7 wrong namespace", Ruling(Marker.DENY, "ap-7", "wrong namespace")),
        ("deny ap-7: not now", Ruling(Marker.DENY, "ap-7", "not now")),
        ("deny wrong namespace", Ruling(Marker.DENY, None, "wrong namespace")),
        ("deny, wrong\nnamespace", Ruling(Marker.DENY, None, "wrong\nnamespace")),
        ("ａｐｐｒｏｖｅ ap-7", Ruling(Marker.APPROVE, "ap-7", "")),
    ],
)
def test_a_decision_names_its_request_and_its_reason(text: str, ruling: Ruling) -> None:
    assert parse_decision(text) == ruling


@pytest.mark.parametrize(
    "text",
    [
        "approve it",
        "approve the new plan",
        "approved",
        "I approve ap-7",
        "don't approve",
        "approval",
        "User approved.",
    ],
)
def test_a_sentence_about_approving_approves_nothing(text: str) -> None:
    assert parse_decision(text) is None


@pytest.mark.parametrize(
    ("reason", "doubtful"),
    [
        ("", False),
        ("at once", False),
        ("looks right, I checked the notes", False),
        ("is that the right one?", True),
        ("？", True),
        ("after the sale", True),
        ("but only one pod", True),
        ("I do not think so", True),
        ("等一下", True),
    ],
)
def test_who_asks_or_puts_a_condition_has_not_approved(reason: str, doubtful: bool) -> None:
    ruling = parse_decision(f"approve ap-7 {reason}")
    assert ruling is not None and is_doubtful(ruling.reason) is doubtful


@pytest.mark.parametrize(
    "text",
    [
        "ok",
        "OK!",
        "yes",
        "yes, go ahead",
        "ok thanks",
        "lgtm",
        "👍",
        "👍🏽",
        ":+1::skin-tone-3:",
        "+1",
        "好的",
        "可以。",
    ],
)
def test_a_bare_yes_is_seen_as_one(text: str) -> None:
    assert is_assent(text)


@pytest.mark.parametrize(
    "text", ["", "please", "ok, look at redis", "yes but not now", "no", "thanks", "go to web-3"]
)
def test_words_with_content_are_not_a_bare_yes(text: str) -> None:
    assert not is_assent(text)
