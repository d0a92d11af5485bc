"""`pilothouse history`: check and repair a conversation in a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import Run, json_of, sentence_of

pytest_plugins = ["tests.e2e.cli_fixtures"]


GOOD = [{"role": "user", "content": "why 5xx?"}]
LOST = [
    {"role": "user", "content": "why 5xx?"},
    {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "loki_query", "input": {}}]},
    {"role": "user", "content": "and now?"},
]


def _file(directory: Path, value: Any) -> Path:
    file = directory / "history.json"
    file.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return file


@pytest.mark.parametrize("history", [GOOD, {"messages": GOOD}, {"messages": GOOD, "tools": []}])
def test_history_check_of_a_valid_conversation_prints_nothing_and_exits_0(
    cli: Run, tmp_path: Path, history: Any
) -> None:
    assert cli("history", "check", _file(tmp_path, history)) == (0, "", "")


def test_history_check_prints_one_json_problem_a_line_and_exits_1(cli: Run, tmp_path: Path) -> None:
    code, out, err = cli("history", "check", _file(tmp_path, LOST))
    assert (code, err) == (1, "")
    problems = [json.loads(line) for line in out.splitlines()]
    assert problems
    assert all(set(problem) == {"rule", "path", "problem"} for problem in problems)
    assert problems[0]["rule"] == "R20"


def test_history_check_knows_what_only_the_first_party_joins(cli: Run, tmp_path: Path) -> None:
    file = _file(tmp_path, [*GOOD, {"role": "user", "content": "hello?"}])
    assert cli("history", "check", file)[0] == 1
    assert cli("history", "check", file, "--profile", "first-party")[0] == 0


def test_history_check_takes_the_tools_from_a_file(cli: Run, tmp_path: Path) -> None:
    answered = [*LOST[:2], {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1"}]}]
    file, tools = _file(tmp_path, answered), tmp_path / "tools.json"
    tools.write_text("[]")
    assert cli("history", "check", file)[0] == 0
    assert cli("history", "check", file, "--tools", tools)[0] == 1
    tools.write_text(json.dumps({"tools": [{"name": "loki_query", "input_schema": {"type": "object"}}]}))
    assert cli("history", "check", file, "--tools", tools)[0] == 0
    tools.write_text('{"tool": []}')
    assert "holds no tools: give a JSON list" in sentence_of(cli("history", "check", file, "--tools", tools))


def test_history_repair_prints_messages_that_check_accepts_and_every_repair(cli: Run, tmp_path: Path) -> None:
    mended = json_of(cli("history", "repair", _file(tmp_path, LOST)))
    assert mended["repairs"]
    assert all(set(repair) == {"rule", "path", "what"} for repair in mended["repairs"])
    assert cli("history", "check", _file(tmp_path, mended["messages"])) == (0, "", "")
    assert json_of(cli("history", "repair", _file(tmp_path, GOOD))) == {"messages": GOOD, "repairs": []}


def test_history_repair_says_why_where_no_honest_repair_exists(cli: Run, tmp_path: Path) -> None:
    said = sentence_of(cli("history", "repair", _file(tmp_path, [])))
    assert said == "The history holds no messages: there is nothing to answer."


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "The file is not JSON"),
        ("3", "The file holds no conversation"),
        ('{"history": []}', "The file holds no conversation"),
        ("[" * 100_000, "The file is nested too deeply"),
    ],
)
def test_a_file_that_holds_no_conversation_is_one_sentence(cli: Run, tmp_path: Path, content: str, says: str) -> None:
    for command in ("check", "repair"):
        assert sentence_of(cli("history", command, _file(tmp_path, content))).startswith(says)


def test_a_file_that_is_not_there_is_one_sentence(cli: Run, tmp_path: Path) -> None:
    said = sentence_of(cli("history", "check", tmp_path / "none.json"))
    assert said.endswith("(no such file or directory): give the path of a JSON file, or - for stdin.")
