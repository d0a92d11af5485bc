"""What of a history is sent: sewn where it is broken, shortened where it is long, and kept as it was sent.

Whatever has to change is committed before the request leaves, as an entry from which every later projection begins:
the placeholders of the suture, a late result, thinking that was taken out, an older part that was condensed. So the
next request begins with the same bytes, however the records have grown meanwhile.

How many tokens a history has is estimated from its bytes; what the API reports of each request corrects the rate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core import condense
from core.checked import Checked
from core.history import EntryKind, has_thinking, without_thinking
from core.ledger import Claimed, Ledger, Stitch
from core.limits import Limits
from core.ports import ModelAnswer, Usage
from core.refusals import Remedy, counted, remedy_for
from core.repair import Known, NotRepairable, Sutured, suture
from core.repair_words import is_placeholder
from core.validator import problems
from core.validator_rules import blocks_of

BYTES_A_TOKEN = 3.0
"""Cautious: English has about four, most other scripts three bytes a token."""
LEAST_BYTES_A_TOKEN, MOST_BYTES_A_TOKEN = 1.0, 6.0
WINDOW_EXCEEDED = "model_context_window_exceeded"
SHARE_OF_WHAT_FITS = 0.4

Messages = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Parts:
    """What a request is made of, beside its model and its options."""

    system: str
    tools: Sequence[Mapping[str, Any]]
    messages: Messages
    thinking: Mapping[str, Any] | None = None


class Projection:
    """The history of one turn on its way to the model. `messages` of its methods is the loop's own list: it becomes
    what is sent."""

    def __init__(self, ledger: Ledger, claimed: Claimed, limits: Limits) -> None:
        self._ledger = ledger
        self._turn = claimed
        self._limits = limits
        self._rate = BYTES_A_TOKEN
        self._too_long = False
        self._fits: int | None = None
        self._checked = Checked()
        self._weights: dict[int, tuple[Mapping[str, Any], int]] = {}

    async def parts(self, messages: Messages, model: str) -> Parts:
        """The parts of the next request. Raises `NotRepairable`; then nothing was changed."""
        if model != self._turn.frozen.model and has_thinking(messages):
            await self._go_on_from(messages, EntryKind.MENDED, without_thinking(messages))
        if self._too_long or self._tokens(messages) >= self._limits.condense_at_tokens:
            self._too_long = False
            await self._condense(messages)
        return await self._sewn(messages)

    async def again(self, messages: Messages, text: str, refused: Sequence[Mapping[str, Any]]) -> bool:
        """Project once more after a refusal with `text`; False when nothing else can be sent than `refused`.

        What can't be mended in the way that the rule suggests is told as text.
        """
        messages[:] = await self._ledger.history(self._turn.lease.session)
        remedy = remedy_for(text)
        if remedy is Remedy.CONDENSED:
            self._learn_limit(text, refused)
            await self._condense(messages)
        if await self._is(messages, refused, remedy) and _has_answers(messages):
            await self.give_up(messages)
        return not await self._is(messages, refused)

    async def _is(
        self, messages: Messages, refused: Sequence[Mapping[str, Any]], remedy: Remedy = Remedy.ANEW
    ) -> bool:
        """Whether what would be sent is what was refused."""
        try:
            return (await self._sewn(messages, remedy)).messages == refused
        except NotRepairable:
            return True

    async def give_up(self, messages: Messages) -> None:
        """Nothing of this history can be sent as it is: whatever is asked next begins with it told as text."""
        await self._go_on_from(messages, EntryKind.CONDENSED, condense.as_text(messages, self._budget()))

    def learn(self, sent: Sequence[Mapping[str, Any]], answer: ModelAnswer) -> None:
        """What the API said about the size of a request."""
        self._learn_rate(self._bytes(sent), _read_tokens(answer.usage))
        self._too_long = answer.stop_reason == WINDOW_EXCEEDED

    # -- the suture

    async def _sewn(self, messages: Messages, remedy: Remedy = Remedy.ANEW) -> Parts:
        frozen = self._turn.frozen
        request: dict[str, Any] = {"messages": messages, "tools": list(frozen.tools)}
        if frozen.system:
            request["system"] = frozen.system
        if remedy is Remedy.ANEW and self._is_whole(request):
            return Parts(frozen.system, frozen.tools, list(messages))
        sutured = _suture(request, {}, remedy)
        if sutured.repairs or _has_placeholders(messages):
            known = await self._ledger.known(self._turn.lease.session)
            sutured = _suture(request, known, remedy)
        if sutured.repairs:
            await self._keep(messages, sutured)
        changes = sutured.changes
        return Parts(
            changes.get("system", frozen.system),
            changes.get("tools", frozen.tools),
            sutured.messages,
            changes.get("thinking"),
        )

    def _is_whole(self, request: Mapping[str, Any]) -> bool:
        """Whether the suture has nothing to do. Every message is checked once in a turn."""
        messages = request["messages"]
        fresh = self._checked.unknown(messages)
        if _has_placeholders(fresh) or problems({**request, "messages": fresh}):
            return False
        if len(fresh) == len(messages):
            self._checked.found_whole(messages)
        return True

    async def _keep(self, messages: Messages, sutured: Sutured) -> None:
        stitches = [Stitch(repair.rule, repair.path, repair.what) for repair in sutured.repairs]
        if sutured.deferred:
            await self._ledger.stitched(self._turn, stitches)
            return
        await self._go_on_from(messages, EntryKind.MENDED, sutured.messages, stitches)

    async def _go_on_from(
        self, messages: Messages, kind: EntryKind, new: Sequence[Mapping[str, Any]], stitches: Sequence[Stitch] = ()
    ) -> None:
        plain = [{"role": message["role"], "content": list(blocks_of(message["content"]))} for message in new]
        await self._ledger.go_on_from(self._turn, kind, plain, stitches)
        messages[:] = plain

    # -- its length

    async def _condense(self, messages: Messages) -> None:
        shorter = condense.condense(messages, min(self._budget(), condense.weight(messages) // 2))
        if shorter is not None:
            await self._go_on_from(messages, EntryKind.CONDENSED, shorter)

    def _budget(self) -> int:
        """How many bytes a condensed history may have."""
        tokens = self._limits.condense_to_tokens
        if self._fits is not None:
            tokens = min(tokens, int(self._fits * SHARE_OF_WHAT_FITS))
        return max(int(tokens * self._rate) - self._frozen_bytes(), 1_000)

    def _bytes(self, messages: Sequence[Mapping[str, Any]]) -> int:
        return (
            self._frozen_bytes()
            + sum(self._weight(message) for message in messages[:-1])
            + condense.weight(list(messages[-1:]))
        )

    def _weight(self, message: Mapping[str, Any]) -> int:
        """Of a message with others behind it nothing changes any more."""
        known = self._weights.get(id(message))
        if known is None or known[0] is not message:
            known = self._weights[id(message)] = message, condense.weight(message)
        return known[1]

    def _frozen_bytes(self) -> int:
        frozen = self._turn.frozen
        return condense.weight([frozen.system, list(frozen.tools)])

    def _tokens(self, messages: Messages) -> int:
        return int(self._bytes(messages) / self._rate)

    def _learn_limit(self, text: str, refused: Sequence[Mapping[str, Any]]) -> None:
        found = counted(text)
        if found is not None:
            self._learn_rate(self._bytes(refused), found[0])
            self._fits = found[1]

    def _learn_rate(self, size: int, tokens: int) -> None:
        if tokens > 0:
            self._rate = min(max(size / tokens, LEAST_BYTES_A_TOKEN), MOST_BYTES_A_TOKEN)


def _suture(request: Mapping[str, Any], known: Mapping[str, Known], remedy: Remedy) -> Sutured:
    return suture(
        request,
        known=known,
        without_thinking=remedy is Remedy.WITHOUT_THINKING,
        without_pictures=remedy is Remedy.WITHOUT_PICTURES,
    )


def _read_tokens(usage: Usage) -> int:
    return 0 if usage.estimated else usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens


def _has_answers(messages: Messages) -> bool:
    return any(message.get("role") == "assistant" for message in messages)


def _has_placeholders(messages: Sequence[Mapping[str, Any]]) -> bool:
    return any(
        block.get("type") == "tool_result" and is_placeholder(block)
        for message in messages
        if message.get("role") == "user"
        for block in blocks_of(message.get("content"))
    )
