"""Signatures for thinking that only this program makes and checks: for the scripted model, and for tests.

Real signatures can't be checked by anybody but the API. These stand for them with the same bonds: a block is
good for one model, for its own text, behind the same unbroken run of thinking, and behind the same system
prompt, tools and messages (thinking and cache marks aside). A request that carries `signatures: {"model": ...}`
says that its receiver checks them.

    "FAKE" + base64 of {"m": model, "t": text, "c": the signature in front, "p": everything in front}
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from core.validator_rules import THINKING, blocks_of

PREFIX: Final = "FAKE"
INVALID: Final = "Invalid `signature` in `thinking` block"
BOUND: Final = (
    f"{INVALID}. The block is bound to a different conversation. Remove the block, or set "
    '`thinking.block_binding.prefix_mismatch_behavior` to "drop_block".'
)
GAP: Final = f"{BOUND} An earlier thinking block is missing or out of order."


class FakeSigner:
    """Signs and checks. One pass over a request finds all its faults; they are kept for that request."""

    def __init__(self) -> None:
        self._request: Mapping[str, Any] | None = None
        self._faults: dict[tuple[int, int], str] = {}

    def verify(self, request: Mapping[str, Any], message: int, block: int) -> str | None:
        """The API's words about the thinking block at this place, None when it is good."""
        if self._request is not request:
            self._request, self._faults = request, dict(_faults(request))
        return self._faults.get((message, block))

    @staticmethod
    def sign(request: Mapping[str, Any], model: str, thinking: str, said: list[Any] | None = None) -> str:
        """The signature of thinking that answers `request`; `said` are the blocks of the answer in front of it."""
        said = said or []
        messages = [*request["messages"], {"role": "assistant", "content": said}]
        bonds = list(_bonds({**request, "messages": messages}, at_end=True))
        chain, prefix = bonds[-1][2:]
        payload = {"m": model, "t": _digest(thinking), "c": chain, "p": prefix}
        return PREFIX + base64.b64encode(json.dumps(payload).encode()).decode()


def signer_of(request: Mapping[str, Any]) -> FakeSigner | None:
    """The one who checks the signatures of this request, None when nobody can."""
    return FakeSigner() if "signatures" in request else None


def _digest(value: Any) -> str:
    return hashlib.sha256(_json(value).encode()).hexdigest()[:16]


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def _faults(request: Mapping[str, Any]) -> Iterator[tuple[tuple[int, int], str]]:
    wanted = request.get("signatures")
    model = wanted.get("model") if isinstance(wanted, Mapping) else None
    for place, block, chain, prefix in _bonds(request):
        payload = _payload(block.get("signature"))
        made = payload is not None and payload.get("t") == _digest(block.get("thinking"))
        if payload is None or not made or (model is not None and payload.get("m") != model):
            yield place, INVALID
        elif payload.get("c") != chain:
            yield place, GAP
        elif payload.get("p") != prefix:
            yield place, BOUND


def _payload(signature: Any) -> dict[str, Any] | None:
    if not isinstance(signature, str) or not signature.startswith(PREFIX):
        return None
    try:
        payload = json.loads(base64.b64decode(signature[len(PREFIX) :], validate=True))
    except ValueError:
        return None
    return payload if isinstance(payload, dict) else None


def _bonds(
    request: Mapping[str, Any], *, at_end: bool = False
) -> Iterator[tuple[tuple[int, int], Mapping[str, Any], str, str]]:
    """(place, block, chain, prefix) of each thinking block, and of the end of the last message if asked for."""
    parts = [_json(_unmarked(request.get("system"))), _json(_unmarked(request.get("tools")))]
    whole = hashlib.sha256(f"[{parts[0]}, {parts[1]}, [".encode())
    chain = ""
    for at, message in enumerate(request["messages"]):
        if not isinstance(message, Mapping):
            continue
        whole.update(f"{', ' if at else ''}[{_json(message.get('role'))}, [".encode())
        said = False
        for index, block in enumerate(blocks_of(message.get("content"))):
            if block.get("type") == "thinking":
                yield (at, index), block, _digest(chain), _closed(whole)
                chain = str(block.get("signature"))
            if str(block.get("type")) not in THINKING:
                whole.update(f"{', ' if said else ''}{_json(_unmarked(block))}".encode())
                said = True
        if at_end and at == len(request["messages"]) - 1:
            yield (at, -1), {}, _digest(chain), _closed(whole)
        whole.update(b"]]")


def _closed(whole: Any) -> str:
    """The digest as if the message, the messages and the prefix ended here."""
    copy = whole.copy()
    copy.update(b"]]]]")
    return str(copy.hexdigest()[:16])


def _unmarked(value: Any) -> Any:
    """Cache marks are no part of what a signature is bound to."""
    if isinstance(value, list):
        return [_unmarked(each) for each in value]
    if not isinstance(value, Mapping):
        return value
    kept = {name: each for name, each in value.items() if name != "cache_control"}
    if isinstance(kept.get("content"), list):
        kept["content"] = _unmarked(kept["content"])
    return kept
