"""The world tells one story, whichever of its APIs is asked, and can be told to be slow and to fail."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest

from bot.playground.world import World
from bot.playground.world.incident import OPENING, Incident, hour, timed_out_share
from tests.support.processes import until
from tests.support.world import DAY, FIXED, FIXTURES, Clock

clock, world, session, prometheus, values, loki, lines, kubernetes = FIXTURES

ERRORS = 'http_requests_total{service="checkout",status=~"5.."}'


# --- the clock ---------------------------------------------------------------------------------------------------


async def test_the_world_begins_at_twenty_past_two_of_the_current_day_and_runs_on(world: World, clock: Clock) -> None:
    assert world.now() == DAY + hour("14:20")
    clock.t += 61.5
    assert world.now() == DAY + OPENING + 61.5


async def test_two_worlds_with_the_same_clock_say_the_same(session: aiohttp.ClientSession) -> None:
    texts = []
    for _ in range(2):
        async with World(clock=lambda: FIXED) as world:
            async with session.get(
                f"{world.prometheus_url}/api/v1/query", params={"query": "sum by (pod) (up)"}
            ) as one:
                metrics = await one.text()
            url, query = f"{world.loki_url}/loki/api/v1/query_range", {"query": '{namespace="shop"}'}
            async with session.get(url, params=query) as one:
                texts.append(metrics + await one.text())
    assert texts[0] == texts[1]


# --- the incident ------------------------------------------------------------------------------------------------


async def test_checkout_answers_no_5xx_before_1405_and_four_in_ten_after(values: Callable[..., Any]) -> None:
    share = f"sum({rate(ERRORS)}) / sum({rate('http_requests_total{service=~`checkout`}')})".replace("`", '"')
    assert (await values(share, time=DAY + hour("14:03")))[""] < 0.002
    assert 0.3 < (await values(share))[""] < 0.45


def rate(selector: str, window: str = "5m") -> str:
    return f"rate({selector}[{window}])"


async def test_the_errors_come_from_all_hosts_alike(values: Callable[..., Any]) -> None:
    found = await values(f"sum by (host) ({rate(ERRORS)})")
    assert set(found) == {"web-1", "web-2", "web-3"}
    assert max(found.values()) / min(found.values()) < 1.1


async def test_web_3_is_busy_since_1340_and_its_checkout_a_little_slower(values: Callable[..., Any]) -> None:
    busy = '1 - avg by (host) (rate(node_cpu_seconds_total{mode="idle"}[5m]))'
    before, after = await values(busy, time=DAY + hour("13:35")), await values(busy)
    assert before["web-3"] < 0.45 and 0.88 < after["web-3"] < 0.95
    assert after["web-1"] < 0.45
    buckets = 'http_request_duration_seconds_bucket{service="checkout"}'
    slow = await values(f"histogram_quantile(0.99, sum by (le, host) ({rate(buckets)}))")
    assert 0.45 < slow["web-1"] < 0.6 < slow["web-3"] < 0.75


async def test_checkout_was_always_this_slow(values: Callable[..., Any]) -> None:
    buckets = 'http_request_duration_seconds_bucket{service="checkout",host!="web-3"}'
    quantile = f"histogram_quantile(0.99, sum by (le) ({rate(buckets)}))"
    for time in ("09:00", "13:00", "14:00", "14:20"):
        assert 0.45 < (await values(quantile, time=DAY + hour(time)))[""] < 0.6


async def test_the_gateway_counts_its_timeouts_from_its_rollout_on(values: Callable[..., Any]) -> None:
    timeouts = 'sum(increase(gateway_upstream_timeouts_total{upstream="checkout"}[5m]))'
    assert (await values(timeouts, time=DAY + hour("14:03")))[""] == 0
    assert (await values(timeouts))[""] > 1000
    limit = 'max(gateway_route_timeout_seconds{route="/checkout"})'
    assert await values(limit, time=DAY + hour("14:03")) == {"": 3.0}
    assert await values(limit) == {"": 0.3}


async def test_the_gateway_logs_the_time_limit_that_it_now_has(lines: Callable[..., Any]) -> None:
    words = "upstream timed out (300ms) while reading response header from checkout"
    found = await lines(f'{{app="gateway"}} |= "{words}"', limit=5000)
    assert len(found) > 100
    assert DAY + hour("14:04:30") < found[-1][0] < DAY + hour("14:06")
    loaded = await lines('{app="gateway"} |= "routes loaded"')
    assert len(loaded) == 3 and all("/checkout.timeout=300ms" in line for _, line in loaded)


async def test_checkout_itself_only_sees_clients_that_leave(lines: Callable[..., Any]) -> None:
    gone = await lines('{app="checkout"} | json | status = 499', limit=5000)
    assert len(gone) > 100 and gone[-1][0] > DAY + hour("14:04:30")
    assert await lines('{app="checkout"} | json | status >= 500') == []


async def test_kubernetes_shows_the_rollout_its_cause_and_the_changed_routes(kubernetes: Callable[..., Any]) -> None:
    _, sets = await kubernetes("/apis/apps/v1/namespaces/shop/replicasets", labelSelector="app=gateway")
    notes = {one["metadata"]["annotations"]["deployment.kubernetes.io/revision"]: one for one in sets["items"]}
    assert set(notes) == {"39", "40", "41", "42"}
    cause = notes["42"]["metadata"]["annotations"]["kubernetes.io/change-cause"]
    assert cause == "PLAT-2291: tighten upstream timeouts"
    assert notes["42"]["metadata"]["creationTimestamp"] == "2026-03-14T14:04:00Z"
    _, routes = await kubernetes("/api/v1/namespaces/shop/configmaps/gateway-routes")
    assert "timeout: 3s" in routes["data"]["routes-r41.yaml"]
    assert "timeout: 300ms" in routes["data"]["routes-r42.yaml"]
    _, events = await kubernetes("/api/v1/namespaces/shop/events", fieldSelector="involvedObject.name=gateway-routes")
    assert [one["message"] for one in events["items"]] == [
        "ConfigMap gateway-routes updated by deploybot: PLAT-2291: tighten upstream timeouts"
    ]


def test_the_share_of_lost_answers_follows_from_the_time_limit() -> None:
    assert timed_out_share(3.0) == 0
    assert timed_out_share(0.3) == pytest.approx(0.38)
    assert timed_out_share(0.25) > timed_out_share(0.3) > timed_out_share(0.5) > 0


async def test_a_rollback_to_revision_41_heals_checkout_everywhere(
    world: World, clock: Clock, values: Callable[..., Any], lines: Callable[..., Any], kubernetes: Callable[..., Any]
) -> None:
    assert world.roll_back("gateway", 41).revision == 43
    clock.t += 300
    assert max((await values(f"sum by (host) ({rate(ERRORS, '2m')})")).values()) < 0.05
    assert await lines('{app="gateway"} |= "timed out"', minutes=3) == []
    _, deployment = await kubernetes("/apis/apps/v1/namespaces/shop/deployments/gateway")
    assert deployment["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "43"
    assert deployment["spec"]["template"]["spec"]["containers"][0]["args"] == [
        "--routes=/etc/gateway/routes-r41.yaml"
    ]
    _, pods = await kubernetes("/api/v1/namespaces/shop/pods", labelSelector="app=gateway")
    assert len(pods["items"]) == 3
    clock.t += 300
    alerts = await values('ALERTS{alertname="CheckoutErrorRate"}', "alertname")
    assert alerts == {}


def test_a_rollback_to_a_revision_that_never_was_changes_nothing() -> None:
    incident = Incident(DAY)
    with pytest.raises(KeyError, match="no revision 7"):
        incident.roll_back("gateway", 7, DAY + OPENING)
    assert len(incident.rollouts["gateway"]) == 4


# --- trouble, and the ledger -------------------------------------------------------------------------------------


async def test_a_failure_hits_only_what_matches_and_can_be_taken_away(
    world: World, prometheus: Callable[..., Any], session: aiohttp.ClientSession
) -> None:
    world.fail("prometheus", 503, match="node_load1")
    async with session.get(f"{world.prometheus_url}/api/v1/query", params={"query": "node_load1"}) as answer:
        assert (answer.status, answer.content_type) == (503, "text/html")
    assert (await prometheus("query", query="up"))[0] == 200
    world.fail("prometheus", 200, match="node_load1")
    assert (await prometheus("query", query="node_load1"))[0] == 200
    assert [call.status for call in world.calls] == [503, 200, 200]


async def test_a_slow_request_that_its_client_drops_is_booked_as_cancelled(
    world: World, session: aiohttp.ClientSession
) -> None:
    world.slow("loki", 600, match='app="gateway"')
    url = f"{world.loki_url}/loki/api/v1/query_range"
    task = asyncio.create_task(session.get(url, params={"query": '{app="gateway"}'}).__aenter__())
    await until(lambda: world.calls)
    assert (world.calls[0].api, world.calls[0].state) == ("loki", "open")
    task.cancel()
    await until(lambda: world.calls[0].state != "open")
    assert world.calls[0].state == "cancelled"
    assert world.calls[0].params["query"] == ['{app="gateway"}']
