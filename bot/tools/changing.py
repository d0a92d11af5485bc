"""Changing something at a far end: a request that is sent once, and a tool that can say beforehand what it would do.

A failed write is of two kinds, and the difference decides what happens to the task. Either it certainly did not
happen (no connection, refused by the far end): a ToolError, the model may try something else. Or it was sent and
its end was not seen (connection lost, an error of a proxy in between): OutcomeUnknown, a person must look first.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal

import aiohttp

from bot.tools.reading import Answer, FarEnd, refused, unreachable, whole
from bot.tools.shaping import MOST_ERROR_CHARS, Arguments, ReadTool, capped, checked, cleaned, one_line
from core.errors import OutcomeUnknown, ToolError

MOST_PREVIEW_CHARS = 20_000
LONGEST_WRITE_S = 120.0
"""Beyond every limit of a tool: it is the gateway that ends a write, and the gateway that says so."""


@dataclass(frozen=True, slots=True)
class WriteTool(ReadTool):
    """A tool that changes something: `look` makes the change, `show` says in words what `look` would change."""

    show: Callable[[Arguments], Awaitable[str]]

    async def preview(self, arguments: Arguments) -> str:
        """What a run would change, found by reading only. Raises only ToolError."""
        try:
            shown = await self.show(checked(self.spec, arguments))
        except ToolError as error:
            raise ToolError(capped(cleaned(str(error)), MOST_ERROR_CHARS)) from error
        return capped(cleaned(shown), MOST_PREVIEW_CHARS)


async def send(
    far_end: FarEnd, method: Literal["POST", "PUT", "PATCH", "DELETE"], path: str, body: Any = None
) -> Answer:
    """One request that changes something, sent once, no redirects followed; the answer is one of success.

    Raises ToolError when nothing was changed, and OutcomeUnknown when that is not known.
    """
    try:
        async with far_end.session.request(
            method,
            f"{far_end.base_url}{path}",
            json=body,
            headers=far_end.headers,
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=LONGEST_WRITE_S),
            middlewares=(_once(),),
        ) as response:
            answer = await whole(response, far_end.name)
    except (aiohttp.ClientConnectorError, aiohttp.InvalidURL) as error:
        raise unreachable(far_end.name, error) from error
    except (aiohttp.ClientError, OSError, ToolError) as error:
        raise OutcomeUnknown(_unclear(far_end.name, str(error) or type(error).__name__)) from error
    if answer.status >= 500:
        raise OutcomeUnknown(_unclear(far_end.name, str(refused(far_end.name, answer))))
    if not 200 <= answer.status < 300:
        raise refused(far_end.name, answer)
    return answer


def _unclear(name: str, why: str) -> str:
    why = one_line(cleaned(why), 300).rstrip(".")
    return f"{name} got the request, but not a clear end ({why}). It may have been done or not: check first."


def _once() -> aiohttp.ClientMiddlewareType:
    """Stands in front of the wire and lets one request pass: aiohttp repeats a DELETE or PUT by itself otherwise."""
    passed: list[aiohttp.ClientRequest] = []

    async def guard(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        if passed:
            raise aiohttp.ClientPayloadError("the connection was lost before an answer came")
        passed.append(request)
        return await handler(request)

    return guard
