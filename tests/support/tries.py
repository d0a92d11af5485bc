"""Who gets a second try, and what it finds: nothing of the first.

Whole processes, sockets and browsers: on a busy machine a test may need a second try, which is then reported. What
the tests of its module share (rooms, programs, a browser) ends with a try that failed and is made anew, because there
it could only fail again. How many second tries a whole run has is limited in `pyproject.toml`: where more are needed,
something is broken.
"""

from __future__ import annotations

from collections.abc import Generator

import pytest
from pytest_rerunfailures import get_reruns_count

WITH_REAL_PARTS = ("stories", "e2e", "simulation")
RERUNS = 2
FAILED = pytest.StashKey[bool]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if set(item.path.parts) & set(WITH_REAL_PARTS):
            item.add_marker(pytest.mark.flaky(reruns=RERUNS))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    item.stash[FAILED] = report.failed or (report.when != "setup" and item.stash.get(FAILED, False))
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Ahead of the plugin that reruns tests: it would put aside what the module shares, and give it back."""
    module = item.getparent(pytest.Module)
    if module is not None and item.stash.get(FAILED, False) and _comes_again(item):
        item.session._setupstate.teardown_exact(module.parent)


def _comes_again(item: pytest.Item) -> bool:
    tries: int = getattr(item, "execution_count", 0)
    return 0 < tries <= (get_reruns_count(item) or 0)
