"""Reads web pages for the model, through a door that can't be talked into opening somewhere else.

    form       scheme, length, port, no credentials, nothing that two parsers read differently
    allow-list label by label, never by the end of a string: `example.com` is that host, `.example.com` those below it
    address    every answer of one look-up is checked, and the connection goes to a checked address; public ones only,
               unless networks are configured; again after each redirect
    bounds     8 s in all, 2 MB decoded, 5 redirects, no proxy of the environment, no cookies, no kept connections

The address rules are `ssrfguard`'s, which knows every spelling of an address. What is refused says why in one word
and a sentence. The same page is fetched once for everybody who asks within 300 s; a cancelled reader cancels the
fetch when nobody else waits for it.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from unicodedata import category
from urllib.parse import urljoin, urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from ssrfguard import BlockedAddressError, BlockedURLError, Policy, Target, resolve
from yarl import URL

from bot.web_page import beginning, markdown_of
from core.errors import PilothouseError
from core.evidence import MOST_KEPT

TOTAL_S = 8.0
BYTES = 2_000_000
REDIRECTS = 5
URL_CHARS = 2_048
PAGE_CHARS = 6_000
KEPT_S = 300.0
KEPT_CHARS = 20_000_000
HEADER_BYTES = 16_384
INTERNAL = (".internal", ".local", ".localhost", ".svc", ".lan", ".home.arpa", ".intranet")
NUMBER = re.compile(r"0x[0-9a-f]*|\d+")
UNSEEN = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zs", "Zl", "Zp"})
TEXTS = ("text/", "application/json", "application/xhtml+xml", "application/xml", "application/yaml")
HTML = ("text/html", "application/xhtml+xml")


class Refused(PilothouseError):
    """A page that is not read. `why` is one word of a closed list, the text is a sentence."""

    def __init__(self, why: str, said: str) -> None:
        super().__init__(f"{why}: {said}")
        self.why = why


@dataclass(frozen=True, slots=True)
class Page:
    """What was read, as evidence: when (seconds since the epoch), where from, and the digest of the bytes.

    `markdown` is what the model reads of `whole`.
    """

    url: str
    final_url: str
    fetched_at: float
    digest: str
    markdown: str
    whole: str = ""


class Pinned(AbstractResolver):
    """Answers with the addresses that were checked, whatever the name says now."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self._addresses = addresses

    async def resolve(self, host: str, port: int = 0, family: int = socket.AF_INET) -> list[ResolveResult]:
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for address in self._addresses
        ]

    async def close(self) -> None:
        return None


def allowed(host: str, domains: Sequence[str]) -> bool:
    """Whether `host` is on the list: an entry is one host; with a dot in front, every host below it."""
    labels = _labels(host)
    for domain in domains:
        wanted = _labels(domain.strip())
        below = domain.strip().startswith(".")
        if wanted and (labels[-len(wanted) :] == wanted if below else labels == wanted):
            return not below or len(labels) > len(wanted)
    return False


def _is_internal(target: Target) -> bool:
    """Names that only an internal network answers, and numbers that only some resolvers take for an address;
    `localhost` is left to the check of its address."""
    host = target.host.rstrip(".").lower()
    if target.is_literal_address or host == "localhost":
        return False
    return f".{host}".endswith(INTERNAL) or "." not in host or NUMBER.fullmatch(host.rpartition(".")[2]) is not None


def _labels(host: str) -> list[str]:
    plain = host.strip(".").lower()
    try:
        plain = plain.encode("idna").decode("ascii")
    except UnicodeError:
        return []
    return plain.split(".") if plain else []


class WebProxy:
    """The one reader of pages in a process. `now` gives seconds since the epoch, `clock` monotonic seconds."""

    def __init__(
        self,
        domains: Sequence[str],
        *,
        now: Callable[[], float],
        clock: Callable[[], float],
        networks: Sequence[str] = (),
        ports: frozenset[int] = frozenset({80, 443}),
        getaddrinfo: Callable[..., Any] | None = None,
        total_s: float = TOTAL_S,
    ) -> None:
        self._domains = tuple(domains)
        self._now = now
        self._clock = clock
        self._policy = Policy(
            allowed_networks=tuple(networks),  # type: ignore[arg-type]
            allowed_ports=ports,
            max_redirects=REDIRECTS,
            max_url_length=URL_CHARS,
        )
        self._getaddrinfo = getaddrinfo
        self._total_s = total_s
        self._kept: dict[str, tuple[float, Page]] = {}
        self._flights: dict[str, tuple[asyncio.Task[Page], int]] = {}

    async def read(self, url: str) -> Page:
        """The page as Markdown. Raises `Refused`."""
        key = str(_address_of(url, self.check(url, "url")))
        kept = self._kept.get(key)
        if kept is not None and self._clock() - kept[0] < KEPT_S:
            return kept[1]
        return await self._together(key, url)

    async def _together(self, key: str, url: str) -> Page:
        """One flight for everybody who wants the same page; the last one to leave ends it."""
        task, waiting = self._flights.get(key) or (asyncio.ensure_future(self._fetch(url)), 0)
        self._flights[key] = (task, waiting + 1)
        try:
            page = await asyncio.shield(task)
        finally:
            task, waiting = self._flights[key]
            self._flights[key] = (task, waiting - 1)
            if waiting == 1:
                del self._flights[key]
                task.cancel()
        self._keep(key, page)
        return page

    def _keep(self, key: str, page: Page) -> None:
        """Keep the page for who asks next; what is too old goes, and the oldest if there is too much."""
        self._kept.pop(key, None)
        self._kept[key] = (self._clock(), page)
        since = self._clock() - KEPT_S
        held = sum(len(kept.whole) for _, kept in self._kept.values())
        for old, (at, kept) in list(self._kept.items()):
            if at > since and held <= KEPT_CHARS:
                break
            held -= len(kept.whole)
            del self._kept[old]

    async def _fetch(self, url: str) -> Page:
        try:
            async with asyncio.timeout(self._total_s):
                return await self._follow(url)
        except TimeoutError:
            raise Refused("timeout", f"no complete answer within {self._total_s:g} s") from None

    async def _follow(self, url: str) -> Page:
        here, kind = url, "url"
        for _ in range(REDIRECTS + 1):
            target = self.check(here, kind)
            addresses = await self.addresses(target)
            status, headers, body = await self._get(here, target, addresses)
            location = headers.get("Location")
            if status in (301, 302, 303, 307, 308) and location is not None:
                here, kind = urljoin(here, location), "redirect"
                continue
            return await self._page(url, here, status, headers, body)
        raise Refused("too-many-redirects", f"more than {REDIRECTS} redirects")

    def check(self, url: str, kind: str) -> Target:
        """The origin that `url` means, if it may be read at all. Raises `Refused`."""
        prefix = "redirect-" if kind == "redirect" else ""
        if len(url) > URL_CHARS:
            raise Refused(prefix + "too-long", f"an address has at most {URL_CHARS} characters")
        if url.lstrip().startswith("//"):
            raise Refused(prefix + "scheme-relative", "the address names no scheme; begin with https://")
        if "\\" in url or any(category(char) in UNSEEN for char in url):
            raise Refused(prefix + "malformed", "backslashes, blanks and unseen characters don't belong there")
        scheme = url.partition(":")[0].lower()
        if scheme not in ("http", "https"):
            raise Refused(prefix + "scheme", f"only http and https are read, not {scheme[:20]!r}")
        try:
            target = self._policy.check_url(url)
        except BlockedURLError as error:
            word = _word(error.reason)
            if word == "port":
                self._check_host(url, prefix)
            raise Refused(prefix + word, error.reason) from error
        except ValueError as error:
            raise Refused(prefix + "malformed", str(error)) from error
        self._check_name(target, prefix)
        if not allowed(target.host, self._domains):
            why = "redirect-target" if kind == "redirect" else "not-allowed"
            raise Refused(why, f"{target.host} is not on the list of domains that may be read")
        return target

    def _check_host(self, url: str, prefix: str) -> None:
        """The host alone, of an address whose port is refused: what it is counts for more. Raises `Refused`."""
        parts = urlsplit(url)
        host = parts.hostname or ""
        try:
            target = self._policy.check_url(f"{parts.scheme}://{f'[{host}]' if ':' in host else host}/")
        except BlockedURLError as error:
            raise Refused(prefix + _word(error.reason), error.reason) from error
        self._check_name(target, prefix)

    def _check_name(self, target: Target, prefix: str) -> None:
        """Whether the host has a name of the public network; who configures networks knows theirs."""
        if not self._policy.allowed_networks and _is_internal(target):
            raise Refused(prefix + "ip-not-global", f"{target.host} is a name of internal networks")

    async def addresses(self, target: Target) -> Sequence[str]:
        """Every answer of one look-up, checked. Raises `Refused`."""
        try:
            found = await asyncio.to_thread(resolve, target, policy=self._policy, resolver=self._getaddrinfo)
        except BlockedAddressError as error:
            raise Refused("ip-not-global", str(error)) from error
        except OSError as error:
            raise Refused("no-such-host", f"{target.host} can't be found ({error.strerror or error})") from error
        return [str(answer.ip) for answer in found]

    async def _get(self, url: str, target: Target, addresses: Sequence[str]) -> tuple[int, Mapping[str, str], bytes]:
        connector = aiohttp.TCPConnector(resolver=Pinned(addresses), use_dns_cache=False, force_close=True)
        try:
            async with (
                aiohttp.ClientSession(
                    connector=connector,
                    cookie_jar=aiohttp.DummyCookieJar(),
                    trust_env=False,
                    max_line_size=HEADER_BYTES,
                    max_field_size=HEADER_BYTES,
                    headers={"User-Agent": "Pilothouse", "Accept": "text/html, text/*;q=0.9, */*;q=0.1"},
                ) as session,
                session.get(_address_of(url, target), allow_redirects=False) as response,
            ):
                return response.status, dict(response.headers), await _bounded(response)
        except (aiohttp.ClientError, UnicodeError, ValueError) as error:
            raise Refused("unreadable", f"{target.host} gave no readable answer ({type(error).__name__})") from error

    async def _page(self, url: str, final: str, status: int, headers: Mapping[str, str], body: bytes) -> Page:
        kind = headers.get("Content-Type", "text/html").partition(";")[0].strip().lower()
        if status >= 400:
            raise Refused("status", f"the server answered {status}")
        if not kind.startswith(TEXTS):
            raise Refused("content-type", f"{kind or 'that'} is not text")
        charset = headers.get("Content-Type", "").partition("charset=")[2].strip(' "') or "utf-8"
        found = await asyncio.to_thread(markdown_of, body, charset, html=kind in HTML, limit=MOST_KEPT)
        digest = hashlib.sha256(body).hexdigest()
        return Page(url, final, self._now(), digest, beginning(found, PAGE_CHARS), found)


async def _bounded(response: aiohttp.ClientResponse) -> bytes:
    """The decoded body, at most `BYTES` of it: the rest is not read."""
    parts: list[bytes] = []
    size = 0
    async for part in response.content.iter_chunked(65_536):
        parts.append(part[: BYTES - size])
        size += len(parts[-1])
        if size >= BYTES:
            break
    return b"".join(parts)


def _address_of(url: str, target: Target) -> URL:
    """The address that is asked for: the origin as it was checked, the path as it was written."""
    parts = urlsplit(url)
    host = f"[{target.host}]" if ":" in target.host else target.host.rstrip(".")
    query = f"?{parts.query}" if parts.query else ""
    return URL(f"{target.scheme}://{host}:{target.port}{parts.path or '/'}{query}", encoded=True)


def _word(reason: str) -> str:
    """The one word for a refusal of the form."""
    for part, word in (
        ("credentials", "userinfo"),
        ("allowed_ports", "port"),
        ("allowed_schemes", "scheme"),
        ("RFC", "ip-not-global"),
        ("encoded one", "ip-not-global"),
        ("Translation", "ip-not-global"),
        ("not permitted", "ip-not-global"),
    ):
        if part in reason:
            return word
    return "malformed"
