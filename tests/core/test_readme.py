"""The README is true: its picture is the table, its files exist, its commands are commands."""

from __future__ import annotations

import re
from pathlib import Path

from core.turn import picture

HOUSE = Path(__file__).parents[2]
README = (HOUSE / "README.md").read_text(encoding="utf-8")


def test_the_readme_draws_the_turn_as_the_table_has_it() -> None:
    assert f"```\n{picture()}\n```" in README


def test_every_picture_and_every_file_that_the_readme_names_is_there() -> None:
    named = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", README)
    named += re.findall(r"`((?:core|storage|bot|tests)/[\w./]+|manifest\.yml|pilothouse\.example\.toml)`", README)
    missing = [name for name in named if not (HOUSE / name).exists()]
    assert not missing


def test_the_targets_that_the_readme_names_are_in_the_makefile() -> None:
    makefile = (HOUSE / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"(?:^|`)make (\w+)", README, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
