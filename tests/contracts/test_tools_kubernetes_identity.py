"""As whom the tools speak to the cluster: a kubeconfig, the account of a pod, or an address with a token."""

from __future__ import annotations

import json
import ssl
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from bot.playground.world import World
from bot.settings import Settings, ToolsPart
from bot.toolbox import open_tools
from bot.tools import kubernetes_api
from bot.tools.kubernetes_api import Api, Cluster
from core.errors import ToolError
from tests.support.world import FIXED, Clock


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with World(clock=lambda: FIXED) as running:
        yield running


@pytest.fixture
def kubeconfig(tmp_path: Path, world: World) -> Callable[..., Path]:
    """Writes one with a context `right` (the current one), and `wrong`, whose token nobody knows."""

    def write(**right: Any) -> Path:
        users = {"right": right or {"token": world.token}, "wrong": {"token": "nobody"}}
        text = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "right",
            "clusters": [{"name": "demo", "cluster": {"server": world.kubernetes_url}}],
            "users": [{"name": name, "user": user} for name, user in users.items()],
            "contexts": [{"name": name, "context": {"cluster": "demo", "user": name}} for name in users],
        }
        path = tmp_path / "config"
        path.write_text(yaml.safe_dump(text))
        return path

    return write


async def said(cluster: Cluster) -> str | None:
    """What is wrong with this way to the cluster."""
    async with cluster as open_cluster:
        try:
            await Api(open_cluster).check()
        except ToolError as error:
            return str(error)
    return None


async def test_a_kubeconfig_is_read_at_its_current_context(kubeconfig: Callable[..., Path]) -> None:
    assert await said(kubernetes_api.by_kubeconfig(kubeconfig())) is None


async def test_another_context_is_another_identity(kubeconfig: Callable[..., Path]) -> None:
    assert await said(kubernetes_api.by_kubeconfig(kubeconfig(), "wrong")) == "Kubernetes answered 401: Unauthorized"


async def test_a_context_that_is_not_there_is_named(kubeconfig: Callable[..., Path]) -> None:
    path = kubeconfig()
    why = await said(kubernetes_api.by_kubeconfig(path, "production"))
    assert why is not None
    assert why.startswith(f"The kubeconfig {path} can't be used: ") and "production" in why


@pytest.mark.parametrize("text", ["", "{", "[]", "contexts: 5\ncurrent-context: x\n", "\0"])
async def test_a_kubeconfig_that_is_none_is_one_sentence(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    why = await said(kubernetes_api.by_kubeconfig(path))
    assert why is not None
    assert why.startswith(f"The kubeconfig {path} can't be used: ") and "\n" not in why


async def test_what_was_missing_is_found_once_it_is_there(kubeconfig: Callable[..., Path]) -> None:
    path = kubeconfig()
    text = path.read_text()
    path.unlink()
    async with kubernetes_api.by_kubeconfig(path) as cluster:
        with pytest.raises(ToolError, match="can't be used"):
            await Api(cluster).check()
        path.write_text(text)
        await Api(cluster).check()


async def test_a_command_can_give_the_token(kubeconfig: Callable[..., Path], world: World, tmp_path: Path) -> None:
    said_by_it = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": world.token},
    }
    command = tmp_path / "token.py"
    command.write_text(f"print({json.dumps(json.dumps(said_by_it))})")
    plugin = {"apiVersion": said_by_it["apiVersion"], "command": sys.executable, "args": [str(command)]}
    path = kubeconfig(exec=plugin)
    assert await said(kubernetes_api.by_kubeconfig(path)) is None
    command.write_text("import sys; sys.exit('not logged in')")
    why = await said(kubernetes_api.by_kubeconfig(path))
    assert why == f"The kubeconfig {path} can't be used: exec: process returned 1. not logged in."


async def test_a_token_in_a_file_is_read_again_when_it_is_a_minute_old(
    kubeconfig: Callable[..., Path], world: World, tmp_path: Path
) -> None:
    token, clock = tmp_path / "token", Clock()
    token.write_text("nobody")
    path = kubeconfig(tokenFile=str(token))
    async with Cluster(lambda module: module.by_kubeconfig(path, None, clock)) as cluster:
        for text in ("nobody", world.token):
            token.write_text(text)
            with pytest.raises(ToolError, match="answered 401"):
                await Api(cluster).check()
        clock.t += 61
        await Api(cluster).check()


async def test_a_ca_file_that_is_none_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("no certificate")
    for name in ("ca.crt", "missing.crt"):
        why = await said(kubernetes_api.connect("https://127.0.0.1:1", "t", str(tmp_path / name)))
        assert why is not None and "\n" not in why
        assert why.startswith("The address or the CA file of Kubernetes can't be used: ")


# --- the account of a pod ----------------------------------------------------------------------------------------


def certificate(folder: Path) -> ssl.SSLContext:
    """One for 127.0.0.1, signed by itself, as `ca.crt`."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "cluster")])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    (folder / "ca.crt").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "server.key").write_bytes(private)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "ca.crt", folder / "server.key")
    return context


@pytest.fixture
async def port(tmp_path: Path) -> AsyncIterator[int]:
    """An API server that speaks TLS and knows one account."""

    async def version(request: web.Request) -> web.Response:
        known = request.headers.get("Authorization") == "Bearer of-the-pod"
        return web.json_response(
            {"major": "1"} if known else {"message": "Unauthorized"}, status=200 if known else 401
        )

    app = web.Application()
    app.router.add_get("/version/", version)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=certificate(tmp_path)).start()
    yield runner.addresses[0][1]
    await runner.cleanup()


@pytest.mark.parametrize(
    ("token", "expected"), [("of-the-pod", None), ("another", "Kubernetes answered 401: Unauthorized")]
)
async def test_the_account_of_the_pod_is_used_over_verified_tls(
    tmp_path: Path, port: int, token: str, expected: str | None
) -> None:
    (tmp_path / "token").write_text(token)
    where = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(port)}
    assert await said(kubernetes_api.in_cluster(tmp_path, **where)) == expected


async def test_a_certificate_that_the_account_does_not_know_is_refused(tmp_path: Path, port: int) -> None:
    (tmp_path / "token").write_text("of-the-pod")
    certificate(tmp_path)
    where = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(port)}
    why = await said(kubernetes_api.in_cluster(tmp_path, **where))
    assert why is not None and why.startswith("Kubernetes could not be reached (")


async def test_without_a_pod_there_is_no_account(tmp_path: Path) -> None:
    why = await said(kubernetes_api.in_cluster(tmp_path, NOTHING="x"))
    assert why == "There is no usable service account of a pod here: Service host/port is not set."


# --- from the settings -------------------------------------------------------------------------------------------


async def test_the_settings_choose_the_way(world: World, kubeconfig: Callable[..., Path]) -> None:
    ways: list[dict[str, Any]] = [
        {"kubernetes_url": world.kubernetes_url, "kubernetes_token": world.token},
        {"kubernetes_kubeconfig": kubeconfig()},
        {"kubernetes_kubeconfig": kubeconfig(), "kubernetes_context": "wrong"},
        {"kubernetes_in_cluster": True},
        {},
    ]
    found: list[Any] = []
    for way in ways:
        async with AsyncExitStack() as stack:
            http = await stack.enter_async_context(aiohttp.ClientSession())
            tools = await open_tools(Settings(tools=ToolsPart(**way)), http, world.now, stack)
            found.append([await tool.health() for tool in tools if tool.spec.name == "kubernetes_get"])
    assert found[:3] == [[None], [None], ["Kubernetes answered 401: Unauthorized"]]
    assert found[3][0].startswith("There is no usable service account of a pod here: ") and found[4] == []


async def test_the_settings_bound_namespaces_and_replicas(world: World) -> None:
    part = ToolsPart(
        kubernetes_url=world.kubernetes_url,
        kubernetes_token=world.token,
        kubernetes_namespaces=frozenset({"shop"}),
        kubernetes_max_replicas=7,
    )
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(aiohttp.ClientSession())
        tools = {tool.spec.name: tool for tool in await open_tools(Settings(tools=part), http, world.now, stack)}
    scale = tools["kubernetes_scale"].spec.input_schema["properties"]
    assert (scale["namespace"]["enum"], scale["replicas"]["maximum"]) == (["shop"], 7)


async def test_an_api_server_on_this_machine_is_reached_past_the_proxies_of_the_environment(
    world: World, kubeconfig: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert await said(kubernetes_api.connect(world.kubernetes_url, world.token)) is None
    assert await said(kubernetes_api.by_kubeconfig(kubeconfig())) is None
