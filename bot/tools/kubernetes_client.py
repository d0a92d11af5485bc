"""The client for Kubernetes' API. Its library takes half a second to import, so this module is imported late."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
from kubernetes_asyncio.client import (
    ApiClient,
    AppsV1Api,
    AuthorizationV1Api,
    AutoscalingV2Api,
    BatchV1Api,
    Configuration,
    CoreV1Api,
    VersionApi,
)
from kubernetes_asyncio.config import ConfigException, load_incluster_config, load_kube_config
from yaml import YAMLError

from bot.tools.shaping import one_line
from core.errors import ToolError

GROUPS = {
    "core": CoreV1Api,
    "apps": AppsV1Api,
    "batch": BatchV1Api,
    "autoscaling": AutoscalingV2Api,
    "authorization": AuthorizationV1Api,
    "version": VersionApi,
}
THIS_MACHINE = frozenset({"localhost", "127.0.0.1", "::1"})
READ_BYTES = 2**21
"""The library's own: what it reads at a time."""
FRESH_S = 60.0
"""How long what a kubeconfig says is taken for true: tokens in it, in files or of a command are short-lived."""

UNUSABLE = (ConfigException, YAMLError, OSError, ValueError, KeyError, TypeError, AttributeError, AssertionError)


def by_address(host: str, token: str | None, ca_file: str | None, verify_tls: bool) -> ApiClient:
    """A client for one API server. It needs a running event loop. Raises ToolError."""
    settings = Configuration(
        host=host.rstrip("/"),
        api_key={"BearerToken": token} if token else None,
        api_key_prefix={"BearerToken": "Bearer"},
    )
    settings.ssl_ca_cert = ca_file
    settings.verify_ssl = verify_tls
    try:
        return _client(settings)
    except UNUSABLE as error:
        raise ToolError(f"The address or the CA file of Kubernetes can't be used: {_why(error)}.") from error


async def by_kubeconfig(path: Path, context: str | None, clock: Callable[[], float] = time.monotonic) -> ApiClient:
    """A client with the identity of one context of a kubeconfig. Raises ToolError."""
    settings = Configuration()
    try:
        loader = await load_kube_config(str(path), context, settings, persist_config=False)
        made = _client(settings)
    except UNUSABLE as error:
        raise ToolError(f"The kubeconfig {path} can't be used: {_why(error)}.") from error
    until = [clock() + FRESH_S]
    one_at_a_time = asyncio.Lock()

    async def renew(configuration: Configuration) -> None:
        async with one_at_a_time:
            if clock() < until[0]:
                return
            try:
                await loader.load_and_set(configuration)
            except UNUSABLE as error:
                raise ToolError(f"The kubeconfig {path} gives no identity any more: {_why(error)}.") from error
            until[0] = clock() + FRESH_S

    settings.refresh_api_key_hook = renew
    return made


def in_cluster(account: Path, environ: Mapping[str, str] = os.environ) -> ApiClient:
    """A client with the service account of the pod that we run in. Raises ToolError."""
    settings = Configuration()
    try:
        load_incluster_config(
            settings,
            token_filename=str(account / "token"),
            cert_filename=str(account / "ca.crt"),
            environ=dict(environ),
        )
        return _client(settings)
    except UNUSABLE as error:
        raise ToolError(f"There is no usable service account of a pod here: {_why(error)}.") from error


def _client(settings: Configuration) -> ApiClient:
    """With as many connections as there are calls, and past the environment's proxies to this machine itself."""
    settings.connection_pool_maxsize = 0
    is_here = urlsplit(settings.host).hostname in THIS_MACHINE
    made = ApiClient(settings)
    if is_here:
        theirs = made.rest_client.pool_manager
        made.rest_client.pool_manager = aiohttp.ClientSession(
            connector=theirs.connector, trust_env=False, read_bufsize=READ_BYTES
        )
        theirs.detach()
    return made


def _why(error: Exception) -> str:
    return one_line(str(error) or type(error).__name__, 300).rstrip(".")
