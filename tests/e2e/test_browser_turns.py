"""Browser pages and turns: each has its own, nothing leaves once it was stopped, and no process is left."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from aiohttp import web

from bot.browser_page import Bounds
from core.gateway import CallResult
from tests.support.browsing import BOUNDS, House, anew, browsing, call
from tests.support.processes import until

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def made() -> AsyncIterator[House]:
    async with browsing() as found:
        yield found


@pytest_asyncio.fixture(loop_scope="module")
async def house(made: House) -> AsyncIterator[House]:
    async with anew(made) as found:
        yield found


async def test_calls_of_one_turn_share_their_cookies_and_two_turns_do_not(house: House) -> None:
    async def page(request: web.Request) -> web.Response:
        response = web.Response(text=f"visits: {request.cookies.get('visits', 'none')}", content_type="text/html")
        response.set_cookie("visits", "one")
        return response

    house.sites.pages["/page"] = page
    first, second = house.turn(), house.turn()
    url = house.sites.url("/page")
    said = [(await turn.run(call(url))).text for turn in (first, first, second)]
    assert ["visits: none" in said[0], "visits: one" in said[1], "visits: none" in said[2]] == [True] * 3
    assert await house.contexts() == 2
    await first.close()
    assert await house.contexts() == 1
    assert "visits: none" in (await first.run(call(url))).text
    await first.close()
    await second.close()
    assert await house.contexts() == 0


async def test_calls_of_one_batch_run_beside_each_other_in_one_context(house: House) -> None:
    turn, met = house.turn(), asyncio.Barrier(3)

    async def page(request: web.Request) -> web.Response:
        async with asyncio.timeout(60):
            await met.wait()
        return web.Response(text=f"<p>This is {request.query['n']}.</p>", content_type="text/html")

    house.sites.pages["/page"] = page
    found = await asyncio.gather(*(turn.run(call(house.sites.url(f"/page?n={n}"))) for n in range(3)))
    assert [f"This is {n}." in one.text for n, one in enumerate(found)] == [True] * 3
    assert await house.contexts() == 1
    await turn.close()


POLLS = """<p>polls</p><script>
  const work = `const ask = () => fetch('${location.origin}/work?PAGE').finally(() => setTimeout(ask, 50)); ask();`;
  const ask = () => fetch('/poll?PAGE', {cache: 'no-store'}).finally(() => setTimeout(ask, 50));
  ask(); new Worker(URL.createObjectURL(new Blob([work])));
  addEventListener('pagehide', () => navigator.sendBeacon('/left?PAGE', 'x'));
</script>"""
FOR_EVER = Bounds(load_s=300.0, call_s=310.0, settle_s=300.0)


async def stopped(task: asyncio.Task[CallResult]) -> None:
    """What a stop does with a call that may be interrupted."""
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_no_request_of_a_page_leaves_after_the_stop(house: House) -> None:
    def came(name: str) -> int:
        return sum(path.endswith(f"?{name}") for _, path in house.sites.heard)

    house.sites.pages |= {f"/{name}": POLLS.replace("PAGE", name) for name in ("stopped", "other")}
    turn, other = house.turn(), house.turn()
    house.chromium.bounds = FOR_EVER
    running = asyncio.ensure_future(turn.run(call(house.sites.url("/stopped"))))
    goes_on = asyncio.ensure_future(other.run(call(house.sites.url("/other"))))
    try:
        await until(lambda: min(came("stopped"), came("other")) >= 10, timeout_s=50)
        assert await house.contexts() == 2
        await stopped(running)
        contexts, at_the_stop, elsewhere = await house.contexts(), came("stopped"), came("other")
        await until(lambda: came("other") >= elsewhere + 40, timeout_s=50)
        assert (contexts, came("stopped")) == (1, at_the_stop)
        assert not any(path.startswith("/left") for _, path in house.sites.heard)
        await stopped(goes_on)
        assert await house.contexts() == 0
    finally:
        house.chromium.bounds = BOUNDS
        await asyncio.gather(turn.close(), other.close())


async def test_a_stop_while_the_browser_starts_leaves_no_context(house: House) -> None:
    chromium = house.another()
    turn = house.turn(chromium)
    house.sites.pages["/page"] = "<p>x</p>"
    try:
        task = asyncio.ensure_future(turn.run(call(house.sites.url("/page"))))
        await until(lambda: chromium._starting is not None)
        await stopped(task)
        assert not (await chromium.running()).contexts
        await until(lambda: not chromium._closing)
        assert not (await chromium.running()).contexts and house.sites.heard == []
    finally:
        await chromium.close()


# -- the process


def descendants(pid: int) -> set[int]:
    """The processes that `pid` has started, and those that they have."""
    parents = {}
    for entry in Path("/proc").iterdir():
        try:
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except (ValueError, OSError):
            continue
    found: set[int] = set()
    while grown := {child for child, parent in parents.items() if parent in found | {pid}} - found:
        found |= grown
    return found


def alive(pids: set[int]) -> bool:
    """Whether one of them still runs; a dead one that nobody has looked after yet does not."""
    for pid in pids:
        try:
            if (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z":
                return True
        except OSError:
            continue
    return False


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
async def test_no_process_is_left_when_the_browser_is_closed(house: House) -> None:
    house.sites.pages["/page"] = "<p>x</p>"
    before = descendants(os.getpid())
    chromium = house.another()
    await house.turn(chromium).run(call(house.sites.url("/page")))
    started = descendants(os.getpid()) - before
    assert started
    await chromium.close()
    await until(lambda: not alive(started))


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
async def test_a_browser_that_died_is_started_again(house: House) -> None:
    house.sites.pages["/page"] = "<p>What it says.</p>"
    chromium = house.another()
    turn = house.turn(chromium)
    before = descendants(os.getpid())
    try:
        assert "What it says." in (await turn.run(call(house.sites.url("/page")))).text
        browser = await chromium.running()
        for pid in descendants(os.getpid()) - before:
            if b"chromium" in (Path("/proc") / str(pid) / "cmdline").read_bytes().partition(b"\0")[0]:
                os.kill(pid, signal.SIGKILL)
        await until(lambda: not browser.is_connected())
        assert "What it says." in (await turn.run(call(house.sites.url("/page")))).text
    finally:
        await chromium.close()


WORKER = """
import asyncio, sys, time
from bot.browser import Chromium
from bot.browser_page import Bounds
from bot.web_proxy import WebProxy

async def main():
    guard = WebProxy(["127.0.0.1"], now=time.time, clock=time.monotonic, networks=("127.0.0.0/8",),
                     ports=frozenset({int(sys.argv[1])}))
    chromium = Chromium(guard, Bounds(load_s=60, call_s=90, settle_s=60))
    await chromium.visit(asyncio.current_task()).look(f"http://127.0.0.1:{sys.argv[1]}/worker")

asyncio.run(main())
"""


@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
async def test_a_worker_that_is_killed_takes_its_browser_with_it(house: House) -> None:
    house.sites.pages["/worker"] = POLLS.replace("PAGE", "worker")
    worker = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WORKER, str(house.sites.port), cwd=ROOT, env=dict(os.environ)
    )
    try:
        await house.sites.asked("/poll", 5)
        started = descendants(worker.pid)
        assert len(started) > 2
    finally:
        worker.kill()
        await worker.wait()
    await until(lambda: not alive(started))
