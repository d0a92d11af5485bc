"""Talking to one API server: a client that is made with the first call, reads, and patches that are sent once.

Answers are read as JSON and not as the client's models: a cluster newer or odder than the client must not become an
exception.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from inspect import isawaitable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp

from bot.importing import imported
from bot.tools.kubernetes_objects import KINDS, Kind, Object, dig, items, selector_of
from bot.tools.reading import HEALTH_S, LONGEST_S, Answer, decoded, refused, unreachable, whole
from bot.tools.shaping import one_line
from core.errors import OutcomeUnknown, ToolError

NAME = "Kubernetes"
CLIENT = "bot.tools.kubernetes_client"
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
MANAGER = "pilothouse"
PAGE = 500
MOST_PAGES = 4
OPENING_S = 20.0
WRITE_S = 15.0
TEST_FAILED = "the server rejected our request due to an error in our request"
"""What the API server says to a JSON patch of which a test failed: it keeps to itself which one."""

Make = Callable[[Any], Any]


class Conflict(ToolError):
    """What was to be changed is not what it was when it was looked at; nothing was changed."""


class Cluster:
    """One API server. Use it with `async with`; its client is imported, in a thread, and made with the first call."""

    def __init__(self, make: Make) -> None:
        self._make = make
        self._opening: asyncio.Future[tuple[Any, Any]] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._opening is None:
            return
        if not self._opening.done():
            self._opening.cancel()
            await asyncio.wait({self._opening})
        if not self._opening.cancelled() and self._opening.exception() is None:
            await self._opening.result()[1].close()

    async def call(self, group: str, method: str, *where: str, **given: Any) -> aiohttp.ClientResponse:
        """One call of the client. Raises ToolError when there is no identity to call with."""
        module, api = await self.ready()
        response: aiohttp.ClientResponse = await getattr(module.GROUPS[group](api), method)(*where, **given)
        return response

    async def ready(self) -> tuple[Any, Any]:
        """The library and the client. What failed is tried again with the next call."""
        if self._opening is None or (self._opening.done() and _failed(self._opening)):
            self._opening = asyncio.ensure_future(self._open())
        return await asyncio.shield(self._opening)

    async def _open(self) -> tuple[Any, Any]:
        module = await asyncio.to_thread(imported, CLIENT)
        try:
            async with asyncio.timeout(OPENING_S):
                made = self._make(module)
                return module, await made if isawaitable(made) else made
        except TimeoutError as error:
            raise ToolError(f"{NAME}: no identity could be had within {OPENING_S:g} s.") from error


def _failed(opening: asyncio.Future[tuple[Any, Any]]) -> bool:
    return opening.cancelled() or opening.exception() is not None


def connect(host: str, token: str | None = None, ca_file: str | None = None, verify_tls: bool = True) -> Cluster:
    """The API server at an address."""
    return Cluster(lambda module: module.by_address(host, token, ca_file, verify_tls))


def by_kubeconfig(path: Path, context: str | None = None) -> Cluster:
    """The API server that a kubeconfig names; without `context` that of its current one."""
    return Cluster(lambda module: module.by_kubeconfig(path, context))


def in_cluster(account: Path = ACCOUNT, **environ: str) -> Cluster:
    """The API server of the cluster that we run in."""
    return Cluster(lambda module: module.in_cluster(account, **({"environ": environ} if environ else {})))


@dataclass(frozen=True, slots=True)
class Api:
    """What the tools ask of a cluster; `page` is how many objects come at once. Every read raises only ToolError."""

    cluster: Cluster
    page: int = PAGE

    async def check(self) -> object:
        return await self.ask("version", "get_code", longest_s=HEALTH_S)

    async def one(self, kind: Kind, name: str, *where: str, longest_s: float = LONGEST_S) -> Object:
        """One object; `where` is its namespace, if its kind has one."""
        found = await self.ask(kind.group, f"read_{kind.method}", name, *where, longest_s=longest_s)
        if not isinstance(found, dict):
            raise ToolError(f"{NAME} answered in an unknown shape: an object was expected.")
        return found

    async def many(self, kind: Kind, *where: str, **query: Any) -> Any:
        """The first page of a list."""
        return await self.ask(kind.group, f"list_{kind.method}", *where, limit=self.page, **query)

    async def rollouts(self, namespace: str, name: str) -> tuple[Object, list[Object]]:
        """A deployment, and the replica sets that its selector finds."""
        deployment = await self.one(KINDS["deployments"], name, namespace)
        kind, chosen = KINDS["replicasets"], {"label_selector": selector_of(deployment)}
        return deployment, items(await self._pages(kind.group, f"list_{kind.method}", namespace, **chosen))

    async def events(self, namespace: str, **query: Any) -> Any:
        """The events of a namespace, or of the whole cluster: up to four pages, as they come in no useful order."""
        if namespace:
            return await self._pages("core", "list_namespaced_event", namespace, **query)
        return await self._pages("core", "list_event_for_all_namespaces", **query)

    async def _pages(self, group: str, method: str, *where: str, **query: Any) -> Any:
        found: list[Object] = []
        more: Any = None
        for _ in range(MOST_PAGES):
            following: dict[str, Any] = {"_continue": more} if more else {}
            answer = await self.ask(group, method, *where, limit=self.page, **query, **following)
            found += items(answer)
            more = dig(answer, "metadata", "continue")
            if not isinstance(more, str) or not more:
                break
        return {"metadata": {"continue": more}, "items": found}

    async def ask(self, group: str, method: str, *where: str, longest_s: float = LONGEST_S, **query: Any) -> Any:
        return decoded(NAME, await self.answer(group, method, *where, longest_s=longest_s, **query))

    async def answer(
        self, group: str, method: str, *where: str, longest_s: float = LONGEST_S, **query: Any
    ) -> Answer:
        """One call of the client, its answer unread by it. Raises ToolError for everything but a 200."""
        await self.cluster.ready()
        try:
            async with asyncio.timeout(longest_s):
                answer = await self._whole(group, method, *where, longest_s=longest_s, **query)
        except TimeoutError as error:
            raise ToolError(f"{NAME} did not answer within {longest_s:g} s.") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise unreachable(NAME, error) from error
        if answer.status != 200:
            raise refused(NAME, answer)
        return answer

    async def _whole(self, group: str, method: str, *where: str, longest_s: float, **query: Any) -> Answer:
        limit = aiohttp.ClientTimeout(total=longest_s)
        response = await self.cluster.call(
            group, method, *where, **query, _preload_content=False, _request_timeout=limit
        )
        async with response:
            return await whole(response, NAME)

    async def may_patch(self, kind: Kind, name: str, namespace: str) -> bool:
        """False when the cluster says that our identity has no right to; a cluster that doesn't say is believed."""
        about = {"verb": "patch", "group": kind.group, "resource": kind.plural, "namespace": namespace, "name": name}
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": about},
        }
        try:
            answer = await self._whole(
                "authorization", "create_self_subject_access_review", longest_s=HEALTH_S, body=body
            )
            said = decoded(NAME, answer)
        except (aiohttp.ClientError, OSError, ValueError, ToolError):
            return True
        return dig(said, "status", "allowed") is not False

    async def patch(
        self, kind: Kind, name: str, namespace: str, steps: list[Object], happened: Callable[[Object], bool]
    ) -> Object:
        """Send a JSON patch once, and give what came of it. If its end was not seen, `happened` looks at the object.

        Raises `Conflict` when a test of the patch failed, ToolError for every other way in which nothing was
        changed, and OutcomeUnknown when nobody knows.
        """
        await self.cluster.ready()
        method, body = f"patch_{kind.method}", {"body": steps, "field_manager": MANAGER}
        try:
            answer = await self._whole(kind.group, method, name, namespace, longest_s=WRITE_S, **body)
        except (aiohttp.ClientConnectorError, aiohttp.InvalidURL) as error:
            raise ToolError(f"{unreachable(NAME, error)} Nothing was changed.") from error
        except (aiohttp.ClientError, OSError, ValueError, ToolError) as error:
            why = str(error) or type(error).__name__
            return await self._looked_for(kind, name, namespace, happened, why, error)
        if answer.status >= 500:
            broken = refused(NAME, answer)
            return await self._looked_for(kind, name, namespace, happened, str(broken), broken)
        if answer.status == 409 or (answer.status == 422 and TEST_FAILED in answer.text):
            raise Conflict(
                f"{kind.title} {namespace}/{name} was changed by somebody else in this very moment, so nothing was "
                "changed by this call. Look at it again before you decide."
            )
        if not 200 <= answer.status < 300:
            raise ToolError(f"{str(refused(NAME, answer)).rstrip('.')}. Nothing was changed.")
        found = decoded(NAME, answer)
        return found if isinstance(found, dict) else {}

    async def _looked_for(
        self,
        kind: Kind,
        name: str,
        namespace: str,
        happened: Callable[[Object], bool],
        why: str,
        cause: Exception,
    ) -> Object:
        with suppress(ToolError):
            now = await self.one(kind, name, namespace, longest_s=HEALTH_S)
            if happened(now):
                return now
        raise OutcomeUnknown(
            f"{NAME} got the change, but not a clear end ({one_line(why, 300).rstrip('.')}). It may have been done "
            f"or may still happen: check {kind.title} {namespace}/{name} first."
        ) from cause
