"""What an operator decides, read once into a frozen value.

From the weakest to the strongest: defaults, the file (`pilothouse.toml`, or `PILOTHOUSE_CONFIG`, or `--config`),
`.env`, the environment. Secrets belong into the last two; they never show in `repr`. The environment knows the usual
names (`PLAIN_NAMES`), and every setting as `PILOTHOUSE_LIMITS__MAX_STEPS`. What can't be used is one sentence that
names the setting. `pilothouse.example.toml` shows everything.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, Self, get_type_hints
from urllib.parse import urlsplit

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    create_model,
    model_validator,
)
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from bot.channels import Channel, Channels
from bot.settings_mcp import McpServers, with_secrets
from bot.settings_sources import Origin, environment, from_environment, merged, sentence, table
from core import stop_words
from core.errors import BadInput
from core.limits import Limits
from core.messages import Disposition, Level, Marker, SessionState, Source, Who
from core.steering import Override

CONFIG_VARIABLE = "PILOTHOUSE_CONFIG"
DEFAULT_CONFIG = Path("pilothouse.toml")
DEFAULT_CHANNEL = "default"

PLAIN_NAMES: Mapping[str, tuple[str, str]] = {
    "SLACK_BOT_TOKEN": ("slack", "bot_token"),
    "SLACK_APP_TOKEN": ("slack", "app_token"),
    "SLACK_SIGNING_SECRET": ("slack", "signing_secret"),
    "SLACK_API_BASE_URL": ("slack", "base_url"),
    "ANTHROPIC_API_KEY": ("model", "api_key"),
    "ANTHROPIC_BASE_URL": ("model", "base_url"),
    "PILOTHOUSE_MODEL": ("model", "name"),
    "PILOTHOUSE_DATA": ("storage", "data_dir"),
    "PILOTHOUSE_DATABASE_URL": ("storage", "database_url"),
    "PILOTHOUSE_REDIS_URL": ("storage", "redis_url"),
    "OTEL_EXPORTER_OTLP_ENDPOINT": ("telemetry", "otlp_endpoint"),
    "OTEL_EXPORTER_OTLP_HEADERS": ("telemetry", "otlp_headers"),
}

NOT_SECRET_YET = SecretStr("")
CHANNEL_LIMITS = (
    *("tool_timeout_s", "max_steps", "turn_s", "reserve_s", "rung_s", "patience_s", "quiet_s", "quiet_max_s"),
    *("output_chars", "max_output_tokens", "larger_output_tokens", "approval_s"),
)
"""The limits that a channel may have of its own; the others are the worker's."""


class Part(BaseModel):
    """One table of the file."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


def _http(address: Any) -> Any:
    if isinstance(address, str) and address and urlsplit(address).scheme not in ("http", "https"):
        raise ValueError("it must begin with http:// or https://")
    return address


Address = Annotated[str, BeforeValidator(_http)]
_TYPES = get_type_hints(Limits)
_POSITIVE = Field(default=None, gt=0)


def _limits_model(name: str, fields: tuple[str, ...]) -> type[Part]:
    """A table with these fields of `Limits`, each of them optional."""
    optional: dict[str, Any] = {field: (_TYPES[field] | None, _POSITIVE) for field in fields}
    return create_model(name, __base__=Part, **optional)


ChannelLimitsPart = _limits_model("ChannelLimitsPart", CHANNEL_LIMITS)
LimitsPart = _limits_model("LimitsPart", tuple(_TYPES))


class SlackPart(Part):
    """How we are connected to Slack. `base_url` ends in a slash."""

    mode: Literal["socket", "http"] = "socket"
    bot_token: SecretStr = NOT_SECRET_YET
    app_token: SecretStr = NOT_SECRET_YET
    signing_secret: SecretStr = NOT_SECRET_YET
    base_url: Address = "https://slack.com/api/"
    proxy: Address | None = None
    http_host: str = "127.0.0.1"
    http_port: int = Field(default=3000, ge=0, le=65535)
    native_stop: Level = Level.TASK
    agent_sessions: bool = True
    alert_bots: frozenset[str] = frozenset()
    known_hosts: frozenset[str] = frozenset()


class ModelPart(Part):
    """Which model, and where. `direct`: past the proxies of the environment."""

    name: str = Field(default="claude-sonnet-5-5", min_length=1)
    fallback: str | None = "claude-opus-5-5"
    api_key: SecretStr = NOT_SECRET_YET
    base_url: Address | None = None
    direct: bool = False


class StoragePart(Part):
    """Where things are kept. Without an address it is a SQLite file in `data_dir`."""

    data_dir: Path = Path(".pilothouse")
    database_url: SecretStr = NOT_SECRET_YET
    redis_url: SecretStr = NOT_SECRET_YET


class ToolsPart(Part):
    """The far ends of the tools; one that has no address is not offered to the model."""

    prometheus_url: Address | None = None
    prometheus_link: Address | None = None
    alertmanager_url: Address | None = None
    alertmanager_link: Address | None = None
    loki_url: Address | None = None
    loki_link: Address | None = None
    kubernetes_url: Address | None = None
    kubernetes_token: SecretStr = NOT_SECRET_YET
    kubernetes_verify: bool = True
    kubernetes_ca_file: Path | None = None
    kubernetes_kubeconfig: Path | None = None
    kubernetes_context: str | None = None
    kubernetes_in_cluster: bool = False
    kubernetes_namespaces: frozenset[str] = frozenset()
    kubernetes_max_replicas: int = Field(default=20, ge=1, le=1000)
    runbooks: Path | None = None
    runbooks_link: Address | None = None
    web_domains: frozenset[str] = frozenset()
    web_networks: tuple[str, ...] = ()
    browser: bool = False
    mcp: McpServers = Field(default_factory=dict)

    @model_validator(mode="after")
    def _one_identity(self) -> Self:
        """Kubernetes is reached in one way, and what belongs to another way is a mistake."""
        ways = {
            "kubernetes_url": (self.kubernetes_url, ("kubernetes_token", "kubernetes_verify", "kubernetes_ca_file")),
            "kubernetes_kubeconfig": (self.kubernetes_kubeconfig, ("kubernetes_context",)),
            "kubernetes_in_cluster": (self.kubernetes_in_cluster, ()),
        }
        chosen = [name for name, (value, _) in ways.items() if value]
        if len(chosen) > 1:
            raise ValueError(f"{' and '.join(chosen)} are different ways to the cluster, give one of them")
        for way, (_, belonging) in ways.items():
            stray = [name for name in belonging if name in self.model_fields_set and way not in chosen]
            if chosen and stray:
                raise ValueError(f"{stray[0]} belongs to {way} and not to {chosen[0]}")
        return self


class TelemetryPart(Part):
    """Where spans go, by OTLP over HTTP: `/v1/traces` is added to the endpoint. Without one none are made.

    `otlp_headers` is `name=value,name=value`, for receivers that want a key.
    """

    otlp_endpoint: Address | None = None
    otlp_headers: SecretStr = NOT_SECRET_YET


class StopWordsPart(Part):
    """Words that are added to the default lists."""

    step: frozenset[str] = frozenset()
    task: frozenset[str] = frozenset()
    weak: frozenset[str] = frozenset()
    polite: frozenset[str] = frozenset()


class PolicyRow(Part):
    """One row that a channel adds to the steering policy; what is left out matches everything."""

    to: Disposition
    source: Source | None = None
    marker: Marker | None = None
    who: Who | None = None
    state: SessionState | None = None


class ChannelPart(Part):
    """What is different in one channel. People are user ids (U..., W...) or user groups (S...)."""

    on_call: frozenset[str] = frozenset()
    approvers: frozenset[str] = frozenset()
    allowed_external: frozenset[str] = frozenset()
    preapproved: frozenset[str] = frozenset()
    policy: tuple[PolicyRow, ...] = ()
    limits: ChannelLimitsPart = ChannelLimitsPart()  # type: ignore[valid-type]


class Settings(BaseSettings):
    """Everything that an operator decides. Made by `Settings.read`, or from values by tests."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        env_prefix="PILOTHOUSE_",
        env_nested_delimiter="__",
        hide_input_in_errors=True,
    )

    slack: SlackPart = SlackPart()
    model: ModelPart = ModelPart()
    storage: StoragePart = StoragePart()
    tools: ToolsPart = ToolsPart()
    telemetry: TelemetryPart = TelemetryPart()
    stop: StopWordsPart = StopWordsPart()
    limits: LimitsPart = LimitsPart()  # type: ignore[valid-type]
    channels: Mapping[str, ChannelPart] = Field(default_factory=dict)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Values only: what they are put together from is `read`'s to say."""
        return (init_settings,)

    @classmethod
    def read(
        cls,
        config: Path | None = None,
        data: Path | None = None,
        environ: Mapping[str, str] = os.environ,
        env_file: Path = Path(".env"),
    ) -> Settings:
        """Read them. `data` stands above everything. Raises `BadInput` with one sentence."""
        variables = environment(environ, env_file)
        chosen = config or (Path(variables[CONFIG_VARIABLE]) if CONFIG_VARIABLE in variables else None)
        written = table(chosen or DEFAULT_CONFIG, required=chosen is not None)
        given = from_environment(cls, variables, PLAIN_NAMES)
        if data is not None:
            given = merged(given, {"storage": {"data_dir": data}})
        try:
            settings = cls(**with_secrets(merged(written, given), variables))
        except ValidationError as error:
            origin = Origin(chosen or DEFAULT_CONFIG, written, PLAIN_NAMES)
            raise BadInput(sentence(error, cls, origin)) from None
        settings.channels_config()
        return settings

    @property
    def database_url(self) -> str:
        given = self.storage.database_url.get_secret_value()
        return given or f"sqlite+aiosqlite:///{self.storage.data_dir / 'pilothouse.db'}"

    @property
    def redis_url(self) -> str:
        """Empty without Redis."""
        return self.storage.redis_url.get_secret_value()

    @property
    def alert_bots(self) -> frozenset[str]:
        return self.slack.alert_bots

    @property
    def known_hosts(self) -> frozenset[str]:
        """Hosts that answers may link to: the named ones, and those of the tools' links."""
        tools = self.tools
        links = (tools.prometheus_link, tools.alertmanager_link, tools.loki_link, tools.runbooks_link)
        hosts = (urlsplit(link).hostname for link in links if link)
        return self.slack.known_hosts | {host for host in hosts if host}

    def stop_words(self) -> stop_words.StopWords:
        """The default list and what is added here."""
        return stop_words.DEFAULT.plus(self.stop.step, self.stop.task, self.stop.weak, self.stop.polite)

    def channels_config(self, limits: Limits | None = None) -> Channels:
        """Rights, limits and policy rows by channel. `limits` stand in for the general ones. Raises `BadInput`."""
        general = limits or _checked(Limits(**_set(self.limits)), "limits")
        default = self.channels.get(DEFAULT_CHANNEL, ChannelPart())
        named = {
            name: _channel(f"channels.{name}", part, general)
            for name, part in self.channels.items()
            if name != DEFAULT_CHANNEL
        }
        return Channels(_channel("channels.default", default, general), named, alert_bots=self.alert_bots)

    def check_complete(self) -> None:
        """Raises `BadInput` when something that serving needs was not given."""
        needed = {
            "SLACK_BOT_TOKEN": (self.slack.bot_token, "it begins with xoxb-"),
            "ANTHROPIC_API_KEY": (self.model.api_key, "it begins with sk-ant-"),
        }
        if self.slack.mode == "socket":
            needed["SLACK_APP_TOKEN"] = (self.slack.app_token, "it begins with xapp-")
        else:
            needed["SLACK_SIGNING_SECRET"] = (self.slack.signing_secret, "it is under Basic Information of the app")
        missing = [f"{name} ({hint})" for name, (value, hint) in needed.items() if not value.get_secret_value()]
        if missing:
            raise BadInput(f"{' and '.join(missing)} must be set, in the environment or in .env.")


class TheWorkspace(Protocol):
    """What the demo's Slack knows of itself."""

    bot_token: str
    app_token: str
    signing_secret: str


class TheWorld(Protocol):
    """Where the demo's incident is to be seen."""

    token: str

    @property
    def prometheus_url(self) -> str: ...
    @property
    def alertmanager_url(self) -> str: ...
    @property
    def loki_url(self) -> str: ...
    @property
    def kubernetes_url(self) -> str: ...
    @property
    def runbooks(self) -> Path: ...


def demo_settings(
    *,
    data: Path,
    slack_url: str,
    workspace: TheWorkspace,
    world: TheWorld,
    model_url: str | None = None,
    api_key: str = "",
    model_name: str = "",
) -> Settings:
    """Settings whose far ends are the demo's. With `model_url` the model is a local one, and the key is made up."""
    return Settings(
        slack=SlackPart(
            bot_token=SecretStr(workspace.bot_token),
            app_token=SecretStr(workspace.app_token),
            signing_secret=SecretStr(workspace.signing_secret),
            base_url=slack_url,
        ),
        model=ModelPart(
            name=model_name or ModelPart().name,
            api_key=SecretStr(api_key or "local"),
            base_url=model_url,
            direct=model_url is not None,
        ),
        storage=StoragePart(data_dir=data),
        tools=ToolsPart(
            prometheus_url=world.prometheus_url,
            alertmanager_url=world.alertmanager_url,
            loki_url=world.loki_url,
            kubernetes_url=world.kubernetes_url,
            kubernetes_token=SecretStr(world.token),
            runbooks=world.runbooks,
        ),
    )


def _channel(name: str, part: ChannelPart, general: Limits) -> Channel:
    try:
        overrides = [Override(**dict(row)) for row in part.policy]
    except BadInput as error:
        raise BadInput(f"In {name}.policy: {error}") from error
    return Channel(
        on_call=part.on_call,
        approvers=part.approvers,
        external=part.allowed_external,
        preapproved=part.preapproved,
        overrides=overrides,
        limits=_checked(replace(general, **_set(part.limits)), f"{name}.limits"),
    )


def _set(part: Part) -> dict[str, Any]:
    """What was given in a table."""
    return {name: value for name, value in part.model_dump().items() if value is not None}


def _checked(limits: Limits, where: str) -> Limits:
    """Limits that make sense together."""
    value = asdict(limits)
    for smaller, larger in (
        ("reserve_s", "turn_s"),
        ("quiet_s", "quiet_max_s"),
        ("max_output_tokens", "larger_output_tokens"),
        ("condense_to_tokens", "condense_at_tokens"),
        ("drain_stream_margin_s", "drain_s"),
    ):
        if value[smaller] > value[larger]:
            raise BadInput(f"{where}.{smaller} ({value[smaller]}) must not be above {larger} ({value[larger]}).")
    if limits.renew_s + limits.lease_margin_s >= limits.lease_s:
        raise BadInput(f"{where}.lease_s ({limits.lease_s}) must be above renew_s and lease_margin_s together.")
    return limits
