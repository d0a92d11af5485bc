"""The demo's configuration, written as a file, reads back as what it was."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from bot.demo_config import write_config
from bot.playground.slack import Workspace
from bot.settings import ChannelPart, ModelPart, Settings, ToolsPart, demo_settings
from core.messages import Level


@dataclass
class Elsewhere:
    """Where the demo's incident would be."""

    token: str = 'tok"en'
    prometheus_url: str = "http://127.0.0.1:1"
    alertmanager_url: str = "http://127.0.0.1:2"
    loki_url: str = "http://127.0.0.1:3"
    kubernetes_url: str = "http://127.0.0.1:4"
    runbooks: Path = Path("/srv/runbooks")


def made(data: Path, **changes: Any) -> Settings:
    settings = demo_settings(
        data=data,
        slack_url="http://127.0.0.1:5/api/",
        workspace=Workspace(),
        world=Elsewhere(),
        model_url="http://127.0.0.1:6",
        model_name="scripted-model",
    )
    people = frozenset({"U0ONCALL", "S0ONCALL"})
    channels = {"default": ChannelPart(on_call=people, approvers=people), "C0 with.dot": ChannelPart(on_call=people)}
    return settings.model_copy(update={"channels": channels, **changes})


def back(path: Path) -> Settings:
    return Settings.read(path, environ={}, env_file=path.parent / "none")


def test_everything_reads_back(tmp_path: Path) -> None:
    data = tmp_path / 'a "place" 刹车'
    data.mkdir()
    settings = made(data)
    settings = settings.model_copy(
        update={"slack": settings.slack.model_copy(update={"native_stop": Level.STEP, "agent_sessions": False})}
    )
    path = write_config(settings, data, real_model=False)
    assert back(path) == settings
    assert path.stat().st_mode & 0o777 == 0o600


def test_the_key_of_a_real_model_is_not_written(tmp_path: Path) -> None:
    model = ModelPart(api_key=SecretStr("sk-ant-very-real"), name="claude-opus-5-5")
    path = write_config(made(tmp_path, model=model), tmp_path, real_model=True)
    assert "sk-ant" not in path.read_text() and back(path).model.name == "claude-opus-5-5"


def test_the_demo_writes_over_what_an_earlier_one_left(tmp_path: Path) -> None:
    write_config(made(tmp_path, tools=ToolsPart(web_domains=frozenset({"example.com"}))), tmp_path, real_model=False)
    path = write_config(made(tmp_path), tmp_path, real_model=False)
    assert not back(path).tools.web_domains
