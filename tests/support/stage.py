"""The fixture of the replay stories: one running product a module. `pytest_plugins = ["tests.support.stage"]`."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support.replay import Stage, staged


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    """The product between its far ends, for all tests of the module."""
    async with staged(tmp_path_factory.mktemp("stage")) as made:
        yield made
