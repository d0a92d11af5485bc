"""An answerer with everything around it, for tests of what is asked, and of what is sent instead."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from core.answer import Answerer, Ask, Got
from core.control import Control, Mail
from core.ledger import Claimed
from core.limits import Limits
from tests.core.doubles import Line, Lines, PaperLedger, answer, claimed
from tests.support.virtual_time import now

LIMITS = Limits(drain_s=25.0, drain_stream_margin_s=10.0)
FINE = answer("It is the gateway.")


class Asking:
    """An answerer with everything around it."""

    def __init__(
        self, *lines: Line, turn: Claimed | None = None, jitter: float = 0.5, limits: Limits = LIMITS
    ) -> None:
        self.model = Lines(list(lines))
        self.ledger = PaperLedger()
        self.control = Control(LIMITS, now)
        self.turn = turn or claimed()
        self.ledger.messages = list(self.turn.messages)
        self.answerer = Answerer(
            self.model, self.ledger, self.control, self.turn, limits=limits, now=now, jitter=lambda: jitter
        )

    async def ask(self, **changes: Any) -> Got:
        given: dict[str, Any] = {
            "model": "claude-test",
            "messages": self.turn.messages,
            "max_tokens": 4_096,
            "without_tools": False,
            "answer_by": 90.0,
            "give_up_at": 120.0,
            "step": 2,
        }
        return await self.answerer.answer(Ask(**given | changes))

    def arrives(self, mail: Mail) -> None:
        """It is in the mailbox, and the bell told of it."""
        self.ledger.box = mail
        self.control.note(mail)

    def happens(self, at: float, what: Callable[..., Any], *given: Any) -> None:
        asyncio.get_running_loop().call_at(at, what, *given)
