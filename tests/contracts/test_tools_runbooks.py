"""Runbooks are found by word, by part of a word and in every script, and quoted by file and heading."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bot.playground.world import World
from bot.settings import Settings, ToolsPart
from bot.toolbox import open_tools
from bot.tools import runbooks
from bot.tools.runbooks_sections import sections_of
from bot.tools.runbooks_shelf import MOST_BYTES, Shelf, terms_of
from core.errors import ToolError
from core.ports import Tier, Tool

GATEWAY = """\
# Gateway

Who to call: #team-edge.

## Checkout answers 504

The time limit of a route is too short. Compare `timeout` in `gateway-routes` with the p99 of checkout-api.

### Steps

1. `kubectl rollout undo deployment/gateway`

```sh
# this is a comment and no heading
kubectl get pods
```

## Restart

Restarting the gateway drops connections for a second.

### Steps

Ask the on-call engineer first.
"""
CHINESE = "# 结账服务\n\n## 支付超时\n\n先检查网关的超时设置，再看数据库连接池。\n"


class Library:
    """A folder of runbooks and the two tools over it."""

    def __init__(self, folder: Path, books: Shelf) -> None:
        self.folder = folder
        self._tools = {tool.spec.name: tool for tool in runbooks.tools(books)}

    def write(self, name: str, text: str | bytes) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    async def search(self, query: str, **more: object) -> str:
        return (await self._tools["runbooks_search"].run({"query": query, **more})).text

    async def found(self, query: str) -> list[str]:
        """The citations, best first."""
        return [line.partition(". ")[2] for line in (await self.search(query)).splitlines() if line[:1].isdigit()
                and " § " in line]  # fmt: skip

    async def read(self, citation: str) -> str:
        return (await self._tools["runbooks_read"].run({"citation": citation})).text

    async def health(self) -> str | None:
        return await self._tools["runbooks_search"].health()


@pytest.fixture
def library(tmp_path: Path) -> Iterator[Library]:
    folder = tmp_path / "runbooks"
    folder.mkdir()
    with runbooks.shelf(folder) as books:
        made = Library(folder, books)
        made.write("gateway.md", GATEWAY)
        made.write("payments/checkout.md", CHINESE)
        yield made


# --- searching ---------------------------------------------------------------------------------------------------


async def test_the_best_section_comes_first_with_its_citation_and_an_excerpt(library: Library) -> None:
    text = await library.search("checkout 504 timeout")
    head, citation, excerpt, *_ = text.splitlines()
    assert head.endswith(" sections, best first; runbooks_read gives one in full")
    assert citation == "1. gateway.md § Checkout answers 504"
    assert excerpt.startswith("   The time limit of a route is too short. Compare `timeout`")


@pytest.mark.parametrize(
    ("query", "citation"),
    [
        ("checkout-api", "gateway.md § Checkout answers 504"),
        ("eckout-ap", "gateway.md § Checkout answers 504"),
        ("gateway-rou", "gateway.md § Checkout answers 504"),
        ("restarted", "gateway.md § Restart"),
        ("TEAM-EDGE", "gateway.md § Gateway"),
        ("支付超时怎么办", "payments/checkout.md § 支付超时"),
        ("连接池", "payments/checkout.md § 支付超时"),
        ("池", "payments/checkout.md § 支付超时"),
        ("数据库 连接", "payments/checkout.md § 支付超时"),
    ],
)
async def test_words_parts_of_words_and_every_script_are_found(library: Library, query: str, citation: str) -> None:
    found = await library.found(query)
    assert found[0] == citation


async def test_scripts_can_be_mixed_and_the_name_of_a_file_counts(library: Library) -> None:
    mixed = await library.found("数据库 504")
    assert {"payments/checkout.md § 支付超时", "gateway.md § Checkout answers 504"} <= set(mixed)
    assert len(await library.found("payments")) == 2


async def test_accents_and_diacritics_do_not_matter(library: Library) -> None:
    library.write("ruta.md", "# Reversión\n\nLa configuración vuelve atrás.\n")
    assert (await library.found("configuracion"))[0] == "ruta.md § Reversión"


async def test_nothing_found_says_which_runbooks_there_are(library: Library) -> None:
    assert await library.search("kafka") == (
        "No section has any of these words.\nThe runbooks are: gateway.md (Gateway), payments/checkout.md (结账服务)."
    )


@pytest.mark.parametrize(
    "query",
    ['"', '""', "AND", "OR NOT", "NEAR(a b)", "heading:x", "body : y", "*", "a*", "^a", "(", "a AND (b", "-", "+",
     "{a b}:c", "'; DROP TABLE words; --", "\0", "a\0b", "\ud800", "%", "__", ".", "§", "🛑", " x "],
)  # fmt: skip
async def test_the_syntax_of_the_search_is_only_text(library: Library, query: str) -> None:
    assert "sections, best first" in (text := await library.search(query)) or "No section has" in text
    assert (await library.found("checkout-api"))[0] == "gateway.md § Checkout answers 504"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200, deadline=None)
@given(st.text(max_size=40))
def test_no_query_however_odd_raises(tmp_path: Path, query: str) -> None:
    (tmp_path / "a.md").write_text(GATEWAY)
    with runbooks.shelf(tmp_path) as books:
        assert isinstance(books.search(query, 5), list)


def test_words_that_say_nothing_are_left_out_if_others_are_there() -> None:
    assert terms_of("Why does the gateway answer 504?") == ["gateway", "answer", "504"]
    assert terms_of("what is it") == ["what", "is", "it"]


def test_a_long_query_looks_for_so_many_words_and_no_more() -> None:
    assert len(terms_of(" ".join(f"word{number}" for number in range(500)))) == 40


async def test_how_many_sections_are_wanted_is_clamped(library: Library) -> None:
    assert (await library.search("the gateway checkout", limit=1)).startswith("1 sections")
    assert "sections, best first" in await library.search("gateway", limit=1_000_000_000)
    with pytest.raises(ToolError, match="argument limit: -1 is less than the minimum of 1"):
        await library.search("gateway", limit=-1)
    with pytest.raises(ToolError, match="argument query: '' should be non-empty"):
        await library.search("")


# --- sections ----------------------------------------------------------------------------------------------------


def test_headings_are_what_markdown_takes_for_them() -> None:
    text = (
        "---\ntitle: no heading\n---\nBefore.\n\n# One `code` *stressed*\n\n    # indented code\n\n> # quoted\n\n"
        "- # in a list\n\nTwo\n---\n\n"
        "~~~\n# fenced\n~~~\n\n<!--\n# comment\n-->\n\n####### seven\n\n## Three ##\n\nEnd.\n"
    )
    assert [section.citation for section in sections_of("a.md", text)] == [
        "a.md § (beginning)",
        "a.md § One code stressed",
        "a.md § Two",
        "a.md § Three",
    ]


def test_a_block_of_code_that_is_never_closed_hides_the_headings_in_it() -> None:
    assert [one.citation for one in sections_of("a.md", "# A\n\n```\n# b\n\n# c\n")] == ["a.md § A"]


def test_headings_of_the_same_words_have_different_citations() -> None:
    text = "# A\n## Steps\nx\n## Steps\ny\n# B\n## Steps\nz\n# \nw\n"
    assert [one.citation for one in sections_of("a.md", text)] == [
        "a.md § A",
        "a.md § A > Steps",
        "a.md § A > Steps (2)",
        "a.md § B",
        "a.md § B > Steps",
        "a.md § (no words)",
    ]


def test_lines_that_only_python_would_part_move_no_heading() -> None:
    text = "a\u2028b\x0cc\x85d\n\n# One\n\nx\n"
    assert [one.text for one in sections_of("a.md", text)][1] == "# One\n\nx"


def test_a_file_of_nothing_but_headings_keeps_them_apart_up_to_a_limit() -> None:
    found = sections_of("a.md", "# Steps\n" * 2_500)
    assert len(found) == 2_000 and len({section.citation for section in found}) == 2_000
    assert (found[1].citation, found[-1].text.count("# Steps")) == ("a.md § Steps (2)", 501)


@given(st.text(alphabet="#-=` \n\tab>*~_[]()<!\u2028\r\0", max_size=80))
def test_every_word_of_a_file_is_in_some_section(text: str) -> None:
    whole = "".join(section.text for section in sections_of("a.md", text))
    assert whole.count("a") == text.count("a") and whole.count("#") == text.count("#")
    citations = [section.citation for section in sections_of("a.md", text)]
    assert len(set(citations)) == len(citations)


# --- reading -----------------------------------------------------------------------------------------------------


async def test_a_section_is_read_with_what_stands_under_it(library: Library) -> None:
    text = await library.read("gateway.md § Checkout answers 504")
    assert text.startswith("gateway.md § Checkout answers 504\n\n## Checkout answers 504\n")
    assert "# this is a comment and no heading" in text and "drops connections" not in text


@pytest.mark.parametrize(
    "citation",
    [
        "gateway.md § Restart > Steps",
        "Gateway.md §  restart > steps",
        "gateway.md#Restart > Steps",
        "`gateway.md § Restart > Steps`",
    ],
)
async def test_a_citation_is_understood_as_it_is_repeated(library: Library, citation: str) -> None:
    assert (await library.read(citation)).endswith("### Steps\n\nAsk the on-call engineer first.")


async def test_a_whole_file_is_read_and_a_long_one_told_by_its_sections(library: Library) -> None:
    assert (await library.read("payments/checkout.md")).endswith("先检查网关的超时设置，再看数据库连接池。")
    library.write("long.md", "# Long\n\n" + "".join(f"## Part {n}\n\n{'word ' * 400}\n\n" for n in range(60)))
    text = await library.read("long.md")
    assert text.startswith("long.md is long (") and "\nlong.md § Part 38\n" in text
    assert text.endswith("[21 more sections not shown: search for what you need]")
    library.write("wide.md", f"# Wide\n\n{'word ' * 10_000}")
    cut = await library.read("wide.md § Wide")
    assert len(cut) < 13_000 and cut.endswith("[cut here: wide.md § Wide has 50007 characters; search in it]")


@pytest.mark.parametrize(
    ("citation", "hint"),
    [
        ("gateway.md § Restarts", "Did you mean gateway.md § Restart"),
        ("../../etc/passwd", "The runbooks are: gateway.md"),
        ("/etc/passwd", "The runbooks are: gateway.md"),
        ("x" * 400, "The runbooks are: gateway.md"),
    ],
)
async def test_what_is_not_there_is_told_with_what_is(library: Library, citation: str, hint: str) -> None:
    with pytest.raises(ToolError, match=r"^runbooks_read: there is no ") as refused:
        await library.read(citation)
    assert hint in str(refused.value)


# --- files -------------------------------------------------------------------------------------------------------


async def test_new_changed_and_deleted_files_are_noticed_at_the_next_search(library: Library) -> None:
    assert await library.found("kafka") == []
    path = library.write("queue.md", "# Queue\n\nKafka lags.\n")
    assert await library.found("kafka") == ["queue.md § Queue"]
    path.write_text("# Queue\n\nRabbit lags.\n")
    assert await library.found("kafka") == [] and await library.found("rabbit") == ["queue.md § Queue"]
    path.unlink()
    assert await library.found("rabbit") == []


async def test_what_cannot_be_searched_is_said(library: Library, tmp_path: Path) -> None:
    (tmp_path / "secret.md").write_text("# Secret\n\npassphrase swordfish\n")
    (tmp_path / "outside").mkdir()
    (library.folder / "out.md").symlink_to(tmp_path / "secret.md")
    (library.folder / "away").symlink_to(tmp_path / "outside")
    (library.folder / "gone.md").symlink_to(library.folder / "nowhere.md")
    library.write("latin.md", "# Größe\n".encode("latin-1"))
    library.write("big.md", "swordfish " * (MOST_BYTES // 10 + 1))
    os.mkfifo(library.folder / "pipe.md")
    text = await library.search("swordfish")
    assert text.startswith("No section has any of these words.")
    assert text.endswith(
        "[not searched: away is a link out of the folder, gone.md can't be read (No such file or directory), "
        "out.md is a link out of the folder, pipe.md is no plain file, big.md is larger than 256 KB, and 1 more]"
    )
    (library.folder / "big.md").unlink()
    assert "latin.md is not UTF-8 text" in await library.search("swordfish")
    library.write("latin.md", "# Größe\n")
    assert await library.found("Größe") == ["latin.md § Größe"]


async def test_hidden_files_and_other_files_are_not_looked_at(library: Library) -> None:
    library.write(".draft.md", "# Swordfish\n")
    library.write(".git/notes.md", "# Swordfish\n")
    library.write("notes.txt", "# Swordfish\n")
    assert await library.search("swordfish") == await library.search("kafka")


async def test_a_mounted_config_map_is_read_through_its_links(library: Library) -> None:
    library.write("..2026_01/mounted.md", "# Mounted\n\nSwordfish.\n")
    (library.folder / "..data").symlink_to("..2026_01")
    (library.folder / "mounted.md").symlink_to("..data/mounted.md")
    assert await library.found("swordfish") == ["mounted.md § Mounted"]
    library.write("..2026_02/mounted.md", "# Mounted\n\nTunny.\n")
    (library.folder / "..data").unlink()
    (library.folder / "..data").symlink_to("..2026_02")
    assert await library.found("tunny") == ["mounted.md § Mounted"]


async def test_links_in_a_circle_come_to_an_end(library: Library) -> None:
    (library.folder / "payments" / "up").symlink_to(library.folder)
    (library.folder / "payments" / "self").symlink_to(library.folder / "payments")
    assert await library.found("连接池") == ["payments/checkout.md § 支付超时"]


async def test_lines_of_every_system_and_marks_at_the_beginning_are_understood(library: Library) -> None:
    library.write("dos.md", b"\xef\xbb\xbf# Dos\r\n\r\nSwordfish.\r\n\r\n## Next\r\nx\r\n")
    assert await library.found("swordfish") == ["dos.md § Dos"]
    assert await library.read("dos.md § Next") == "dos.md § Next\n\n## Next\nx"


async def test_health_says_what_is_missing(library: Library) -> None:
    assert await library.health() is None
    for path in (library.folder / "gateway.md", library.folder / "payments" / "checkout.md"):
        path.unlink()
    assert await library.health() == f"The folder of runbooks {library.folder} has no readable Markdown file."
    (library.folder / "payments").rmdir()
    library.folder.rmdir()
    gone = f"The folder of runbooks {library.folder} can't be read: No such file or directory."
    assert await library.health() == gone
    with pytest.raises(ToolError, match="can't be read: No such file or directory"):
        await library.search("gateway")
    library.folder.write_text("no folder")
    assert await library.health() == f"The folder of runbooks {library.folder} can't be read: it is no folder."


# --- those of the playground -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "citation"),
    [
        ("CheckoutHigh5xx", "checkout.md § CheckoutHigh5xx"),
        ("why does checkout answer 504?", "gateway.md § Checkout answers 504"),
        ("roll back the gateway", "gateway.md § Roll the gateway back"),
        ("HostHighCpu web-3 backup", "hosts.md § HostHighCpu"),
        ("结账服务返回504怎么办", "checkout.md § 结账失败"),
    ],
)
def test_the_runbooks_of_the_playground_answer_its_incident(query: str, citation: str) -> None:
    with runbooks.shelf(World().runbooks) as books:
        assert books.search(query, 3)[0].section.citation == citation
        known = {section.citation for sections in books.files().values() for section in sections}
        quoted = [
            quote
            for sections in books.files().values()
            for section in sections
            for quote in re.findall(r"\w+\.md § [A-Z][\w ]+\w", section.text)
        ]
        assert len(quoted) == 2 and set(quoted) <= known and books.left_out() == {}


# --- from the settings -------------------------------------------------------------------------------------------


@pytest.fixture
async def configured(library: Library) -> AsyncIterator[dict[str, Tool]]:
    part = ToolsPart(runbooks=library.folder, runbooks_link="https://git.example.com/runbooks/blob/main/")
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(aiohttp.ClientSession())
        found = await open_tools(Settings(tools=part), http, lambda: 0.0, stack)
        yield {tool.spec.name: tool for tool in found}


async def test_a_configured_folder_is_offered_as_two_reads_with_links_for_people(configured: dict[str, Tool]) -> None:
    assert {name: tool.spec.tier for name, tool in configured.items()} == {
        "runbooks_search": Tier.READ,
        "runbooks_read": Tier.READ,
    }
    found = await configured["runbooks_search"].run({"query": "connections dropped by a restart", "limit": 1})
    base = "https://git.example.com/runbooks/blob/main"
    assert found.links == [("gateway.md § Restart", f"{base}/gateway.md#restart")]
    read = await configured["runbooks_read"].run({"citation": "payments/checkout.md § 支付超时"})
    assert read.links[0][1].startswith(f"{base}/payments/checkout.md#%E6%94%AF")
