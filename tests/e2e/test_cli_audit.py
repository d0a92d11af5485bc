"""`pilothouse audit export`: JSON lines for an auditor, of an installation of any size."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bot.commands.audit import moment_of
from core.errors import BadInput
from tests.support.cli import PROGRAM, REPOSITORY, Run, happen, sentence_of
from tests.support.house import House

pytest_plugins = ["tests.e2e.cli_fixtures"]

DAY_S = 86_400.0
NOW = datetime(2026, 12, 1, 12, tzinfo=UTC).timestamp()


def lines(result: tuple[int, str, str]) -> list[Mapping[str, Any]]:
    code, out, err = result
    assert (code, err) == (0, "")
    assert out == "" or out.endswith("\n")
    return [json.loads(line) for line in out.split("\n")[:-1]]


def test_every_record_is_a_line_with_its_type_and_time(cli: Run, place: Path) -> None:
    turn = happen(place, House.completed)
    found = lines(cli("audit", "export", "--data", place))
    assert [one["type"] for one in found] == ["message", "call", "call", "settle"]
    assert all(datetime.fromisoformat(one["at"]).tzinfo is not None for one in found)
    assert list(found[0])[:2] == ["type", "at"]
    assert lines(cli("audit", "export", "--data", place, "--turn", turn[:6])) == found
    assert lines(cli("audit", "export", "--data", place, "--since", "1h")) == found
    assert lines(cli("audit", "export", "--data", place, "--since", "2126-01-01")) == []
    assert lines(cli("audit", "export", "--data", place, "--since", found[2]["at"])) == found[1:]


def test_an_empty_installation_has_no_lines(cli: Run, place: Path) -> None:
    assert lines(cli("audit", "export", "--data", place)) == []


def test_what_people_write_can_neither_break_a_line_nor_steer_a_terminal(cli: Run, place: Path) -> None:
    async def story(house: House) -> None:
        await house.say("one\ntwo\u2028three \u202eesrever\x9b31m 刹车")

    happen(place, story)
    (found,) = lines(cli("audit", "export", "--data", place))
    assert found["text"] == "one\ntwo\u2028three \u202eesrever\x9b31m 刹车"
    out = cli("audit", "export", "--data", place)[1]
    assert len(out.splitlines()) == 1 and "刹车" in out and not {"\u202e", "\x9b"} & set(out)


@pytest.mark.parametrize(
    ("given", "moment"),
    [
        ("24h", NOW - DAY_S),
        ("7d", NOW - 7 * DAY_S),
        ("2W", NOW - 14 * DAY_S),
        ("90m", NOW - 5400),
        (" 30s ", NOW - 30),
        ("999999999d", 0.0),
        ("2026-11-30", NOW - 1.5 * DAY_S),
        ("2026-12-01T12:00:00Z", NOW),
        ("2026-12-01t12:00:00.250z", NOW + 0.25),
        ("2026-12-01T13:30:00+01:30", NOW),
        ("2026-12-01 12:00:00", NOW),
    ],
)
def test_since_takes_dates_and_ages(given: str, moment: float) -> None:
    assert moment_of(given, NOW) == moment


@pytest.mark.parametrize(
    "given",
    [
        *("", "yesterday", "24", "h", "-1h", "1.5h", "9999999999d", "٢٤h"),
        *("2026-13-01", "20261201", "2026-W49-2", "2026-12-01T25:00:00Z", "2026-12-01T12:00"),
        "2026-12-01T12:00:00+25:00",
    ],
)
def test_what_is_no_time_is_one_sentence_and_2(cli: Run, place: Path, given: str) -> None:
    assert sentence_of(cli("audit", "export", "--data", place, f"--since={given}")) == (
        f"{given or 'Nothing'} is no time: give a date such as 2026-12-01T08:00:00Z, or an age such as 24h or 7d."
    )
    with pytest.raises(BadInput):
        moment_of(given, NOW)


def test_a_turn_that_is_not_there_is_one_sentence(cli: Run, place: Path) -> None:
    assert sentence_of(cli("audit", "export", "--data", place, "--turn", "t-none")) == (
        "There is no turn t-none: see `pilothouse turns list` for their ids."
    )


# -- real processes, and much of it

CALLS = 20_000
OUTPUT_CHARS = 4_000
MEASURED = """
import pathlib, sys
from bot.cli import main
code = main(sys.argv[1:])
status = pathlib.Path("/proc/self/status").read_text()
sys.stderr.write(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))
sys.exit(code)
"""
"""`ru_maxrss` would not do: it begins with what the process that forked it had."""


@pytest.fixture
def large(place: Path) -> Path:
    """An installation with 20,000 calls in its audit, 80 MB."""
    happen(place, House.completed)
    with closing(sqlite3.connect(place / "pilothouse.db")) as db, db:
        db.execute("PRAGMA synchronous = OFF")
        columns = [row[1] for row in db.execute("PRAGMA table_info(calls)")]
        kept = dict(zip(columns, db.execute("SELECT * FROM calls LIMIT 1").fetchone(), strict=True))
        rows = (kept | {"id": f"large.{n}", "step": 100 + n, "output": "x" * OUTPUT_CHARS} for n in range(CALLS))
        marks = ", ".join("?" * len(columns))
        db.executemany(f"INSERT INTO calls VALUES ({marks})", (list(row.values()) for row in rows))
    return place


def _exported(place: Path, lines_file: Path) -> int:
    """Export into a file; the peak of the process's memory, in bytes."""
    with lines_file.open("wb") as out:
        done = subprocess.run(
            [sys.executable, "-c", MEASURED, "audit", "export", "--data", str(place)],
            cwd=REPOSITORY,
            stdout=out,
            stderr=subprocess.PIPE,
            check=True,
            timeout=120,
        )
    return int(done.stderr) * 1024


@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="the peak of the memory is read from /proc")
def test_a_large_export_takes_no_more_memory_than_a_small_one(
    large: Path, sqlite_template: Path, tmp_path: Path
) -> None:
    small = tmp_path / "small"
    small.mkdir()
    (small / "pilothouse.db").write_bytes(sqlite_template.read_bytes())
    of_nothing = _exported(small, tmp_path / "nothing.jsonl")
    of_much = _exported(large, tmp_path / "much.jsonl")
    with (tmp_path / "much.jsonl").open() as exported:
        ids = {json.loads(line)["id"] for line in exported}
    assert len(ids & {f"large.{number}" for number in range(CALLS)}) == CALLS
    assert of_much - of_nothing < CALLS * OUTPUT_CHARS / 4


@pytest.mark.process
def test_when_nobody_reads_any_more_it_ends_without_a_word(large: Path) -> None:
    process = subprocess.Popen(
        [*PROGRAM, "audit", "export", "--data", str(large)],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None and process.stderr is not None
    assert json.loads(process.stdout.readline())["type"] == "message"
    process.stdout.close()
    with process.stderr as err:
        assert err.read() == b""
    assert process.wait(60) == 141
