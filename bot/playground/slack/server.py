"""LocalSlack: one workspace on one port, with everything that a program or a person can do to it.

    async with LocalSlack() as slack:
        client = AsyncWebClient(token=slack.workspace.bot_token, base_url=slack.api_url)
        root = await slack.say("C0INCIDENT", "U0ENGINEER", "@pilot what is going on?")
        answer = await slack.until(lambda: slack.messages("C0INCIDENT", root)[1:])

What is fast is real, what is slow is scaled: `speed` divides the redelivery schedule, `clock` gives timestamps,
the life of triggers, response URLs and streams, and the rate limits. Acknowledgement time-outs are real seconds.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from aiohttp import web

from bot.playground.slack import files_host, response_urls, uploads
from bot.playground.slack.admin import Admin
from bot.playground.slack.chaos import Chaos, Response
from bot.playground.slack.desk import Desk
from bot.playground.slack.injection import prepare
from bot.playground.slack.keeping import Keeper
from bot.playground.slack.page import Ledger, Page
from bot.playground.slack.people import Json, Workspace
from bot.playground.slack.state import State
from bot.playground.slack.web_api import Call, WebApi
from bot.playground.slack.wire import Delivery, HttpMode, Wire
from core.errors import BadInput

T = TypeVar("T")
PAGE_DIR = Path(__file__).parent.parent / "page"
LARGEST_BODY = 32 * 1024**2
POLL_S = 0.02
PATIENCE_S = 30.0
"""How long the waiting methods wait if nothing else is said: longer than a busy machine takes."""


class LocalSlack:
    """A Slack workspace on 127.0.0.1. `port` 0 takes a free one; `keep` is a file that remembers its messages."""

    def __init__(
        self,
        workspace: Workspace | None = None,
        port: int = 0,
        clock: Callable[[], float] = time.time,
        retry_schedule_s: Sequence[float] = (0.0, 60.0, 300.0),
        *,
        speed: float = 1.0,
        ack_timeout_s: float = 3.0,
        ledger: Ledger | None = None,
        scene: Json | None = None,
        page_dir: Path | None = None,
        keep: Path | None = None,
        seed: int | None = None,
    ) -> None:
        self.workspace = workspace or Workspace()
        self.state = State(self.workspace, clock)
        rng = random.Random(seed)
        self.wire = Wire(
            self.workspace.signing_secret, self.workspace.app_id, clock, retry_schedule_s, speed, ack_timeout_s, rng
        )
        self.desk = Desk(self.workspace, self.state, self.wire, clock, rng)
        self.chaos = Chaos(clock)
        self.api = WebApi(self.desk, self.chaos)
        self.who = Admin(self.desk)
        self.page = Page(self.who, self.messages, ledger, scene or {})
        self._page_dir = page_dir or PAGE_DIR
        self._keeper = Keeper(keep) if keep is not None else None
        self._port = port
        self._runner: web.AppRunner | None = None
        self._news = asyncio.Event()
        self.api.on_call = self._news.set
        self.wire.on_delivery = self._news.set
        self._lend_hands()

    def _lend_hands(self) -> None:
        who = self.who
        self.say, self.post_alert, self.edit, self.delete = who.say, who.post_alert, who.edit, who.delete
        self.react, self.unreact, self.unfurl = who.react, who.unreact, who.unfurl
        self.press, self.native_stop, self.command = who.press, who.native_stop, who.command
        self.open_home, self.submit = who.open_home, who.submit
        self.archive, self.unarchive, self.invite, self.kick = who.archive, who.unarchive, who.invite, who.kick
        self.share, self.uninstall = who.share, who.uninstall

    # -- life ---------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._keeper is not None:
            self._keeper.open(self.state)
        app = web.Application(client_max_size=LARGEST_BODY)
        app.router.add_route("*", "/api/{method}", self.api.serve)
        app.add_routes(
            [
                web.get("/link", self._link),
                web.post("/response/{ticket}", partial(response_urls.serve, self.desk)),
                web.post("/upload/{file}", partial(files_host.upload, self.desk)),
                web.get("/files/{file}", partial(files_host.download, self.desk)),
                web.get("/files/{file}/download", partial(files_host.download, self.desk)),
                *self.page.routes(self._page_dir),
            ]
        )
        self._runner = web.AppRunner(app, handle_signals=False, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port)
        try:
            await site.start()
        except OSError:
            await self._runner.cleanup()
            self._close_keeper()
            raise BadInput(
                f"Port {self._port} is in use: choose another one with --port, or --port 0 for any free one."
            ) from None
        self._port = self._runner.addresses[0][1]
        self.desk.url = f"http://127.0.0.1:{self._port}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.chaos.closing.set()
        self.page.close()
        await self.wire.close()
        if self._runner is not None:
            await self._runner.cleanup()
        self._close_keeper()

    def _close_keeper(self) -> None:
        if self._keeper is not None:
            self._keeper.close()

    async def _link(self, request: web.Request) -> web.StreamResponse:
        ticket = request.query.get("ticket", "")
        if ticket not in self.desk.socket_tickets:
            return web.Response(text="invalid ticket", status=403)
        self.desk.socket_tickets.remove(ticket)
        connection = web.WebSocketResponse()
        await connection.prepare(request)
        await self.wire.serve(connection)
        return connection

    @property
    def port(self) -> int:
        return self._port

    @property
    def url(self) -> str:
        return self.desk.url

    @property
    def api_url(self) -> str:
        return f"{self.desk.url}/api/"

    # -- envelopes ----------------------------------------------------------------------------------------------

    async def inject(self, envelope: Json) -> Delivery:
        """Send a raw envelope once and wait for its acknowledgement or the time-out.

        A message that it speaks of exists from now on; addresses under `slack.test` lead here.
        """
        return await self.wire.once(prepare(self.desk, envelope))

    async def ws(self, frame: Json) -> None:
        """A raw control frame to every open socket."""
        await self.wire.control(frame)

    async def refresh(self) -> None:
        """What Slack does every few hours: it asks every socket to come back."""
        await self.wire.control({"type": "disconnect", "reason": "refresh_requested", "debug_info": {}})

    def http_mode(self, events_url: str, interactivity_url: str | None = None, skew_s: float = 0.0) -> None:
        """Deliver by signed HTTP requests from now on."""
        self.wire.http = HttpMode(events_url, interactivity_url or events_url, skew_s)

    def host_file(self, file_id: str, name: str, content: bytes, mimetype: str | None = None) -> str:
        """Put a file on the files host, for injected events that name it; return its private address."""
        uploads.keep(self.desk, name, content, mimetype, file_id)
        return f"{self.url}/files/{file_id}"

    # -- looking ------------------------------------------------------------------------------------------------

    def messages(self, channel: str, thread_ts: str | None = None) -> list[Json]:
        """A thread, or the roots and broadcasts of a channel, oldest first, with what only one person sees."""
        found: list[Json] = []
        for message in self.state.everything(channel):
            inside = message.in_channel_view if thread_ts is None else thread_ts in (message.ts, message.thread_ts)
            if not inside:
                continue
            shown = self.state.view(message, metadata=True)
            if message.ephemeral_user is not None:
                shown |= {"ephemeral": True, "ephemeral_user": message.ephemeral_user}
            found.append(shown)
        return found

    def versions(self, channel: str, ts: str) -> list[Json]:
        """Every version of a message: `{"what", "by", "at", "message"}`, what = posted, edited, streamed, deleted."""
        message = self.state.lookup(channel, ts)
        return list(message.versions) if message is not None else []

    def every_version(self, channel: str) -> list[Json]:
        """Every version of every message that ever was in a channel, in the order of the messages."""
        return [version for message in self.state.ever(channel) for version in message.versions]

    @property
    def calls(self) -> list[Call]:
        return self.api.calls

    def called(self, method: str) -> list[Call]:
        return [call for call in self.api.calls if call.method == method]

    def statuses(self, channel: str, thread_ts: str) -> list[str]:
        """What the app set the session's status to, in order."""
        return list(self.state.statuses.get((channel, thread_ts), []))

    @property
    def deliveries(self) -> list[tuple[Json, Delivery]]:
        """Every envelope that was sent, with what became of it."""
        return self.wire.log

    # -- waiting ------------------------------------------------------------------------------------------------

    async def until(self, condition: Callable[[], T], timeout_s: float = PATIENCE_S) -> T:
        """Wait until `condition` gives something true, and return that. Raises TimeoutError."""
        async with asyncio.timeout(timeout_s):
            while not (found := condition()):
                self._news.clear()
                try:
                    async with asyncio.timeout(POLL_S):
                        await self._news.wait()
                except TimeoutError:
                    continue
            return found

    async def connected(self, sockets: int = 1, timeout_s: float = PATIENCE_S) -> None:
        """Wait until the app has so many sockets open."""
        await self.until(lambda: sum(s.connection is not None for s in self.wire.sockets) >= sockets, timeout_s)

    async def quiet(self, timeout_s: float = PATIENCE_S) -> None:
        """Wait until every event is delivered or given up."""
        await self.until(lambda: not self.wire.busy, timeout_s)

    # -- switches -----------------------------------------------------------------------------------------------

    def script(
        self, method: str, responses: Sequence[Response], when: Callable[[dict[str, Any]], bool] | None = None
    ) -> None:
        """Answer the next calls of `method` like this; `bot.playground.slack.chaos` lists what a response can be."""
        self.chaos.script(method, responses, when)

    def delay(self, method: str, seconds: float) -> None:
        self.chaos.delays[method] = seconds

    def limits_on(self, on: bool = True) -> None:
        self.chaos.limits = on

    def duplicate_events(self, times: int) -> None:
        """Deliver every event so many times more; every second copy has an event_id of its own."""
        self.wire.duplicates = times

    def hold_shares(self) -> None:
        """Answer completed uploads with yes and post them only at `release_shares`, as Slack does seconds later."""
        self.state.held_shares = []

    def release_shares(self) -> None:
        """Post what was held, and hold nothing more."""
        held, self.state.held_shares = self.state.held_shares or [], None
        for share in held:
            share()

    def reorder_events(self, on: bool = True) -> None:
        self.wire.reorder = on
