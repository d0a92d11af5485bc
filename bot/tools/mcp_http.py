"""The HTTP client for MCP servers: one that says what became of a request, and reads no more than it should.

What fails on the way is told to the one call that it concerns, as an error of JSON-RPC with a code of ours: in the
SDK's transport an exception would end the whole connection and with it every other call.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx2

NOT_REACHED = -32990
"""No connection: the server never saw the request."""
NOT_ALLOWED = -32991
"""The server turned the request away at its door."""
LOST = -32992
"""The request was sent; whether it was carried out is not known."""

LARGEST_ANSWER = 8 * 1024 * 1024
CONNECT_S = 10.0
HALF = re.compile(rb"(\\\\|\\u[dD][89abAB]..\\u[dD][c-fC-F]..)|\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
"""An escaped backslash or a whole pair, which are fine; or else half a pair."""
DOOR = {
    401: "it answered 401: are the headers of its configuration right?",
    403: "it answered 403: these credentials may not use it",
    429: "it answered 429: too many requests, wait before the next one",
}


class Client(httpx2.AsyncClient):
    """Headers go with every request. `read_s` is the longest silence; a GET listens for as long as it takes."""

    def __init__(self, headers: Mapping[str, str], read_s: float) -> None:
        super().__init__(
            headers={**headers, "Accept-Encoding": "identity"},
            timeout=httpx2.Timeout(CONNECT_S, read=read_s),
            follow_redirects=False,
        )

    async def send(self, request: httpx2.Request, *, stream: bool = False, **how: Any) -> httpx2.Response:
        """Send it. A POST that fails is answered with an error of JSON-RPC instead of an exception."""
        if request.method == "GET":
            request.extensions["timeout"] = {**request.extensions.get("timeout", {}), "read": None}
        try:
            response = await super().send(request, stream=True, **how)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.ProxyError) as error:
            return _failed(request, NOT_REACHED, f"it could not be reached ({_why(error)})")
        except httpx2.TransportError as error:
            return _failed(request, LOST, f"the connection was lost ({_why(error)})")
        status, kind = response.status_code, response.headers.get("content-type", "").lower()
        encoding = response.headers.get("content-encoding", "identity")
        if status in DOOR or (status >= 500 and not kind.startswith("application/json")) or encoding != "identity":
            await response.aclose()
            code = NOT_ALLOWED if status in DOOR else LOST
            return _failed(request, code, DOOR.get(status, f"something in front of it answered {status}"))
        if isinstance(response.stream, httpx2.AsyncByteStream):
            response.stream = _Body(response.stream, events=kind.startswith("text/event-stream"))
        if not stream:
            await response.aread()
        return response


class _Body(httpx2.AsyncByteStream):
    """A body whose text everybody can read, up to its largest size; of a stream of events each line has that size.

    Raises StreamError for what is more and for what breaks off.
    """

    def __init__(self, body: httpx2.AsyncByteStream, *, events: bool) -> None:
        self._body = body
        self._events = events

    async def __aiter__(self) -> AsyncIterator[bytes]:
        held: list[bytes] = []
        size = 0
        try:
            async for part in self._body:
                end = max(part.rfind(b"\n"), part.rfind(b"\r")) + 1
                if end:
                    yield whole(b"".join([*held, part[:end]]))
                    held.clear()
                    size = 0 if self._events else size + end
                held.append(part[end:])
                size += len(part) - end
                if size > LARGEST_ANSWER:
                    raise httpx2.StreamError(f"more than {LARGEST_ANSWER // 2**20} MB")
        except httpx2.TransportError as error:
            raise httpx2.StreamError(f"the answer broke off ({_why(error)})") from error
        yield whole(b"".join(held))

    async def aclose(self) -> None:
        await self._body.aclose()


def whole(lines: bytes) -> bytes:
    """Lines of JSON without half characters, for which the SDK would throw the whole answer away."""
    return HALF.sub(lambda found: found[0] if found[1] else b"\\ufffd", lines) if b"\\u" in lines else lines


def _failed(request: httpx2.Request, code: int, message: str) -> httpx2.Response:
    error = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}}
    return httpx2.Response(503, json=error, request=request)


def _why(error: Exception) -> str:
    return str(error)[:200] or type(error).__name__
