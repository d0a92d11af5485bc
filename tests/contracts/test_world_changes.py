"""What a PATCH changes in the playground's cluster, changes everywhere in its world."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from bot.playground.world import World
from tests.support.world import FIXTURES, Clock

clock, world, session, prometheus, values, loki, lines, kubernetes = FIXTURES

DEPLOYMENTS = "/apis/apps/v1/namespaces/shop/deployments"
BOT = "/apis/apps/v1/namespaces/ops/statefulsets/deploybot"
STAMP = "/spec/template/metadata/annotations"
RESTARTED = "kubectl.kubernetes.io/restartedAt"
Send = Callable[..., Awaitable[tuple[int, Any]]]


@pytest.fixture
def patch(world: World, session: aiohttp.ClientSession) -> Send:
    async def send(path: str, *steps: Any, kind: str = "application/json-patch+json") -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {world.token}", "Content-Type": kind}
        url = f"{world.kubernetes_url}{path}"
        async with session.patch(url, data=json.dumps(steps).encode(), headers=headers) as answer:
            return answer.status, await answer.json()

    return send


def put(path: str, value: Any) -> dict[str, Any]:
    return {"op": "add", "path": path, "value": value}


async def template_of(kubernetes: Callable[..., Any], revision: int) -> Any:
    _, sets = await kubernetes("/apis/apps/v1/namespaces/shop/replicasets", labelSelector="app=gateway")
    for one in sets["items"]:
        if one["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == str(revision):
            template = one["spec"]["template"]
            del template["metadata"]["labels"]["pod-template-hash"]
            return template
    raise AssertionError(f"no revision {revision}")


async def pods_of(kubernetes: Callable[..., Any], app: str, namespace: str = "shop") -> list[str]:
    _, pods = await kubernetes(f"/api/v1/namespaces/{namespace}/pods", labelSelector=f"app={app}")
    return [one["metadata"]["name"] for one in pods["items"]]


async def test_the_template_of_an_earlier_revision_ends_the_incident(
    patch: Send, kubernetes: Callable[..., Any], values: Callable[..., Any], lines: Callable[..., Any], clock: Clock
) -> None:
    cause = put("/metadata/annotations/kubernetes.io~1change-cause", "back to what worked")
    template = put("/spec/template", await template_of(kubernetes, 41))
    status, after = await patch(f"{DEPLOYMENTS}/gateway", template, cause)
    assert status == 200
    notes = after["metadata"]["annotations"]
    assert notes["deployment.kubernetes.io/revision"] == "43"
    assert notes["kubernetes.io/change-cause"] == "back to what worked"
    clock.t += 600
    assert await lines('{app="gateway"} |= "timed out"', minutes=5) == []
    errors = 'sum by (host) (rate(http_requests_total{service="checkout",status=~"5.."}[2m]))'
    assert max((await values(errors)).values()) < 0.05
    assert await values('ALERTS{alertname="CheckoutHigh5xx"}', "alertname") == {}
    assert await lines('{app="deploybot"} |= "revision 43"') == []


async def test_a_restart_replaces_every_pod_and_changes_nothing_else(
    patch: Send, kubernetes: Callable[..., Any], values: Callable[..., Any], clock: Clock
) -> None:
    before = await pods_of(kubernetes, "gateway")
    status, after = await patch(f"{DEPLOYMENTS}/gateway", put(STAMP, {RESTARTED: "2026-03-14T14:20:00Z"}))
    assert status == 200
    assert after["spec"]["template"]["metadata"]["annotations"] == {RESTARTED: "2026-03-14T14:20:00Z"}
    clock.t += 120
    now = await pods_of(kubernetes, "gateway")
    assert len(now) == 3 and not set(now) & set(before)
    limits = await values('gateway_route_timeout_seconds{route="/checkout"}')
    assert set(limits.values()) == {0.3}


@pytest.mark.parametrize("wanted", [5, 2, 0])
async def test_another_scale_is_seen_in_pods_status_metrics_and_events(
    patch: Send, kubernetes: Callable[..., Any], values: Callable[..., Any], clock: Clock, wanted: int
) -> None:
    before = set(await pods_of(kubernetes, "catalog"))
    assert (await patch(f"{DEPLOYMENTS}/catalog", put("/spec/replicas", wanted)))[0] == 200
    clock.t += 60
    now = set(await pods_of(kubernetes, "catalog"))
    assert len(now) == wanted and (now <= before or now >= before)
    _, deployment = await kubernetes(f"{DEPLOYMENTS}/catalog")
    assert deployment["spec"]["replicas"] == deployment["status"].get("readyReplicas", 0) == wanted
    available = 'kube_deployment_status_replicas_available{deployment="catalog"}'
    assert await values(available, "deployment") == {"catalog": wanted}
    _, events = await kubernetes("/api/v1/namespaces/shop/events", fieldSelector="involvedObject.name=catalog")
    assert any(one["message"].endswith(f" to {wanted} from 3") for one in events["items"])


async def test_pods_that_come_back_after_a_scale_have_new_names(
    patch: Send, kubernetes: Callable[..., Any], clock: Clock
) -> None:
    before = set(await pods_of(kubernetes, "catalog"))
    for wanted in (1, 3):
        await patch(f"{DEPLOYMENTS}/catalog", put("/spec/replicas", wanted))
        clock.t += 60
    now = set(await pods_of(kubernetes, "catalog"))
    assert len(now) == 3 and len(now & before) == 1


async def test_the_stateful_deploybot_can_be_restarted(
    patch: Send, kubernetes: Callable[..., Any], clock: Clock
) -> None:
    _, before = await kubernetes(BOT)
    status, after = await patch(BOT, put(STAMP, {RESTARTED: "2026-03-14T14:20:00Z"}))
    assert status == 200
    assert after["status"]["updateRevision"] != before["status"]["updateRevision"]
    assert await pods_of(kubernetes, "deploybot", "ops") == []
    clock.t += 10
    assert await pods_of(kubernetes, "deploybot", "ops") == ["deploybot-0"]


@pytest.mark.parametrize(
    ("path", "step", "status"),
    [
        ("gateway", {"op": "test", "path": "/spec/replicas", "value": 4}, 422),
        ("gateway", {"op": "replace", "path": "/spec/nothing", "value": 4}, 422),
        ("gateway", {"op": "replace", "path": "/spec/strategy", "value": {}}, 422),
        ("gateway", {"op": "add", "path": "/spec/replicas", "value": -1}, 422),
        ("gateway", {"op": "add", "path": "/spec/template", "value": {}}, 422),
        ("gateway", {"op": "remove", "path": "/spec"}, 422),
        ("gateway", "no step", 422),
        ("nope", {"op": "add", "path": "/spec/replicas", "value": 1}, 404),
    ],
)
async def test_a_refused_patch_changes_nothing(
    patch: Send, kubernetes: Callable[..., Any], path: str, step: Any, status: int
) -> None:
    _, before = await kubernetes(f"{DEPLOYMENTS}/gateway")
    got, body = await patch(f"{DEPLOYMENTS}/{path}", put("/spec/replicas", 7), step)
    assert (got, body["kind"]) == (status, "Status")
    assert (await kubernetes(f"{DEPLOYMENTS}/gateway"))[1] == before


async def test_other_patches_and_other_kinds_are_refused(patch: Send) -> None:
    assert (await patch(f"{DEPLOYMENTS}/gateway", kind="application/merge-patch+json"))[0] == 415
    assert (await patch("/api/v1/namespaces/shop/configmaps/gateway-routes"))[0] == 403
    assert (await patch(f"{DEPLOYMENTS}/gateway?dryRun=All", put("/spec/replicas", 1)))[0] == 400
