"""Reading what a far end answers, whatever it answers: within limits, and with every failure as a ToolError.

A cancelled read closes its connection at once, and so does one that ends early: a connection with unread bytes
must not go back to the pool.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlencode

import aiohttp
from pydantic import TypeAdapter, ValidationError

from bot.tools.shaping import cleaned, one_line
from core.errors import ToolError

T = TypeVar("T")

MOST_BYTES = 8 * 1024 * 1024
DEEPEST = 64
LONGEST_S = 30.0
HEALTH_S = 5.0

Parameters = Mapping[str, str | float | list[str]]
"""Of a query; a list stands for a parameter that is given several times."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer of a far end."""

    status: int
    content_type: str
    body: bytes

    @property
    def text(self) -> str:
        return cleaned(self.body.decode("utf-8", "replace"))


@dataclass(frozen=True, slots=True)
class FarEnd:
    """One HTTP API. `name` is what people call it, `base_url` has no slash at its end."""

    name: str
    base_url: str
    session: aiohttp.ClientSession
    headers: Mapping[str, str]

    async def get(self, path: str, parameters: Parameters, longest_s: float = LONGEST_S) -> Answer:
        """GET, no redirects followed. Raises ToolError when there is no whole answer."""
        query = [
            (key, str(value))
            for key, given in parameters.items()
            for value in (given if isinstance(given, list) else [given])
        ]
        try:
            async with self.session.get(
                f"{self.base_url}{path}",
                params=query,
                headers=self.headers,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=longest_s),
            ) as response:
                return await whole(response, self.name)
        except TimeoutError as error:
            raise ToolError(f"{self.name} did not answer within {longest_s:g} s.") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise unreachable(self.name, error) from error

    async def ask(self, path: str, parameters: Parameters, longest_s: float = LONGEST_S) -> Any:
        """The JSON of a successful answer. Raises ToolError, with the API's own words where it gave some."""
        answer = await self.get(path, parameters, longest_s)
        if answer.status != 200:
            raise refused(self.name, answer)
        return decoded(self.name, answer)

    def link(self, path: str, parameters: Mapping[str, str]) -> str:
        return f"{self.base_url}{path}?{urlencode(parameters)}"


async def whole(response: aiohttp.ClientResponse, name: str) -> Answer:
    """Read an answer to its end, up to 8 MB. Raises ToolError beyond, and closes the connection."""
    parts, size = [], 0
    async for part in response.content.iter_chunked(64 * 1024):
        size += len(part)
        if size > MOST_BYTES:
            response.close()
            raise ToolError(f"{name} answered with more than {MOST_BYTES // 2**20} MB: ask for less.")
        parts.append(part)
    return Answer(response.status, response.content_type, b"".join(parts))


def unreachable(name: str, error: Exception) -> ToolError:
    """What a failed connection looks like to the model."""
    why = one_line(str(error) or type(error).__name__, 200)
    return ToolError(f"{name} could not be reached ({why}). This says nothing about the systems that it watches.")


def refused(name: str, answer: Answer) -> ToolError:
    """An answer other than 200 as an error, with the far end's own words if they are words."""
    if 300 <= answer.status < 400:
        return ToolError(f"{name} answered {answer.status}, a redirect: is there a login page in front of it?")
    said = _own_words(answer)
    return ToolError(f"{name} answered {answer.status}{f': {said}' if said else ' without saying why'}")


def _own_words(answer: Answer) -> str:
    if answer.content_type == "text/html" or answer.text.lstrip()[:1] == "<":
        return "an HTML page, so something in front of it answered instead"
    try:
        body = json.loads(answer.text)
    except (ValueError, RecursionError):
        return one_line(answer.text, 1_000)
    words = body.get("error") or body.get("message") if isinstance(body, dict) else body
    if isinstance(words, str):
        return one_line(words, 1_000)
    return one_line(answer.text, 1_000)


def decoded(name: str, answer: Answer) -> Any:
    """The JSON of an answer, its strings cleaned. Raises ToolError."""
    try:
        return _clean_value(json.loads(answer.body), DEEPEST)
    except (ValueError, RecursionError) as error:
        kind = "an HTML page" if answer.text.lstrip()[:1] == "<" else "something that is not usable JSON"
        raise ToolError(f"{name} answered 200 with {kind}: is the address right?") from error


def _clean_value(value: Any, depth: int) -> Any:
    """`value` with clean strings. Raises ValueError for what is nested more deeply than any of these APIs nests."""
    if isinstance(value, str):
        return cleaned(value)
    if depth == 0:
        raise ValueError("nested too deeply")
    if isinstance(value, list):
        return [_clean_value(one, depth - 1) for one in value]
    if isinstance(value, dict):
        return {cleaned(key): _clean_value(one, depth - 1) for key, one in value.items()}
    return value


def shaped(name: str, shape: TypeAdapter[T], value: Any) -> T:
    """`value` as `shape`. Raises ToolError when it is something else."""
    try:
        return shape.validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ToolError(f"{name} answered in an unknown shape ({one_line(where, 80)}: {first['msg']}).") from error
