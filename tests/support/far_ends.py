"""The far ends of a whole installation, and its configuration as a file and an environment."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bot.app import examine
from bot.playground.model import ScriptedModel
from bot.playground.slack import LocalSlack, Workspace
from bot.playground.world import World
from bot.settings import Settings
from tests.support.cli import REPOSITORY

CHANNELS = """
[channels.default]
on_call = ["S0ONCALL"]
approvers = ["U0ONCALL"]
"""


@dataclass
class Installation:
    """A configuration in `place` whose far ends are here. `variables` stand above the usual ones."""

    slack: LocalSlack
    model: ScriptedModel
    world: World
    place: Path
    variables: dict[str, str] = field(default_factory=dict)
    channels: str = CHANNELS

    @property
    def config(self) -> Path:
        path = self.place / "pilothouse.toml"
        path.write_text(
            f"""
[model]
direct = true
[tools]
prometheus_url = "{self.world.prometheus_url}"
alertmanager_url = "{self.world.alertmanager_url}"
loki_url = "{self.world.loki_url}"
kubernetes_url = "{self.world.kubernetes_url}"
{self.channels}"""
        )
        return path

    @property
    def environment(self) -> Mapping[str, str]:
        """What the configuration takes from the environment; an empty variable is one that is not set."""
        return {
            "SLACK_BOT_TOKEN": self.slack.workspace.bot_token,
            "SLACK_APP_TOKEN": self.slack.workspace.app_token,
            "SLACK_API_BASE_URL": self.slack.api_url,
            "ANTHROPIC_API_KEY": "sk-ant-local",
            "ANTHROPIC_BASE_URL": self.model.url,
            "PILOTHOUSE_DATA": str(self.place),
            "PILOTHOUSE_TOOLS__KUBERNETES_TOKEN": self.world.token,
            **self.variables,
        }

    @property
    def settings(self) -> Settings:
        return Settings.read(self.config, environ=self.environment, env_file=self.place / "none")

    @property
    def process_environment(self) -> Mapping[str, str]:
        """For a process of its own: nothing of the machine's own configuration is in it."""
        foreign = ("PILOTHOUSE", "ANTHROPIC", "SLACK")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        return {**kept, **self.environment, "PYTHONPATH": str(REPOSITORY)}


@asynccontextmanager
async def installation(
    place: Path,
    *,
    workspace: Workspace | None = None,
    slack: Mapping[str, Any] | None = None,
    model: Mapping[str, Any] | None = None,
) -> AsyncIterator[Installation]:
    """Start the far ends; `slack` and `model` are more arguments for theirs."""
    os.makedirs(place, exist_ok=True)
    async with (
        LocalSlack(workspace, **(slack or {})) as local,
        ScriptedModel([], api_key="sk-ant-local", **(model or {})) as scripted,
        World() as world,
    ):
        yield Installation(local, scripted, world, place)


@pytest.fixture
async def here(tmp_path: Path, sqlite_template: Path) -> AsyncIterator[Installation]:
    """An installation in which everything is well."""
    async with installation(tmp_path / "here") as made:
        shutil.copy(sqlite_template, made.place / "pilothouse.db")
        yield made


async def told(here: Installation) -> dict[str, tuple[str, str]]:
    """What the doctor finds, by check: how it is, and the sentence."""
    return {one.check: (one.health.value, one.says) for one in await examine(here.settings)}
