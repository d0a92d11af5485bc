"""The world evaluates PromQL and LogQL and lists Kubernetes objects, and refuses what it can't do by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import aiohttp
import pytest

from bot.playground.world import World
from tests.support.world import FIXTURES

clock, world, session, prometheus, values, loki, lines, kubernetes = FIXTURES


# --- PromQL ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("1 + 2 * 3", "7"),
        ("-(2 ^ 3)", "-8"),
        ("7 % 4", "3"),
        ("1 / 0", "+Inf"),
        ("0 / 0", "NaN"),
        ("1 > bool 2", "0"),
        ("scalar(sum(kube_deployment_status_replicas_available))", "9"),
    ],
)
async def test_scalars_are_computed(prometheus: Callable[..., Any], query: str, expected: str) -> None:
    status, body = await prometheus("query", query=query)
    assert (status, body["data"]["resultType"], body["data"]["result"][1]) == (200, "scalar", expected)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ('count(up{job="node"})', {"": 3}),
        ('count(up{job!="node",service=~"check.*|cat.*"})', {"": 6}),
        ('count(up{service!~"check.*|cat.*"})', {"": 6}),
        ('sum by (host) (up{job="node"})', {"web-1": 1, "web-2": 1, "web-3": 1}),
        ('max without (instance, job) (up{job="node"}) * 2', {"web-1": 2, "web-2": 2, "web-3": 2}),
        ("topk(1, node_load1) > bool 5", {"web-3": 1}),
        ("bottomk(1, node_load1 > 2) - node_load1", {"web-3": 0}),
        ("count(node_load1 < 2)", {"": 2}),
        ("node_load1 > 2 and on (host) up", {"web-3": pytest.approx(6.4, rel=0.1)}),
        ('up{job="node"} unless on (host) (node_load1 > 2)', {"web-1": 1, "web-2": 1}),
        ('avg_over_time(up{job="node",host="web-1"}[10m])', {"web-1": 1}),
        ("sum(up) / count(up)", {"": 1}),
        ("quantile(0.5, up)", {"": 1}),
        ("round(node_load1 > 2)", {"web-3": pytest.approx(6.4, abs=1)}),
        ('clamp_max(node_load1{host="web-3"}, 3)', {"web-3": 3}),
        ("nothing_of_that_name", {}),
        ('up{job="node",host="web-1"} offset 1h', {"web-1": 1}),
    ],
)
async def test_vectors_are_evaluated(values: Callable[..., Any], query: str, expected: dict[str, float]) -> None:
    assert await values(query) == expected


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("max_over_time(rate(up[1m])[5m:1m])", "max_over_time() over anything but a plain range"),
        ("up[5m:1m]", "subqueries"),
        ("up @ 1", "the @ modifier"),
        ("deriv(node_load1[5m])", "the function deriv()"),
        ("label_replace(up, 'a', '$1', 'b', '')", "the function label_replace()"),
        ("count_values('v', up)", "the aggregation count_values"),
        ("up * on (host) group_left (pod) up", "group_left"),
        ("1" + "+1" * 1500, "nested so deeply"),
        ("1" + " " * 4000, "more than 4000 characters"),
        ("sum(rate(http_requests_total[1y]))", "over so many samples"),
    ],
)
async def test_what_it_cannot_evaluate_it_refuses_by_name(
    prometheus: Callable[..., Any], query: str, words: str
) -> None:
    status, body = await prometheus("query", query=query)
    assert (status, body["status"], body["errorType"]) == (422, "error", "execution")
    assert body["error"].startswith("the playground's Prometheus cannot evaluate ")
    assert words in body["error"]


@pytest.mark.parametrize(
    "query",
    ["", "rate(up", "rate(up)", "foo(1)", "up{", 'up{host="', "sum by host (up)", "{}", "up[5m", "up and 1",
     "up + on (job) up", "🛑", "up\x00", "up offset 1e400"],
)  # fmt: skip
async def test_a_wrong_query_is_a_400_in_prometheus_own_shape(prometheus: Callable[..., Any], query: str) -> None:
    status, body = await prometheus("query", query=query)
    assert (status, body["status"], body["errorType"]) == (400, "error", "bad_data")
    assert 'invalid parameter "query"' in body["error"]


async def test_a_range_has_a_point_at_every_step_and_knows_its_limits(
    world: World, prometheus: Callable[..., Any]
) -> None:
    end = world.now()
    _, body = await prometheus("query_range", query="sum(up)", start=end - 600, end=end, step="1m")
    (only,) = body["data"]["result"]
    assert [t for t, _ in only["values"]] == [end - 600 + 60 * step for step in range(11)]
    status, body = await prometheus("query_range", query="up", start=end - 86400, end=end, step=1)
    assert status == 400 and "exceeded maximum resolution" in body["error"]
    for wrong in ({"step": 0}, {"step": "x"}, {"start": "x"}, {"start": end + 1}, {"end": "inf"}):
        status, body = await prometheus("query_range", **{"query": "up", "start": 1, "end": end, "step": 60, **wrong})
        assert (status, body["errorType"]) == (400, "bad_data")


async def test_prometheus_lists_what_there_is(world: World, prometheus: Callable[..., Any]) -> None:
    assert "host" in (await prometheus("labels"))[1]["data"]
    assert (await prometheus("label/service/values"))[1]["data"] == ["catalog", "checkout", "gateway"]
    assert "gateway_upstream_timeouts_total" in (await prometheus("metadata"))[1]["data"]
    _, body = await prometheus("series", **{"match[]": 'up{job="node"}'})
    assert len(body["data"]) == 3
    assert (await prometheus("series"))[0] == 400
    assert (await prometheus("nonsense"))[0] == 404


async def test_all_three_say_that_they_are_ready(world: World, session: aiohttp.ClientSession) -> None:
    ready = (f"{world.prometheus_url}/-/ready", f"{world.loki_url}/ready")
    for url in ready:
        async with session.get(url) as answer:
            assert (answer.status, "ready" in (await answer.text()).lower()) == (200, True)


# --- LogQL -------------------------------------------------------------------------------------------------------


async def test_lines_come_newest_first_and_at_most_as_many_as_asked(lines: Callable[..., Any], world: World) -> None:
    found = await lines('{namespace="shop", pod=~"checkout-.*"}', limit=7)
    assert len(found) == 7
    assert world.now() - 60 < found[-1][0] <= found[0][0] <= world.now()


async def test_line_filters_narrow_and_exclude(lines: Callable[..., Any]) -> None:
    query = '{app="gateway"} |= "timed out" != "web-1" |~ "upstream_host=web-[23]" !~ `web-3`'
    found = await lines(query, limit=20)
    assert len(found) == 20 and all("upstream_host=web-2" in line for _, line in found)


async def test_parsed_labels_can_be_filtered(lines: Callable[..., Any]) -> None:
    errors = await lines('{app="gateway"} | logfmt | level="error" | duration_ms >= 300', limit=10)
    assert len(errors) == 10 and all("timed out" in line for _, line in errors)
    assert await lines('{app="gateway"} | logfmt | status != 504 | level = "error"') == []


async def test_lines_can_be_counted_over_time(loki: Callable[..., Any]) -> None:
    query = 'sum by (app) (count_over_time({app="gateway"} |= "timed out" [5m])) > 0'
    _, body = await loki(query, step=300)
    (only,) = body["data"]["result"]
    assert only["metric"] == {"app": "gateway"} and float(only["values"][-1][1]) > 30
    _, body = await loki('sum(rate({app=~".+"}[1m]))', step=60)
    assert float(body["data"]["result"][0]["values"][-1][1]) > 1


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ('{app="gateway"} | line_format "{{.x}}"', "cannot evaluate"),
        ('{app="gateway"} | json | a="b" or c="d"', "cannot evaluate"),
        ('{app="gateway"} |~ "(?<!x)("', "the regular expression"),
        ('sum(bytes_over_time({app="gateway"}[5m]))', "unknown function"),
        ('sum(count_over_time({app="gateway"}))', "expected a range"),
        ('sum(count_over_time({app="gateway"}[1y]))', "more than a day"),
        ('{app="gateway"', "parse error"),
        ("gateway", "parse error"),
        ("", "parse error"),
        ("{}", "parse error"),
    ],
)
async def test_loki_refuses_in_plain_words(loki: Callable[..., Any], query: str, words: str) -> None:
    status, text = await loki(query, step=60)
    assert status == 400 and words in text


async def test_loki_refuses_more_than_a_day_and_more_than_5000_lines(loki: Callable[..., Any]) -> None:
    status, text = await loki('{app="gateway"}', minutes=3000)
    assert status == 400 and "exceeds the limit" in text
    status, text = await loki('{app="gateway"}', limit=6000)
    assert status == 400 and "max entries" in text
    assert (await loki('{app="gateway"}', limit="-1"))[0] == 400


# --- Kubernetes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "kind", "count"),
    [
        ("/api/v1/namespaces/shop/pods", "PodList", 9),
        ("/api/v1/pods", "PodList", 11),
        ("/apis/apps/v1/namespaces/shop/deployments", "DeploymentList", 3),
        ("/apis/apps/v1/namespaces/shop/replicasets", "ReplicaSetList", 8),
        ("/api/v1/namespaces/shop/services", "ServiceList", 3),
        ("/api/v1/namespaces/shop/configmaps", "ConfigMapList", 3),
        ("/api/v1/nodes", "NodeList", 3),
        ("/apis/batch/v1/namespaces/ops/jobs", "JobList", 1),
        ("/apis/apps/v1/namespaces/ops/statefulsets", "StatefulSetList", 1),
        ("/api/v1/namespaces", "NamespaceList", 3),
        ("/api/v1/namespaces/nowhere/pods", "PodList", 0),
    ],
)
async def test_kubernetes_lists(kubernetes: Callable[..., Any], path: str, kind: str, count: int) -> None:
    status, body = await kubernetes(path)
    assert (status, body["kind"], len(body["items"])) == (200, kind, count)


@pytest.mark.parametrize(
    ("path", "method", "code", "reason"),
    [
        ("/api/v1/namespaces/shop/pods/nope", "GET", 404, "NotFound"),
        ("/api/v1/namespaces/shop/nodes", "GET", 404, "NotFound"),
        ("/api/v1/namespaces/shop/deployments", "GET", 404, "NotFound"),
        ("/api/v1/namespaces/shop/services/gateway/log", "GET", 404, "NotFound"),
        ("/apis/events.k8s.io/v1/events", "GET", 404, "NotFound"),
        ("/api/v1/namespaces/shop/secrets", "GET", 403, "Forbidden"),
        ("/api/v1/namespaces/shop/secrets/checkout-db", "GET", 403, "Forbidden"),
        ("/api/v1/namespaces/shop/pods/x", "DELETE", 403, "Forbidden"),
        ("/api/v1/namespaces/shop/pods", "POST", 403, "Forbidden"),
    ],
)
async def test_kubernetes_says_no_with_a_status_object(
    kubernetes: Callable[..., Any], path: str, method: str, code: int, reason: str
) -> None:
    status, body = await kubernetes(path, method=method)
    assert (status, body["kind"], body["code"], body["reason"]) == (code, "Status", code, reason)


async def test_kubernetes_knows_its_reader_by_the_token(kubernetes: Callable[..., Any]) -> None:
    assert (await kubernetes("/version"))[0] == 200
    status, body = await kubernetes("/version", token="wrong")
    assert (status, body["reason"]) == (401, "Unauthorized")


async def test_kubernetes_selects_and_pages(kubernetes: Callable[..., Any]) -> None:
    _, body = await kubernetes("/api/v1/namespaces/shop/pods", fieldSelector="spec.nodeName=web-3")
    assert len(body["items"]) == 3
    _, body = await kubernetes("/api/v1/namespaces/shop/pods", labelSelector="app in (gateway, catalog),app!=catalog")
    assert len(body["items"]) == 3
    _, first = await kubernetes("/api/v1/namespaces/shop/pods", limit=5)
    token = first["metadata"]["continue"]
    _, second = await kubernetes("/api/v1/namespaces/shop/pods", limit=5, **{"continue": token})
    names = [one["metadata"]["name"] for one in first["items"] + second["items"]]
    assert len(set(names)) == 9 and "continue" not in second["metadata"]


async def test_the_logs_of_a_pod_are_those_in_loki(
    world: World, session: aiohttp.ClientSession, kubernetes: Callable[..., Any], lines: Callable[..., Any]
) -> None:
    _, pods = await kubernetes("/api/v1/namespaces/shop/pods", labelSelector="app=gateway")
    pod = pods["items"][0]["metadata"]["name"]
    url = f"{world.kubernetes_url}/api/v1/namespaces/shop/pods/{pod}/log"
    headers = {"Authorization": f"Bearer {world.token}"}
    async with session.get(url, params={"tailLines": 5}, headers=headers) as answer:
        logged = (await answer.text()).splitlines()
    assert logged == [line for _, line in reversed(await lines(f'{{pod="{pod}"}}', limit=5))]
