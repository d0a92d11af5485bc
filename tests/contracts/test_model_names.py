"""At the start the models' names are looked up, and until they are known the log and /healthz say so."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from structlog.testing import capture_logs

from bot.doctor.finding import Finding, failing, ok, warning
from bot.http import Health
from bot.model_names import ModelNames
from tests.support.processes import until

UNKNOWN = failing("model", "The Messages API does not know the model claude-sonet.")
BUSY = warning("fallback model", "The Messages API is busy now.")
KNOWN = ok("model", "The Messages API knows claude-sonnet-5-5.")


class Answers:
    """What the API answers, one after another; the last one for ever."""

    def __init__(self, *answers: Sequence[Finding]) -> None:
        self._answers = list(answers)
        self.asked = 0

    async def __call__(self) -> Sequence[Finding]:
        self.asked += 1
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


async def test_names_that_are_known_are_asked_for_once_and_logged_nowhere() -> None:
    answers = Answers([KNOWN])
    names = ModelNames(answers, again_s=0.0)
    assert (await names.part()).health is Health.OK
    with capture_logs() as logged:
        names.start()
        await until(lambda: answers.asked)
        await asyncio.sleep(0)
        assert (await names.part()).says == KNOWN.says
        await names.close()
    assert (answers.asked, logged) == (1, [])


async def test_an_unknown_name_is_logged_once_and_is_a_warning_until_it_is_known() -> None:
    answers = Answers([UNKNOWN, BUSY], [UNKNOWN, BUSY], [KNOWN])
    names = ModelNames(answers, again_s=0.0)
    with capture_logs() as logged:
        names.start()
        await until(lambda: answers.asked >= 3)
        await asyncio.sleep(0)
        assert (await names.part()).health is Health.OK
        await names.close()
    assert [(line["event"], line["says"]) for line in logged] == [
        ("model_not_usable", UNKNOWN.says),
        ("model_in_doubt", BUSY.says),
    ]


async def test_what_is_wrong_stands_in_the_health_page_and_does_not_fail_it() -> None:
    names = ModelNames(Answers([UNKNOWN, BUSY]), again_s=3600.0)
    names.start()
    await until(lambda: names._found)
    part = await names.part()
    await names.close()
    assert (part.health, part.says) == (Health.WARNING, f"{UNKNOWN.says} {BUSY.says}")
