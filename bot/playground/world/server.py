"""The world behind the tools: one HTTP server that answers as Prometheus, Alertmanager, Loki and Kubernetes would.

It begins at 14:20 UTC of the current day, a quarter of an hour into the incident, and its clock runs on from
there. It can be told to be slow and to fail, and it keeps a ledger of every request, cancelled ones included.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Literal, Self
from urllib.parse import unquote_plus

from aiohttp import web

from bot.playground.world import alertmanager_api, kubernetes_api, loki_api, prometheus_api
from bot.playground.world.alertmanager_api import Silences
from bot.playground.world.incident import DAY_S, Incident, Rollout
from bot.playground.world.kubernetes_changes import Body
from bot.playground.world.logs import Stream, streams
from bot.playground.world.series import Series, catalogue

Api = Literal["prometheus", "alertmanager", "loki", "kubernetes"]
APIS: tuple[Api, ...] = ("prometheus", "alertmanager", "loki", "kubernetes")
TOKEN = "playground-reader"
RUNBOOKS = Path(__file__).parents[1] / "runbooks"
MOST_BODY = 64 * 1024


@dataclass(slots=True)
class Call:
    """One request that came in. `at` is the world's time."""

    api: Api
    method: str
    path: str
    params: dict[str, list[str]]
    at: float
    state: Literal["open", "finished", "cancelled"] = "open"
    status: int | None = None


@dataclass(slots=True)
class World:
    """An async context manager; `port` 0 takes a free one. `clock` gives seconds since the epoch.

    After a change of the cluster the world's time goes on by `skip_s`: nobody waits minutes for a metric.
    """

    port: int = 0
    skip_s: float = 0.0
    clock: Callable[[], float] = time.time
    calls: list[Call] = field(default_factory=list)
    token: str = field(default=TOKEN, repr=False)
    may_change: bool = True
    incident: Incident = field(init=False)
    silences: Silences = field(default_factory=Silences)
    _started: float = field(init=False)
    _skipped_s: float = field(init=False, default=0.0)
    _delays_s: dict[tuple[Api, str], float] = field(init=False, default_factory=dict)
    _failures: dict[tuple[Api, str], int] = field(init=False, default_factory=dict)
    _series: list[Series] = field(init=False)
    _streams: list[Stream] = field(init=False)
    _runner: web.AppRunner | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self._started = self.clock()
        self.incident = Incident(self._started // DAY_S * DAY_S)
        self._look()

    def _look(self) -> None:
        self._series, self._streams = catalogue(self.incident), streams(self.incident)

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=MOST_BODY)
        app.router.add_route("*", "/{api}{path:/.*}", self._answer)
        runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.5)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", self.port)
        try:
            await site.start()
        except BaseException:
            await runner.cleanup()
            raise
        self.port, self._runner = runner.addresses[0][1], runner
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    @property
    def prometheus_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/prometheus"

    @property
    def alertmanager_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/alertmanager"

    @property
    def loki_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/loki"

    @property
    def kubernetes_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/kubernetes"

    @property
    def runbooks(self) -> Path:
        """What the people of this world have written down for such hours."""
        return RUNBOOKS

    def now(self) -> float:
        """The world's time, seconds since the epoch."""
        return self.incident.opening + (self.clock() - self._started) + self._skipped_s

    def slow(self, api: Api, seconds: float, match: str = "") -> None:
        """Delay requests of `api` whose path and query contain `match`; 0 takes the delay away."""
        self._delays_s[api, match] = seconds

    def fail(self, api: Api, status: int, match: str = "") -> None:
        """Answer such requests with `status` and a page of HTML, as a proxy in front would; 200 takes it away."""
        self._failures[api, match] = status

    def roll_back(self, deployment: str, revision: int) -> Rollout:
        """Bring an earlier revision back, now. Raises KeyError if there is none."""
        rollout = self.incident.roll_back(deployment, revision, self.now())
        self._look()
        return rollout

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["api"]
        api = next((api for api in APIS if api == name), None)
        if api is None:
            raise web.HTTPNotFound(text=f"the playground has {', '.join(APIS)}, not {name}\n")
        path, given = request.match_info["path"], await _parameters(request)
        call = Call(api, request.method, path, given, self.now())
        self.calls.append(call)
        try:
            response = await self._troubled(call, request) or await self._served(call, request)
        except asyncio.CancelledError:
            call.state = "cancelled"
            raise
        call.state, call.status = "finished", response.status
        return response

    async def _troubled(self, call: Call, request: web.Request) -> web.Response | None:
        text = f"{call.path}?" + "&".join(f"{key}={value}" for key, values in call.params.items() for value in values)
        whole = f"{text} {unquote_plus(request.path_qs)}"
        for (api, match), seconds in list(self._delays_s.items()):
            if api == call.api and match in whole and seconds > 0:
                await asyncio.sleep(seconds)
        for (api, match), status in self._failures.items():
            if api == call.api and match in whole and status != 200:
                title = f"<title>{status}</title>"
                body = f"<html><head>{title}</head><body><h1>{status} from a proxy</h1></body></html>"
                return web.Response(status=status, text=body, content_type="text/html")
        return None

    async def _served(self, call: Call, request: web.Request) -> web.Response:
        if call.api == "prometheus":
            return await prometheus_api.answer(call.path, call.params, self._series, self.now())
        if call.api == "alertmanager":
            return alertmanager_api.answer(
                *(call.method, call.path, call.params, await request.read(), self.incident, self.silences, self.now())
            )
        if call.api == "loki":
            return await loki_api.answer(call.path, call.params, self._streams, self.now())
        shown = request.headers.get("Authorization", "") == f"Bearer {self.token}"
        body = Body(request.content_type, await request.read(), self.may_change)
        response = kubernetes_api.answer(
            call.method, call.path, call.params, shown, self.incident, self._streams, self.now(), body
        )
        if call.method == "PATCH" and response.status == 200:
            self._look()
            self._skipped_s += self.skip_s
        return response


async def _parameters(request: web.Request) -> dict[str, list[str]]:
    """Query parameters, and those of a posted form, as Prometheus and Loki accept both."""
    given: dict[str, list[str]] = {}
    for key, value in request.query.items():
        given.setdefault(key, []).append(value)
    if request.method == "POST" and request.content_type == "application/x-www-form-urlencoded":
        for key, posted in (await request.post()).items():
            given.setdefault(key, []).append(str(posted))
    return given
