"""What an operator writes about MCP servers, and the sentence for what can't be used."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from bot.settings import Settings
from core.errors import BadInput
from core.ports import Tier


def read(folder: Path, text: str, env: Mapping[str, str] | None = None) -> Settings:
    file = folder / "pilothouse.toml"
    file.write_text(text, encoding="utf-8")
    return Settings.read(file, environ=env or {}, env_file=folder / ".env")


def test_a_server_is_a_command_or_an_address_and_its_secrets_come_from_the_environment(tmp_path: Path) -> None:
    text = """
[tools.mcp.git-hub]
command = "github-mcp"
args = ["stdio"]
env = { GITHUB_TOKEN = "${GH_TOKEN}", PAGE = "5" }
tiers = { list_issues = "read", post = "external" }
allow = ["list_issues", "post"]

[tools.mcp.wiki]
url = "https://wiki.example.com/mcp"
headers = { Authorization = "Bearer ${WIKI}-${GH_TOKEN}" }
default_tier = "read"
"""
    (tmp_path / ".env").write_text("WIKI=w1\n")
    settings = read(tmp_path, text, {"GH_TOKEN": "gh1"})
    hub, wiki = settings.tools.mcp["git-hub"], settings.tools.mcp["wiki"]
    assert [value.get_secret_value() for value in hub.env.values()] == ["gh1", "5"]
    assert (hub.default_tier, hub.tiers["list_issues"], hub.tiers["post"]) == (Tier.WRITE, Tier.READ, Tier.EXTERNAL)
    assert wiki.headers["Authorization"].get_secret_value() == "Bearer w1-gh1"
    assert (hub.timeout_s, hub.start_s, hub.max_tools, wiki.allow) == (30, 20, 64, None)
    assert "gh1" not in repr(settings) and "w1" not in repr(settings)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            '[tools.mcp.Git_Hub]\ncommand = "x"',
            "FILE: tools.mcp.Git_Hub can't be used: a server's name is 1 to 32 of the characters a-z, 0-9 and -.",
        ),
        ("[tools.mcp.a]", "FILE: tools.mcp.a can't be used: it needs either a command or a url."),
        (
            '[tools.mcp.a]\ncommand = "x"\nurl = "http://y"',
            "FILE: tools.mcp.a can't be used: it needs either a command or a url.",
        ),
        (
            '[tools.mcp.a]\nurl = "ftp://y"',
            "FILE: tools.mcp.a can't be used: url must begin with http:// or https://.",
        ),
        (
            '[tools.mcp.a]\nurl = "https://me:pw@y"',
            "FILE: tools.mcp.a can't be used: url must not carry a password: use headers.",
        ),
        (
            '[tools.mcp.a]\nurl = "http://y"\nargs = ["x"]',
            "FILE: tools.mcp.a can't be used: args and env go with a command, not with a url.",
        ),
        (
            '[tools.mcp.a]\ncommand = "x"\nheaders = { A = "b" }',
            "FILE: tools.mcp.a can't be used: headers go with a url, not with a command.",
        ),
        (
            '[tools.mcp.a]\nurl = "http://y"\nheaders = { "A b" = "c" }',
            "FILE: tools.mcp.a.headers.A b can't be used: this is not the name of an HTTP header.",
        ),
        (
            '[tools.mcp.a]\nurl = "http://y"\nheaders = { A = "b\\nC: d" }',
            "FILE: tools.mcp.a can't be used: it holds a character that no command or header can carry.",
        ),
        (
            '[tools.mcp.a]\ncommand = "x"\ntiers = { t = "admin" }',
            "FILE: tools.mcp.a.tiers.t can't be used: it should be 'read', 'write' or 'external'.",
        ),
        (
            '[tools.mcp.a]\ncommand = "x"\ntimeout = 3',
            "FILE: there is no setting tools.mcp.a.timeout; did you mean tools.mcp.a.timeout_s?",
        ),
        (
            '[tools.mcp.a]\ncommand = "x"\nenv = { T = "${NOT_THERE}" }',
            "tools.mcp.a.env.T needs NOT_THERE, which must be set, in the environment or in .env.",
        ),
    ],
)
def test_what_cannot_be_used_is_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(BadInput) as refused:
        read(tmp_path, text)
    assert str(refused.value).replace(str(tmp_path / "pilothouse.toml"), "FILE") == sentence
