"""Settings are read once; what can't be used is one sentence that names it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from bot.settings import ChannelPart, ModelPart, Settings, SlackPart, demo_settings
from bot.settings_sources import ANY, known_paths
from core.errors import BadInput
from core.limits import Limits
from core.messages import Disposition, Level, Marker, Rights, Source, Who
from core.stop_words import DEFAULT

EXAMPLE = Path(__file__).parents[2] / "pilothouse.example.toml"


class Home:
    """A folder to read settings in."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "pilothouse.toml"
        self.env_file = folder / ".env"

    def read(self, text: str = "", *, env: Mapping[str, str] | None = None, data: Path | None = None) -> Settings:
        self.file.write_text(text, encoding="utf-8")
        return Settings.read(self.file, data, environ=env or {}, env_file=self.env_file)

    def refused(self, text: str = "", *, env: Mapping[str, str] | None = None) -> str:
        with pytest.raises(BadInput) as refused:
            self.read(text, env=env)
        return str(refused.value).replace(str(self.file), "FILE")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def test_without_anything_the_defaults_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = Settings.read(environ={})
    assert settings.database_url == "sqlite+aiosqlite:///.pilothouse/pilothouse.db"
    assert settings.redis_url == ""
    assert settings.model.name == "claude-sonnet-5-5"
    assert settings.slack.native_stop is Level.TASK
    assert settings.stop_words() == DEFAULT
    assert settings.channels_config().limits("C1") == Limits()


def test_the_environment_is_above_dotenv_and_dotenv_above_the_file(home: Home) -> None:
    home.env_file.write_text("SLACK_BOT_TOKEN=xoxb-dotenv\nSLACK_APP_TOKEN=xapp-dotenv\n")
    text = '[slack]\nbot_token = "xoxb-file"\napp_token = "xapp-file"\nsigning_secret = "file"\n'
    slack = home.read(text, env={"SLACK_BOT_TOKEN": "xoxb-env", "SLACK_SIGNING_SECRET": ""}).slack
    secrets = (slack.bot_token, slack.app_token, slack.signing_secret)
    assert [secret.get_secret_value() for secret in secrets] == ["xoxb-env", "xapp-dotenv", "file"]


def test_every_setting_can_come_from_the_environment(home: Home) -> None:
    env = {
        "PILOTHOUSE_LIMITS__MAX_STEPS": "5",
        "PILOTHOUSE_SLACK__ALERT_BOTS": '["B1", "B2"]',
        "PILOTHOUSE_SLACK__NATIVE_STOP": "step",
        "PILOTHOUSE_MODEL": "claude-opus-5-5",
        "PILOTHOUSE_DATABASE_URL": "postgresql+asyncpg://app:pw@db/x",
        "PILOTHOUSE_CONFIG": "unused, a file was named",
        "UNRELATED": "x",
    }
    settings = home.read("[limits]\nmax_steps = 7\nturn_s = 60\n", env=env)
    assert settings.channels_config().limits("C1") == Limits(max_steps=5, turn_s=60)
    assert settings.alert_bots == {"B1", "B2"}
    assert settings.slack.native_stop is Level.STEP
    assert settings.model.name == "claude-opus-5-5"
    assert settings.database_url == "postgresql+asyncpg://app:pw@db/x"


def test_the_environment_can_name_the_file(home: Home) -> None:
    home.file.write_text("[limits]\nmax_steps = 3\n")
    settings = Settings.read(environ={"PILOTHOUSE_CONFIG": str(home.file)}, env_file=home.env_file)
    assert settings.channels_config().limits("C1").max_steps == 3


def test_the_data_folder_of_the_command_line_stands_above_everything(home: Home) -> None:
    settings = home.read('[storage]\ndata_dir = "a"\n', env={"PILOTHOUSE_DATA": "b"}, data=Path("/c"))
    assert settings.database_url == "sqlite+aiosqlite:////c/pilothouse.db"


def test_secrets_do_not_show(home: Home) -> None:
    env = {
        "SLACK_BOT_TOKEN": "xoxb-hidden",
        "ANTHROPIC_API_KEY": "sk-hidden",
        "PILOTHOUSE_DATABASE_URL": "postgresql+asyncpg://app:hidden@db/x",
        "PILOTHOUSE_TOOLS__KUBERNETES_TOKEN": "hidden",
    }
    settings = home.read(env=env)
    assert "hidden" not in f"{settings!r} {settings} {settings.model_dump()}"


def test_settings_can_not_be_changed(home: Home) -> None:
    settings = home.read()
    with pytest.raises(ValidationError, match="frozen"):
        settings.model = ModelPart()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[slack]\nbot_tokn = 'x'\n", "FILE: there is no setting slack.bot_tokn; did you mean slack.bot_token?"),
        ("[slak]\nmode = 'http'\n", "FILE: there is no setting slak; did you mean slack?"),
        ("max_steps = 3\n", "FILE: there is no setting max_steps; did you mean limits.max_steps?"),
        ("[model]\nredis_url = 'x'\n", "FILE: there is no setting model.redis_url; did you mean storage.redis_url?"),
        ("[weather]\n", "FILE: there is no setting weather."),
        (
            "[channels.C1]\naprovers = ['U1']\n",
            "FILE: there is no setting channels.C1.aprovers; did you mean channels.C1.approvers?",
        ),
        (
            "[channels.C1.limits]\nlease_s = 5\n",
            "FILE: there is no setting channels.C1.limits.lease_s; did you mean limits.lease_s?",
        ),
        ("[limits]\nmax_steps = 'many'\n", "FILE: limits.max_steps can't be used: it should be a valid integer"),
        ("[limits]\nturn_s = 0\n", "FILE: limits.turn_s can't be used: it should be greater than 0."),
        ("[slack]\nmode = 'carrier'\n", "FILE: slack.mode can't be used: it should be 'socket' or 'http'."),
        ("[tools]\nloki_url = 'loki:3100'\n", "FILE: tools.loki_url can't be used: it must begin with http://"),
        (
            "[tools]\nkubernetes_kubeconfig = 'k'\nkubernetes_in_cluster = true\n",
            "FILE: tools can't be used: kubernetes_kubeconfig and kubernetes_in_cluster are different ways to the "
            "cluster, give one of them.",
        ),
        (
            "[tools]\nkubernetes_in_cluster = true\nkubernetes_context = 'production'\n",
            "FILE: tools can't be used: kubernetes_context belongs to kubernetes_kubeconfig and not to kubernetes_",
        ),
        (
            "[tools]\nkubernetes_in_cluster = true\nkubernetes_token = 't'\n",
            "FILE: tools can't be used: kubernetes_token belongs to kubernetes_url and not to kubernetes_in_cluster.",
        ),
        (
            "[tools]\nkubernetes_max_replicas = 0\n",
            "FILE: tools.kubernetes_max_replicas can't be used: it should be greater than or equal to 1.",
        ),
        ("[slack\n", "FILE is not valid TOML: "),
        ("[limits]\nreserve_s = 200\n", "limits.reserve_s (200.0) must not be above turn_s (120.0)."),
        ("[limits]\nlease_s = 8\n", "limits.lease_s (8.0) must be above renew_s and lease_margin_s together."),
        (
            "[channels.C1.limits]\nturn_s = 20\n",
            "channels.C1.limits.reserve_s (30.0) must not be above turn_s (20.0).",
        ),
        (
            "[[channels.C1.policy]]\nmarker = 'cancel'\nto = 'note'\n",
            "In channels.C1.policy: A channel can't redefine stop words",
        ),
    ],
)
def test_what_can_not_be_used_is_one_sentence(home: Home, text: str, said: str) -> None:
    refusal = home.refused(text)
    assert refusal.startswith(said)
    assert "\n" not in refusal


def test_a_wrong_value_in_the_environment_is_told_without_the_value(home: Home) -> None:
    refusal = home.refused(env={"PILOTHOUSE_SLACK__HTTP_PORT": "hidden"})
    assert refusal.startswith("The environment: slack.http_port can't be used: it should be a valid integer")
    assert "hidden" not in refusal


def test_a_value_that_should_be_a_list_is_one_sentence(home: Home) -> None:
    refusal = home.refused(env={"PILOTHOUSE_SLACK__ALERT_BOTS": "B1,B2"})
    assert (
        refusal.startswith("The environment: ")
        and "look at PILOTHOUSE_SLACK__ALERT_BOTS." in refusal
        and "\n" not in refusal
    )


def test_a_file_that_was_named_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"There is no configuration file .*missing\.toml"):
        Settings.read(tmp_path / "missing.toml", environ={})
    with pytest.raises(BadInput, match="can't be read"):
        Settings.read(tmp_path, environ={})


def test_a_file_that_is_not_text_is_one_sentence(home: Home) -> None:
    home.file.write_bytes(b"\xff\xfe")
    with pytest.raises(BadInput, match="is not UTF-8 text"):
        Settings.read(home.file, environ={}, env_file=home.env_file)


def test_a_channel_has_its_own_people_limits_and_rows(home: Home) -> None:
    text = """
        [limits]
        turn_s = 90
        [channels.default]
        approvers = ["S1"]
        [channels.C1]
        on_call = ["U1"]
        approvers = ["U2"]
        allowed_external = ["U9"]
        [channels.C1.limits]
        max_steps = 12
        [[channels.C1.policy]]
        source = "reply"
        marker = "none"
        to = "steer"
    """
    channels = home.read(text).channels_config()
    assert channels.limits("C1") == Limits(turn_s=90, max_steps=12)
    assert channels.limits("C2") == Limits(turn_s=90)
    assert channels.rights("C1", "U2", Who.MEMBER) == (Rights(True, True, True, True), False)
    assert channels.rights("C1", "U9", Who.EXTERNAL) == (Rights(True, True, True, False), False)
    assert channels.rights("C2", "U9", Who.EXTERNAL) == (Rights(), False)
    assert channels.groups() == {"S1"}
    [row] = channels.of("C1").overrides
    assert (row.to, row.source, row.marker) == (Disposition.STEER, Source.REPLY, Marker.NONE)


def test_stop_words_are_added_to_the_default_ones(home: Home) -> None:
    words = home.read('[stop]\nstep = ["freeze"]\n').stop_words()
    assert words.step == DEFAULT.step | {"freeze"}
    assert words.task == DEFAULT.task


def test_links_of_tools_are_known_hosts(home: Home) -> None:
    text = '[slack]\nknown_hosts = ["wiki.example.com"]\n[tools]\nloki_link = "https://grafana.example.com:3000/x"\n'
    text += 'alertmanager_link = "https://alerts.example.com"\n'
    assert home.read(text).known_hosts == {"wiki.example.com", "grafana.example.com", "alerts.example.com"}


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        (
            "socket",
            "SLACK_BOT_TOKEN (it begins with xoxb-) and ANTHROPIC_API_KEY (it begins with sk-ant-) and SLACK_APP",
        ),
        (
            "http",
            "SLACK_BOT_TOKEN (it begins with xoxb-) and ANTHROPIC_API_KEY (it begins with sk-ant-) and SLACK_SIGN",
        ),
    ],
)
def test_serving_names_what_is_missing(home: Home, mode: str, said: str) -> None:
    with pytest.raises(BadInput, match=re.escape(said)):
        home.read(env={"PILOTHOUSE_SLACK__MODE": mode}).check_complete()


def test_serving_needs_no_more_than_it_says(home: Home) -> None:
    env = {"SLACK_BOT_TOKEN": "xoxb-1", "SLACK_APP_TOKEN": "xapp-1", "ANTHROPIC_API_KEY": "sk-ant-1"}
    home.read(env=env).check_complete()


WAYS_TO_KUBERNETES = {
    "url": ("kubernetes_url", "kubernetes_token", "kubernetes_verify", "kubernetes_ca_file"),
    "kubeconfig": ("kubernetes_kubeconfig", "kubernetes_context"),
    "in_cluster": ("kubernetes_in_cluster",),
}


def _uncommented() -> dict[str, Any]:
    return tomllib.loads(re.sub(r"^#(?=[\w\[])", "", EXAMPLE.read_text(encoding="utf-8"), flags=re.MULTILINE))


def _leaves(value: Any) -> set[tuple[str, ...]]:
    if isinstance(value, dict) and value:
        return {(key, *rest) for key, inner in value.items() for rest in _leaves(inner)}
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return {(ANY, *rest) for inner in value for rest in _leaves(inner)}
    return {()}


def test_the_example_as_it_is_changes_nothing(home: Home) -> None:
    settings = home.read(EXAMPLE.read_text(encoding="utf-8"))
    assert settings.channels_config().limits("C1") == Limits()
    assert settings.slack == SlackPart() and settings.model == ModelPart()
    assert settings.channels == {"C0123ABCD": ChannelPart()}


def test_the_example_shows_every_setting_and_each_can_be_used(tmp_path: Path) -> None:
    shown = _uncommented()
    known = known_paths(Settings)
    own = ("C0123ABCD", "github", "wiki")
    named = {tuple(ANY if step in own else step for step in path) for path in _leaves(shown)}
    assert {path[:4] if path[:4] in known else path for path in named} == known
    for way in WAYS_TO_KUBERNETES:
        others = [name for other in WAYS_TO_KUBERNETES if other != way for name in WAYS_TO_KUBERNETES[other]]
        tools = {name: value for name, value in shown["tools"].items() if name not in others}
        Settings(**{**shown, "tools": tools}).channels_config()


def test_the_example_shows_the_default_limits() -> None:
    limits = _uncommented()["limits"]
    assert Limits(**limits) == Limits()
    assert set(limits) == {field.name for field in fields(Limits)}


def test_the_demo_needs_no_file_and_no_key(tmp_path: Path) -> None:
    class Far:
        bot_token = "xoxb-local"
        app_token = "xapp-local"
        signing_secret = "s"
        token = "t"
        prometheus_url = alertmanager_url = loki_url = kubernetes_url = "http://127.0.0.1:1/x"
        runbooks = tmp_path

    settings = demo_settings(
        data=tmp_path,
        slack_url="http://127.0.0.1:1/api/",
        workspace=Far(),
        world=Far(),
        model_url="http://127.0.0.1:2",
    )
    settings.check_complete()
    assert settings.model.direct
    assert settings.database_url.startswith(f"sqlite+aiosqlite:///{tmp_path}")
