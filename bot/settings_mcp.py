"""What an operator says about MCP servers: `[tools.mcp.NAME]`.

Secrets are not written into the file: a value of `env` or `headers` may hold `${NAME}`, which stands for that
variable of the environment or of `.env`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, model_validator

from core.errors import BadInput
from core.ports import Tier

SERVER_NAME = re.compile("[a-z0-9-]{1,32}")
VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
HEADER_NAME = re.compile("[A-Za-z0-9!#$%&'*+.^_`|~-]+")


def _server_name(name: str) -> str:
    if not SERVER_NAME.fullmatch(name):
        raise ValueError("a server's name is 1 to 32 of the characters a-z, 0-9 and -")
    return name


def _header_name(name: str) -> str:
    if not HEADER_NAME.fullmatch(name):
        raise ValueError("this is not the name of an HTTP header")
    return name


ServerName = Annotated[str, AfterValidator(_server_name)]
HeaderName = Annotated[str, AfterValidator(_header_name)]


class McpServerPart(BaseModel):
    """One MCP server: a command that is started (stdio), or an address (streamable HTTP). Times in seconds."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, SecretStr] = Field(default_factory=dict)
    url: str = ""
    headers: Mapping[HeaderName, SecretStr] = Field(default_factory=dict)
    tiers: Mapping[str, Tier] = Field(default_factory=dict)
    default_tier: Tier = Tier.WRITE
    allow: frozenset[str] | None = None
    timeout_s: float = Field(default=30.0, gt=0, le=600)
    start_s: float = Field(default=20.0, gt=0, le=25)
    max_tools: int = Field(default=64, gt=0, le=256)

    @model_validator(mode="after")
    def _one_way_to_it(self) -> Self:
        if bool(self.command) == bool(self.url):
            raise ValueError("it needs either a command or a url")
        if self.command and self.headers:
            raise ValueError("headers go with a url, not with a command")
        if self.url and (self.args or self.env):
            raise ValueError("args and env go with a command, not with a url")
        parts = urlsplit(self.url)
        if self.url and (parts.scheme not in ("http", "https") or not parts.hostname):
            raise ValueError("url must begin with http:// or https://")
        if parts.username or parts.password:
            raise ValueError("url must not carry a password: use headers")
        texts = (self.command, *self.args, *self.env, *_plain(self.env), *_plain(self.headers))
        if any("\0" in text for text in texts) or any("\n" in text or "\r" in text for text in _plain(self.headers)):
            raise ValueError("it holds a character that no command or header can carry")
        return self


SECRET_NAME = re.compile("token|key|secret|pass|credential|auth|cookie|dsn", re.IGNORECASE)
SHORTEST_SECRET = 8

McpServers = Mapping[ServerName, McpServerPart]


def _plain(values: Mapping[str, SecretStr]) -> list[str]:
    return [value.get_secret_value() for value in values.values()]


def secrets_of(part: McpServerPart) -> list[str]:
    """What must never be shown of what a server is given: headers, and variables whose name speaks of a secret."""
    words = [word for value in _plain(part.headers) for word in value.split()]
    named = [value.get_secret_value() for name, value in part.env.items() if SECRET_NAME.search(name)]
    return sorted({value for value in (*words, *named) if len(value) >= SHORTEST_SECRET}, key=len, reverse=True)


def with_secrets(values: Mapping[str, Any], variables: Mapping[str, str]) -> dict[str, Any]:
    """All settings, `${NAME}` in the `env` and `headers` of MCP servers filled in. Raises `BadInput`."""
    tools = values.get("tools")
    servers = tools.get("mcp") if isinstance(tools, Mapping) else None
    if not isinstance(tools, Mapping) or not isinstance(servers, Mapping):
        return dict(values)
    filled = {name: _filled(f"tools.mcp.{name}", part, variables) for name, part in servers.items()}
    return {**values, "tools": {**tools, "mcp": filled}}


def _filled(where: str, part: Any, variables: Mapping[str, str]) -> Any:
    if not isinstance(part, Mapping):
        return part
    named = {field: part[field] for field in ("env", "headers") if isinstance(part.get(field), Mapping)}
    return {
        **part,
        **{
            field: {key: _value(f"{where}.{field}.{key}", value, variables) for key, value in table.items()}
            for field, table in named.items()
        },
    }


def _value(where: str, value: Any, variables: Mapping[str, str]) -> Any:
    if not isinstance(value, str):
        return value
    missing = [name for name in VARIABLE.findall(value) if name not in variables]
    if missing:
        raise BadInput(f"{where} needs {' and '.join(missing)}, which must be set, in the environment or in .env.")
    return VARIABLE.sub(lambda found: variables[found[1]], value)
