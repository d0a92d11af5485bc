"""A Messages API on the loopback that answers from a script and refuses what the real one refuses.

    POST /v1/messages -> who is it, which model, is the body whole      401, 404, 400
                      -> core.validator, thinking signatures            400, with the API's own texts
                      -> frozen system and tools, law 1                 400, and a line in `violations`
                      -> the script's reply, streamed or as one object
    GET /v1/models, GET /v1/models/{id}                               see `catalogue`

Every request is in `requests`, in the order of arrival, refused ones too; `violations` names each conversation
that had to be refused, so a test can say that there were none. A client that hangs up is seen at once.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal

from aiohttp import ClientConnectionResetError, web

from bot.playground.model.catalogue import Catalogue, unversioned
from bot.playground.model.chain import Binding, Flat, Signer
from bot.playground.model.frames import CHARS_PER_TOKEN, Stream, event, new_id, stream_of
from bot.playground.model.memory import Memory
from bot.playground.model.reply import Cut, ErrorEvent, Fault, Hold, HttpError, Insert, Reply, Script
from bot.prices import PRICES
from core.validator import Profile, problems

MAX_BODY_BYTES = 32 * 1024 * 1024
REQUIRED = ("model", "max_tokens", "messages")
SHORTEST_PAUSE_S = 0.01
SECRET = b"the scripted model signs its thinking with this"


@dataclass(slots=True)
class Seen:
    """One request. `at` in seconds since the epoch; `status` None while nothing has been sent.

    `finished`: False while it runs or if we broke it off, True when all was sent, "dropped" when the client left.
    `holding`: a `hold_until` is waiting. `connection` is the same for requests over one connection.
    """

    body: dict[str, Any]
    at: float
    status: int | None = None
    finished: bool | Literal["dropped"] = False
    holding: bool = False
    events_sent: int = 0
    connection: str = ""


class ScriptedModel:
    """`async with ScriptedModel(script) as model:` serves at `model.url`. `speed` 2 is twice as fast.

    `check` False accepts anything. With `api_key` set every other key is refused. `stages` names models that are
    deprecated or retired.
    """

    def __init__(
        self,
        script: Script,
        port: int = 0,
        speed: float = 1.0,
        check: bool = True,
        *,
        api_key: str | None = None,
        models: Sequence[str] = tuple(PRICES),
        stages: Mapping[str, str] | None = None,
        profile: Profile = Profile.EVERYWHERE,
        secret: bytes = SECRET,
    ) -> None:
        self.requests: list[Seen] = []
        self.violations: list[str] = []
        self.speed = speed
        self._script = script
        self._port = port
        self._check = check
        self._api_key = api_key
        self._catalogue = Catalogue(models, stages)
        self._profile = profile
        self._signer = Signer(secret)
        self._memory = Memory()
        self._accepted = 0
        self._changed = asyncio.Condition()
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        """The base address for the SDK."""
        return f"http://127.0.0.1:{self._port}"

    async def __aenter__(self) -> ScriptedModel:
        app = web.Application(client_max_size=MAX_BODY_BYTES)
        app.router.add_post("/v1/messages", self._handle)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/v1/models/{id}", self._models)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port)
        await site.start()
        self._port = self._runner.addresses[0][1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def wait_for(self, predicate: Callable[[ScriptedModel], bool], timeout_s: float = 30.0) -> None:
        """Return as soon as `predicate(self)` holds; it is asked after everything that happens here."""
        async with asyncio.timeout(timeout_s), self._changed:
            await self._changed.wait_for(lambda: predicate(self))

    async def _note(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _models(self, request: web.Request) -> web.Response:
        name = request.match_info.get("id")
        found = self._unauthorised(request) or unversioned(request)
        if found is None:
            told = self._catalogue.page(request.query) if name is None else self._catalogue.one(name)
            if not isinstance(told, HttpError):
                return web.json_response(told, headers={"request-id": new_id("req")})
            found = told
        return _refused(found)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        peer = request.transport.get_extra_info("peername") if request.transport else None
        seen = Seen({}, time.time(), connection=str(peer))
        self.requests.append(seen)
        try:
            return await self._answer(request, seen)
        except (asyncio.CancelledError, ClientConnectionResetError):
            seen.finished = "dropped"
            raise
        finally:
            seen.holding = False
            await asyncio.shield(self._note())

    async def _answer(self, request: web.Request, seen: Seen) -> web.StreamResponse:
        refusal = self._unauthorised(request) or await self._read(request, seen) or self._unknown(seen.body)
        flat = Flat(seen.body)
        binding = Binding(self._signer, flat)
        if refusal is None and self._check and (text := self._bad_history(seen.body, flat, binding)) is not None:
            refusal = _invalid(text)
        await self._note()
        reply = Reply(http=refusal) if refusal else self._next(seen.body)
        await asyncio.sleep(reply.before_s / self.speed)
        if reply.http is not None:
            return _error_response(seen, reply.http)
        stream = stream_of(reply, seen.body["model"], _usage(seen.body), binding)
        response = await _Sender(self, request, seen, reply, stream).send()
        if seen.finished is True:
            self._memory.answered(flat, stream.content)
        return response

    def _unauthorised(self, request: web.Request) -> HttpError | None:
        given = request.headers.get("x-api-key") or request.headers.get("authorization", "").removeprefix("Bearer ")
        if self._api_key is None or given.encode() == self._api_key.encode():
            return None
        return HttpError(401, "authentication_error", "invalid x-api-key")

    async def _read(self, request: web.Request, seen: Seen) -> HttpError | None:
        try:
            body = json.loads(await request.read())
        except web.HTTPRequestEntityTooLarge:
            text = "Request exceeds the maximum allowed number of bytes"
            return HttpError(413, "request_too_large", text)
        except (ValueError, RecursionError) as error:
            return _invalid(f"The request body is not valid JSON: {error}")
        if not isinstance(body, dict):
            return _invalid("The request body is not valid JSON: an object is required")
        seen.body = body
        return None

    def _unknown(self, body: dict[str, Any]) -> HttpError | None:
        for name in REQUIRED:
            if name not in body:
                return _invalid(f"{name}: Field required")
        if not isinstance(body["messages"], list):
            return _invalid("messages: Input should be a valid list")
        if not self._catalogue.callable(str(body["model"])):
            return HttpError(404, "not_found_error", f"model: {body['model']}")
        return None

    def _bad_history(self, body: dict[str, Any], flat: Flat, binding: Binding) -> str | None:
        """The API's text for a conversation that can't be sent; what is found is a violation, too."""
        known = {"tools": [], **body}
        found = problems(known, self._profile, verify=lambda _, m, b: binding.bad.get((m, b)))
        text = found[0].problem if found else self._memory.problem(flat)
        if text is not None:
            self.violations.append(f"{found[0].rule if found else 'law 1'}: {text}")
        return text

    def _next(self, body: dict[str, Any]) -> Reply:
        number = self._accepted
        self._accepted += 1
        if callable(self._script):
            return self._script(body, number)
        if number < len(self._script):
            return self._script[number]
        text = f"the script has {len(self._script)} replies, and this is request {number + 1}"
        self.violations.append(text)
        return Reply(http=HttpError(500, "api_error", text))


class _Sender:
    """Sends one stream, with its pace and its faults."""

    def __init__(self, model: ScriptedModel, request: web.Request, seen: Seen, reply: Reply, stream: Stream) -> None:
        self._model = model
        self._request = request
        self._seen = seen
        self._reply = reply
        self._stream = stream
        self._waiting: list[bytes] = []
        self._owed_s = 0.0
        self._response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "request-id": new_id("req")}
        )
        self._response.enable_chunked_encoding()

    async def send(self) -> web.StreamResponse:
        if not self._seen.body.get("stream"):
            return await self._whole()
        if await self._faults_at(0):
            return self._response
        await self._start()
        if self._reply.raw is not None:
            self._waiting.append(self._reply.raw)
        else:
            for number, frame in enumerate(self._stream.frames, start=1):
                self._waiting.append(frame.data)
                self._owed_s += self._pause(frame.chars, frame.delta)
                self._seen.events_sent = number
                if await self._faults_at(number):
                    return self._response
                if self._owed_s >= SHORTEST_PAUSE_S:
                    await self._flush()
        await self._flush()
        await self._response.write_eof()
        self._seen.finished = True
        return self._response

    async def _whole(self) -> web.StreamResponse:
        for fault in self._reply.faults:
            if isinstance(fault, Hold):
                await self._hold(fault)
        self._seen.status, self._seen.finished = 200, True
        return web.json_response(self._stream.message())

    async def _start(self) -> None:
        if self._seen.status is None:
            self._seen.status = 200
            await self._response.prepare(self._request)

    async def _faults_at(self, number: int) -> bool:
        """Do what is to happen after `number` events; True if that was the end."""
        for fault in self._reply.faults:
            if self._stream.place(fault.at) == number and await self._fault(fault):
                return True
        return False

    async def _fault(self, fault: Fault) -> bool:
        match fault:
            case Hold():
                await self._hold(fault)
            case Insert(_, data):
                self._waiting.append(data)
            case ErrorEvent(_, kind, message):
                await self._start()
                self._waiting.append(event("error", error={"type": kind, "message": message}))
                await self._flush()
                await self._response.write_eof()
                return True
            case Cut():
                await self._flush()
                if self._request.transport is not None:
                    self._request.transport.close()
                return True
        return False

    async def _hold(self, fault: Hold) -> None:
        await self._flush()
        self._seen.holding = True
        await self._model._note()
        await fault.event.wait()
        self._seen.holding = False

    async def _flush(self) -> None:
        """Send what is waiting, then take the time that it was to take."""
        if self._waiting:
            await self._start()
            await self._response.write(b"".join(self._waiting))
            self._waiting.clear()
            await self._model._note()
        owed_s, self._owed_s = self._owed_s, 0.0
        if owed_s:
            await asyncio.sleep(owed_s / self._model.speed)

    def _pause(self, chars: int, delta: bool) -> float:
        if not delta:
            return 0.0
        return self._reply.per_delta_s + (chars / self._reply.chars_per_s if self._reply.chars_per_s else 0.0)


def _invalid(text: str) -> HttpError:
    return HttpError(400, "invalid_request_error", text)


def _error_response(seen: Seen, error: HttpError) -> web.Response:
    seen.status, seen.finished = error.status, True
    return _refused(error)


def _refused(error: HttpError) -> web.Response:
    request_id = new_id("req")
    body = {"type": "error", "error": {"type": error.type, "message": error.message}, "request_id": request_id}
    return web.json_response(body, status=error.status, headers={"request-id": request_id, **error.headers})


def _usage(body: dict[str, Any]) -> dict[str, int]:
    """Token counts as with a warm cache: with marks, all but the newest two messages is read from it."""
    sizes = [len(json.dumps(message)) for message in body["messages"]]
    tokens = (sum(sizes) + len(json.dumps([body.get("system"), body.get("tools")]))) // CHARS_PER_TOKEN
    if "cache_control" not in json.dumps(body["messages"][-1:]):
        return {"input_tokens": tokens, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}
    written = min(sum(sizes[-2:]) // CHARS_PER_TOKEN, tokens) if len(sizes) > 2 else tokens
    fresh = min(3, written)
    return {
        "input_tokens": fresh,
        "cache_read_input_tokens": tokens - written,
        "cache_creation_input_tokens": written - fresh,
    }
