"""The client for Kubernetes' API. Its library takes half a second to import, so this module is imported late."""

from __future__ import annotations

from kubernetes_asyncio.client import ApiClient, AppsV1Api, Configuration, CoreV1Api, VersionApi

GROUPS = {"core": CoreV1Api, "apps": AppsV1Api, "version": VersionApi}


def client(host: str, token: str | None, ca_file: str | None, verify_tls: bool) -> ApiClient:
    """A client for one API server, with as many connections as there are calls. It needs a running event loop."""
    bearer = {"BearerToken": token} if token else None
    settings = Configuration(host=host.rstrip("/"), api_key=bearer, api_key_prefix={"BearerToken": "Bearer"})
    settings.ssl_ca_cert = ca_file
    settings.verify_ssl = verify_tls
    settings.connection_pool_maxsize = 0
    return ApiClient(settings)
