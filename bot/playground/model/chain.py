"""Conversations as chains of digests: what a thinking block is bound to, and what may never change.

A request is flattened to its list of (role, block). Cache marks are not content, a plain string is one text
block, and the order of keys means nothing; so two requests say the same if and only if their chains are equal,
and one extends the other if and only if it begins with the other's links.

A thinking block's signature binds four things: the model that thought it, its own text, everything before it except
other thinking (system, tools, messages), and the thinking block before it. So a changed text is told from a changed
prefix, thinking may be left out from the start or from the end, a gap in the middle is noticed, and no model takes
another one's thinking.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from core.messages import Block

Digest = bytes
SIZE = 16
START: Digest = b""

INVALID = "messages.{m}.content.{b}: Invalid `signature` in `thinking` block"
UNBOUND = (
    "messages.{m}.content.{b}: Invalid `signature` in `thinking` block. The block is bound to a different "
    "conversation. Remove the block, or set `thinking.block_binding.prefix_mismatch_behavior` to "
    '"drop_block". {what}'
)
CHANGED = "The system prompt, the tools or an earlier message changed."
MISSING = "an earlier thinking block is missing or out of order"


def digest(*parts: bytes) -> Digest:
    """A short digest of `parts`, each of them closed off from the next."""
    found = hashlib.sha256()
    for part in parts:
        found.update(len(part).to_bytes(8, "big"))
        found.update(part)
    return found.digest()[:SIZE]


def without_marks(value: Any) -> Any:
    """`value` without cache marks on it or on the blocks inside it."""
    if isinstance(value, list):
        return [without_marks(item) for item in value]
    if not isinstance(value, dict) or not ("cache_control" in value or isinstance(value.get("content"), list)):
        return value
    found = {key: item for key, item in value.items() if key != "cache_control"}
    if isinstance(found.get("content"), list):
        found["content"] = without_marks(found["content"])
    return found


def canonical(value: Any) -> bytes:
    """`value` as bytes that are equal for equal JSON values."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def blocks_of(content: Any) -> list[Block]:
    """Message or system content as a list of blocks without cache marks."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    blocks = content if isinstance(content, list) else ()
    return [without_marks(block) for block in blocks if isinstance(block, dict)]


@dataclass(frozen=True, slots=True)
class Link:
    """One block of a conversation: the numbers of its message and of itself, its role, and what it says."""

    message: int
    number: int
    role: str
    block: Block
    said: bytes


class Flat:
    """A request as law 1 sees it: what is frozen, and the flattened list of (role, block)."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        messages, metadata, tools = body.get("messages"), body.get("metadata"), body.get("tools")
        self.system = digest(canonical(blocks_of(body.get("system"))))
        self.tools = digest(canonical(without_marks(tools or [])))
        self.model = str(body.get("model"))
        self.user = str(metadata.get("user_id") or "") if isinstance(metadata, dict) else ""
        self.links = [
            Link(m, b, str(message.get("role")), block, canonical(block))
            for m, message in enumerate(messages if isinstance(messages, list) else ())
            if isinstance(message, dict)
            for b, block in enumerate(blocks_of(message.get("content")))
        ]


class Signer:
    """Makes and checks the signatures of thinking blocks. The same `secret` knows its own after a restart."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def sign(self, thinking: str, model: str, prefix: Digest, before: Digest) -> str:
        """The signature of `thinking` behind `prefix` and behind the thinking block `before`; no two are equal."""
        bound = prefix + before.ljust(SIZE, b"\0") + secrets.token_bytes(SIZE)
        return base64.b64encode(bound + self._mac(bound, model, thinking)).decode()

    def problem(self, block: Mapping[str, Any], model: str, prefix: Digest, before: Digest | None) -> str | None:
        """The text of what is wrong, with places left open; `before` None: no thinking was kept before it."""
        try:
            signed = base64.b64decode(str(block.get("signature", "")), validate=True)
        except (binascii.Error, ValueError):
            return INVALID
        bound, mac = signed[: 3 * SIZE], signed[3 * SIZE :]
        if not hmac.compare_digest(mac, self._mac(bound, model, str(block.get("thinking", "")))):
            return INVALID
        if bound[:SIZE] != prefix:
            return UNBOUND.replace("{what}", CHANGED)
        if before is not None and bound[SIZE : 2 * SIZE] != before.ljust(SIZE, b"\0"):
            return UNBOUND.replace("{what}", MISSING)
        return None

    def _mac(self, bound: bytes, model: str, thinking: str) -> bytes:
        message = digest(model.encode()) + bound + thinking.encode("utf-8", "surrogatepass")
        return hmac.new(self._secret, message, hashlib.sha256).digest()[:SIZE]


class Binding:
    """Stands at one place of a conversation, and knows what a thinking block there is bound to."""

    def __init__(self, signer: Signer, flat: Flat) -> None:
        self._signer = signer
        self._model = flat.model
        self._prefix = digest(flat.system, flat.tools)
        self._thought: Digest | None = None
        self.bad: dict[tuple[int, int], str] = {}
        for link in flat.links:
            if link.block.get("type") == "thinking":
                self._check(link)
            self._add(link.role, link.block, link.said)

    def _check(self, link: Link) -> None:
        """Keep the API's text for a bad thinking block in `bad`, by the numbers of message and block."""
        problem = self._signer.problem(link.block, self._model, self._prefix, self._thought)
        if problem is not None:
            named = problem.replace("{m}", str(link.message)).replace("{b}", str(link.number))
            self.bad[link.message, link.number] = named

    def _add(self, role: str, block: Block, said: bytes) -> None:
        if block.get("type") == "thinking":
            self._thought = digest(said)
        else:
            self._prefix = digest(self._prefix, role.encode(), said)

    def answer(self, block: Block) -> None:
        """`block` is said by the model here."""
        self._add("assistant", block, canonical(block))

    def sign(self, thinking: str) -> str:
        """The signature for `thinking` at this place."""
        return self._signer.sign(thinking, self._model, self._prefix, self._thought or START)
