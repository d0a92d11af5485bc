"""The command line as a whole: help, how it says no, and how it ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from bot.cli import COMMANDS
from bot.commands.lazy import command_of
from tests.support.cli import PROGRAM, REPOSITORY, Run, json_of, sentence_of
from tests.support.processes import until

pytest_plugins = ["tests.e2e.cli_fixtures"]


def test_help_names_every_command_and_says_of_each_what_its_own_help_says(cli: Run) -> None:
    code, out, _ = cli("--help")
    assert code == 0
    for name, entry in COMMANDS.items():
        assert name in out
        if name not in ("demo", "serve"):
            assert command_of(entry).help.startswith(entry.help)


def test_without_a_command_the_help_is_shown(cli: Run) -> None:
    assert cli() == cli("--help")


def test_help_and_light_commands_import_neither_slack_nor_the_model_nor_the_database() -> None:
    code = (
        "import sys; from bot.cli import main; main(['--help']); main(['policy', 'show']); "
        "heavy = {'slack_bolt', 'slack_sdk', 'anthropic', 'aiohttp', 'sqlalchemy', 'jsonschema'} & set(sys.modules); "
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["polcy"], "No such command 'polcy'. Did you mean 'policy'? See `pilothouse --help`."),
        (["policy"], "Missing command. See `pilothouse policy --help`."),
        (["turns", "list", "--color"], "No such option: --color. See `pilothouse turns list --help`."),
        (["turns", "show"], "Missing argument 'ID'. See `pilothouse turns show --help`."),
        (["turns", "list", "--newest", "0"], "Invalid value for '--newest'"),
        (["demo", "--port", "70000"], "Invalid value for '--port'"),
        (["demo", "--speed", "0"], "Invalid value for '--speed'"),
        (["policy", "explain", "--who", "member", "--state", "idle"], "Missing option '--source'"),
        (["stop"], "Say what to stop: give exactly one of"),
        (["stop", "t-1", "--all"], "Say what to stop: give exactly one of"),
        (
            ["stop", "--thread", "checkout"],
            "checkout names no thread: give CHANNEL:TS, such as C0INCIDENT:1790000000",
        ),
        (["stop", "--all", "--as", "ann"], "ann is no Slack user id: give one such as U0123ABCD"),
    ],
)
def test_a_wrong_command_line_is_one_sentence_and_exit_code_2(cli: Run, arguments: list[str], says: str) -> None:
    assert sentence_of(cli(*arguments)).startswith(says)


def test_an_installation_that_is_not_there_is_named_and_not_made(cli: Run, tmp_path: Path) -> None:
    said = sentence_of(cli("turns", "list", "--data", tmp_path / "nowhere"))
    assert said == (
        f"There is no installation in {tmp_path / 'nowhere'}: it has no file pilothouse.db. "
        "Give the directory of one with --data DIR, as `pilothouse demo` prints it."
    )
    assert not (tmp_path / "nowhere").exists()


def test_a_database_that_is_newer_than_the_program_is_refused_and_left_alone(cli: Run, place: Path) -> None:
    with sqlite3.connect(place / "pilothouse.db") as db:
        db.execute("UPDATE alembic_version SET version_num = '9999'")
    assert sentence_of(cli("turns", "list", "--data", place)) == (
        "The database is at revision 9999, which this version of Pilothouse does not know (its newest is 0001): "
        "start the newer version, or restore a backup made before it."
    )


def test_a_database_without_tables_says_which_command_makes_them(cli: Run, place: Path) -> None:
    (place / "pilothouse.db").write_bytes(b"")
    assert "has no tables yet: run `pilothouse db upgrade` first." in sentence_of(
        cli("stop", "--all", "--data", place)
    )
    assert cli("db", "upgrade", "--data", place)[0] == 0
    assert json_of(cli("turns", "list", "--json", "--data", place)) == []


def test_a_file_that_is_no_database_is_one_sentence(cli: Run, place: Path) -> None:
    (place / "pilothouse.db").write_bytes(b"not a database, not at all" * 100)
    for command in (["turns", "list"], ["db", "upgrade"]):
        assert "is not an SQLite database: give the directory of" in sentence_of(cli(*command, "--data", place))


def test_without_data_the_configuration_names_the_database(
    cli: Run, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PILOTHOUSE_DATABASE_URL", f"sqlite+aiosqlite:///{place / 'pilothouse.db'}")
    assert json_of(cli("turns", "list", "--json")) == []
    monkeypatch.setenv("PILOTHOUSE_DATABASE_URL", "postgresql+asyncpg://pilot:hush@127.0.0.1:1/none")
    said = sentence_of(cli("turns", "list", "--json"))
    assert said.startswith("The database postgresql+asyncpg://pilot:***@127.0.0.1:1/none can't be used: ")
    assert sentence_of(cli("turns", "list", "--config", "none.toml")) == "There is no configuration file none.toml."


# -- real processes


def _run(*arguments: str, given: str = "", env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *arguments],
        cwd=REPOSITORY,
        input=given,
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        env={**os.environ, **(env or {})},
    )


@pytest.mark.process
def test_a_dash_reads_standard_input() -> None:
    done = _run("history", "check", "-", given="[]")
    assert (done.returncode, json.loads(done.stdout)["rule"]) == (1, "R01")


@pytest.mark.process
def test_text_that_the_terminal_can_not_encode_is_still_json() -> None:
    history = json.dumps([{"role": "user", "content": "刹车 \ud83d\ude00"}])
    done = _run("history", "repair", "-", given=history, env={"PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["messages"] == json.loads(history)


@pytest.mark.process
def test_when_nobody_reads_any_more_it_ends_without_a_word() -> None:
    process = subprocess.Popen(
        [*PROGRAM, "policy", "show", "--json"], cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    with process.stderr as err:
        assert err.read() == b""
    assert process.wait(60) == 141


@pytest.mark.process
async def test_ctrl_c_ends_it_with_130_and_without_a_word(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    process = await asyncio.create_subprocess_exec(
        *(*PROGRAM, "history", "check", str(pipe)),
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    writer: list[int] = []
    await until(lambda: _opened_by_its_reader(pipe, writer))
    process.send_signal(signal.SIGINT)
    # A signal between the opening and the reading of the pipe is seen when the reading ends.
    os.close(writer[0])
    out, err = await process.communicate()
    assert (process.returncode, out, err) == (130, b"", b"")


def _opened_by_its_reader(pipe: Path, writer: list[int]) -> bool:
    try:
        writer.append(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
    except OSError:
        return False
    return True
