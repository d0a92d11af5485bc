"""Where demos keep their data: each in a place of its own, and never over another one's."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.demo_data import LOCK, demo_data
from core.errors import BadInput


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_without_a_directory_a_demo_begins_anew(tmp_path: Path) -> None:
    with demo_data(None) as place:
        (place / "pilothouse.db").write_text("old")
        (place / "pages").mkdir()
    with demo_data(None) as place:
        assert place == Path(".pilothouse/demo")
        assert [file.name for file in place.iterdir()] == [LOCK]


def test_two_demos_at_once_have_two_places() -> None:
    with demo_data(None) as first:
        (first / "pilothouse.db").write_text("in use")
        with demo_data(None) as second:
            assert second == Path(".pilothouse/demo-2")
        assert (first / "pilothouse.db").read_text() == "in use"


def test_a_directory_that_was_given_is_kept_as_it_is_and_held_by_one_demo(tmp_path: Path) -> None:
    given = tmp_path / "a" / "b"
    with demo_data(given) as place:
        (place / "pilothouse.db").write_text("mine")
        with pytest.raises(BadInput, match="Another demo is at work in"), demo_data(given):
            pass
    with demo_data(given) as place:
        assert (place / "pilothouse.db").read_text() == "mine"


def test_what_is_no_directory_is_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for given in (file, file / "below"):
        with pytest.raises(BadInput, match=r"is no directory: give one with --data\.$"), demo_data(given):
            pass
