"""When a call whose outcome nobody knows is looked into again: not at once, and not later than promised."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from storage.database import Database, now
from storage.outbox import due_cards, due_items
from storage.tables import outbox
from tests.support.scene import Scene, answer, scene
from tests.support.sweeps import answered, change


@pytest.fixture
async def thread(database: Database) -> AsyncIterator[Scene]:
    async with scene(database, [answer("It is the index.")], running=False) as made:
        await answered(made)
        yield made


async def due(thread: Scene) -> list[str]:
    """What may go out or be looked up now, by kind."""
    async with thread.db.reading() as tx:
        return [*(item.kind for item in await due_items(tx)), *("card" for _ in await due_cards(tx))]


async def test_a_post_without_outcome_is_not_looked_up_sooner_than_five_seconds_after(thread: Scene) -> None:
    only = outbox.c.kind == "answer"
    await change(thread.db, "cards", sending="post", sending_at=now())
    await change(thread.db, "outbox", only, state="sending", sending_at=now())
    assert not {"answer", "card"} & {*await due(thread)}
    await change(thread.db, "cards", sending_at=now() - 5)
    await change(thread.db, "outbox", only, sending_at=now() - 5)
    assert {"answer", "card"} <= {*await due(thread)}


async def test_a_final_update_without_outcome_is_not_sent_again_sooner_than_thirty_seconds_after(
    thread: Scene,
) -> None:
    await change(thread.db, "outbox", state="sent", ended_at=now())
    await change(thread.db, "cards", message_ts="1790000000.000200", sending="update", sending_at=now() - 5)
    assert "card" not in await due(thread)
    await change(thread.db, "cards", sending_at=now() - 30)
    assert await due(thread) == ["card"]
