"""Fixtures of the command line's tests; a module loads them as `pytest_plugins = ["tests.e2e.cli_fixtures"]`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bot.cli import main
from tests.support.cli import Run


@pytest.fixture
def place(sqlite_template: Path, tmp_path: Path) -> Path:
    """An embedded installation without turns."""
    directory = tmp_path / "installation"
    directory.mkdir()
    (directory / "pilothouse.db").write_bytes(sqlite_template.read_bytes())
    return directory


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs one command: exit code, stdout, stderr. No configuration of the machine that runs the tests is read."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(("PILOTHOUSE_", "SLACK_", "ANTHROPIC_"))]:
        monkeypatch.delenv(name)

    def run(*arguments: object) -> tuple[int, str, str]:
        code = main([str(argument) for argument in arguments])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run
