"""Text on its way out: nothing in it may act by itself.

Slack reads `<!channel>`, `<@U1>`, `<https://x|label>` and `:name:` in whatever we send, and `@here` in Markdown.
A model repeats what logs, alerts and people wrote, so every string that is not ours goes through here:

    clean       lone surrogates, control and direction characters go; line ends become newlines
    escape      `& < >` become entities, once; an entity that was in the text is shown as it was
    quiet       a literal broadcast name (also full-width, or with invisible characters in it) is taken apart
    prose       the words of a text: allowed mentions stay, other people are plain text, an address on an unknown
                host and anything that would turn into an emoji are shown as code

`quiet` is also the last thing that is done to every message, whatever was done before it.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any
from urllib.parse import urlsplit

import regex

REPLACEMENT = "\ufffd"
LONGEST_ADDRESS = 2_000

_LINE_ENDS = regex.compile(r"\r\n|[\r\x85\u2028\u2029]")
_UNWANTED = regex.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ufeff]")
_SURROGATES = regex.compile(r"[\ud800-\udfff]")
_INVISIBLE = regex.compile(r"[\p{Default_Ignorable_Code_Point}\p{Cf}\\]")
_COULD_CALL = regex.compile(r"[@＠﹫＜﹤]")
_CALL = regex.compile(r"(?<![a-z0-9])@(?=(?:channel|here|everyone|group)(?![a-z0-9]))")
_TOKEN = regex.compile(r"<(?=[!@#])")

MENTION = regex.compile(r"<@([UW][A-Z0-9]+)(?:\|([^<>\n]*))?>")
_ADDRESS = regex.compile(
    r"(?:(?<![a-z0-9+.-])[a-z][a-z0-9+.-]{0,30}+://|https?://|www\.|mailto:"
    r"|(?<![\w./-])(?:[a-z0-9-]++\.)+[a-z]{2,}/(?=\S))[^\s<>`]+",
    regex.IGNORECASE,
)
_AFTER_ADDRESS = ".,;:!?'\"*_~)]}"
_EMOJI = regex.compile(r":(?:(?=[\w+'\\-]*[^\W\d])[\w+'\\-]+|[+-]1|100|1234):")
_COULD_BE_TOKEN = regex.compile(
    rf"<(?={_INVISIBLE.pattern}*+(?:[!@#！＠＃﹗﹫﹟]|[a-z][a-z0-9+.-]*+:))", regex.IGNORECASE
)
_CODE_MARK = regex.compile(r"``(?=`)")


def clean(text: str) -> str:
    """The same text without what no client can draw."""
    text = _LINE_ENDS.sub("\n", text)
    return str(_UNWANTED.sub("", _SURROGATES.sub(REPLACEMENT, text)))


def clean_everywhere(value: Any) -> Any:
    """`clean` on every string of a payload: no database takes what it takes away."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return [clean_everywhere(item) for item in value]
    if isinstance(value, dict):
        return {key: clean_everywhere(item) for key, item in value.items()}
    return value


def escape(text: str) -> str:
    """`& < >` as the entities that Slack decodes, exactly once."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def unescape(text: str) -> str:
    """What a reader sees of an escaped text."""
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def size(text: str) -> int:
    """The length as the strictest counter sees it: UTF-16 units of the escaped string."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


@lru_cache(maxsize=4_096)
def _seen_as(char: str) -> str:
    return "" if _INVISIBLE.match(char) else unicodedata.normalize("NFKC", char).casefold()


def _skeleton(text: str) -> tuple[str, list[int]]:
    """The text as a lenient reader could take it, and where each of its characters comes from."""
    seen = [_seen_as(char) for char in text]
    return "".join(seen), [index for index, part in enumerate(seen) for _ in part]


def quiet(text: str) -> str:
    """No literal `@channel`, `@here` or `@everyone`, and no full-width control token, in any disguise."""
    if not _COULD_CALL.search(text):
        return text
    skeleton, origin = _skeleton(text)
    cuts = {origin[hit.start()] + 1 for hit in _CALL.finditer(skeleton)}
    for hit in _TOKEN.finditer(skeleton):
        at = origin[hit.start()]
        if text[at] != "<":  # an ASCII `<` is one of ours: everything else was escaped
            cuts.add(at + 1)
    if not cuts:
        return text
    edges = [0, *sorted(cuts), len(text)]
    return " ".join(text[start:end] for start, end in pairwise(edges))


def quiet_everywhere(value: Any) -> Any:
    """`quiet` on every string of a payload."""
    if isinstance(value, str):
        return quiet(value)
    if isinstance(value, list):
        return [quiet_everywhere(item) for item in value]
    if isinstance(value, dict):
        return {key: quiet_everywhere(item) for key, item in value.items()}
    return value


def code(text: str, *, mrkdwn: bool) -> str:
    """What stands in code. A text of mrkdwn decodes entities there as everywhere; whether a Markdown block does is
    not certain, so there only a `<` that could begin a token of Slack's becomes one: commands stay what they are."""
    return escape(text) if mrkdwn else str(_COULD_BE_TOKEN.sub("&lt;", text))


def code_span(text: str, *, mrkdwn: bool) -> str:
    """`text` as inline code; with backticks in it a double fence, or apostrophes where Slack knows no double."""
    inner = code(" ".join(text.split("\n")), mrkdwn=mrkdwn)
    if "`" not in inner:
        return f"`{inner}`" if inner.strip() else inner
    if mrkdwn or "``" in inner:
        return f"`{inner.replace('`', chr(39))}`"
    return f"`` {inner} ``"


def glued(parts: Iterable[str]) -> str:
    """Parts in a row; a space where a mark at the end of one would change what the next one begins with."""
    done = ""
    for part in parts:
        changed = part[:1] in ("`", "[") and (done[-1:] in ("`", "!") or _ends_with_an_escape(done))
        done += f" {part}" if changed else part
    return done


def _ends_with_an_escape(text: str) -> bool:
    return text.endswith("\\") and (len(text) - len(text.rstrip("\\"))) % 2 == 1


def code_lines(text: str, *, mrkdwn: bool) -> list[str]:
    """The lines of a code block, with nothing in them that would close it."""
    return code(str(_CODE_MARK.sub("``\u200b", text)), mrkdwn=mrkdwn).split("\n")


def known_host(address: str, hosts: Collection[str]) -> bool:
    """Whether an address leads to one of `hosts` or below it, label by label, and to nothing else."""
    if size(address) > LONGEST_ADDRESS or regex.search(r"[\s\\<>\"`|()\p{C}]", address):
        return False
    try:
        parts = urlsplit(address)
        host, port_is_fine = (parts.hostname or "").rstrip("."), parts.port is None or parts.port > 0
    except ValueError:
        return False
    if parts.scheme not in ("http", "https") or "@" in parts.netloc or not host or not port_is_fine:
        return False
    labels = host.lower().split(".")
    return any(labels[-len(known) :] == known for known in (name.lower().strip(".").split(".") for name in hosts))


@dataclass(frozen=True, slots=True)
class Prose:
    """How words are written: who may be mentioned, which hosts may be linked, in which dialect."""

    mentions: Collection[str] = ()
    hosts: Collection[str] = ()
    link: Callable[[str, str], str] = lambda label, address: f"[{label}]({address})"
    mrkdwn: bool = False

    def words(self, text: str) -> str:
        """`text` with every word made safe; white space stays as it is."""
        done: list[str] = []
        at = 0
        for hit in MENTION.finditer(text):
            done += self._plain(text[at : hit.start()])
            done.append(self.person(hit[1], hit[2] or ""))
            at = hit.end()
        done += self._plain(text[at:])
        return glued(done)

    def person(self, user: str, label: str = "") -> str:
        """A mention if the person may be mentioned, else the name as plain text."""
        if user in self.mentions:
            return f"<@{user}>"
        return f"@{''.join(self._plain(label))} ({user})" if label else f"@{user}"

    def address(self, address: str, label: str = "") -> str:
        """A link to a known host; anything else as code, with the label beside it."""
        if known_host(address, self.hosts):
            return self.link(label or escape(address), address)
        shown = code_span(address, mrkdwn=self.mrkdwn)
        return f"{label} ({shown})" if label and unescape(label) != address else shown

    def _plain(self, text: str) -> list[str]:
        return [self._word(word) if not word.isspace() else word for word in regex.findall(r"\s+|\S+", text)]

    def _word(self, word: str) -> str:
        done: list[str] = []
        at = 0
        for start, end in _log_runs(word):
            done += (self._linked(word[at:start]), code_span(word[start:end], mrkdwn=self.mrkdwn))
            at = end
        return glued([*done, self._linked(word[at:])])

    def _linked(self, word: str) -> str:
        done: list[str] = []
        at = 0
        for hit in _ADDRESS.finditer(word):
            address = hit[0].rstrip(_AFTER_ADDRESS)
            done += (escape(word[at : hit.start()]), self.address(address))
            at = hit.start() + len(address)
        return glued([*done, escape(word[at:])])


def _log_runs(word: str) -> list[tuple[int, int]]:
    """Where a word holds something like `:error:`, together with the ASCII characters that touch it."""
    runs: list[tuple[int, int]] = []
    for hit in _EMOJI.finditer(word):
        start, end = hit.span()
        floor = runs[-1][1] if runs else 0
        if start < floor:
            continue
        while start > floor and word[start - 1].isascii():
            start -= 1
        while end < len(word) and word[end].isascii():
            end += 1
        runs.append((start, end))
    return runs
