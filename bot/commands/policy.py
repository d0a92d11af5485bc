"""`pilothouse policy`: the table that decides what becomes of a message, and why it decided so in one case.

Without `--channel` and `--config` the policy is the built-in one, and no configuration is read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from bot.commands.lazy import load
from bot.commands.output import AsJson, printable, write, write_json
from bot.commands.tables import write_table
from core.errors import BadInput
from core.messages import Marker, Rights, SessionState, Source, Who
from core.notices import Notice, say
from core.steering import Case, Explanation, Override, case_of, explain, is_assent, marker_of, rows
from core.stop_text import without_mention
from core.stop_words import DEFAULT, StopWords

app = typer.Typer(help="What becomes of a message, and why.")

BOT = "U0PILOT"
"""Stands for the bot in `--text`; people write `@pilot`."""
_TYPED_MENTION = re.compile(r"(?<![\w<@])@pilot(?:house)?\b", re.IGNORECASE)
_NO_WORDS = frozenset({Source.BUTTON, Source.REACTION, Source.NATIVE_STOP, Source.DELETE})

WHO_MAY = {
    "ask": "members of this workspace (not guests)",
    "steer": "members of this workspace (not guests)",
    "stop": "members of this workspace (not guests)",
    "approve": "the people whom the configuration names",
}

Channel = Annotated[
    str | None,
    typer.Option("--channel", metavar="ID", help="With the rows that this channel adds.", show_default=False),
]
Config = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="The configuration to read.", show_default=False),
]


@dataclass(frozen=True, slots=True)
class Configured:
    """What one channel's configuration says about the policy."""

    overrides: Sequence[Override] = ()
    who_may: Mapping[str, str] = field(default_factory=lambda: WHO_MAY)
    words: StopWords = DEFAULT


def _configured(channel: str | None, config: Path | None) -> Configured:
    if channel is None and config is None:
        return Configured()
    settings = load("bot.commands.place").configured(config)
    policy = settings.channels_config().policy(channel or "")
    who_may = {right: policy.who_may.get(right) or people for right, people in WHO_MAY.items()}
    return Configured(policy.overrides, who_may, settings.stop_words())


@app.command()
def show(channel: Channel = None, config: Config = None, as_json: AsJson = False) -> None:
    """Print the whole table: the first row that fits decides."""
    table = rows(_configured(channel, config).overrides)
    if as_json:
        write_json(table)
    else:
        write_table(list(table[0]), [list(row.values()) for row in table], wrap=set(table[0]) - {"row"})


@app.command(name="explain")
def explain_case(
    source: Annotated[Source, typer.Option(help="Where the message came from.")],
    who: Annotated[Who, typer.Option(help="Who wrote it, seen from the thread.")],
    state: Annotated[SessionState, typer.Option(help="The state of the session when it arrives.")],
    marker: Annotated[
        Marker | None,
        typer.Option(help="What the text says about itself; read from --text, else none.", show_default=False),
    ] = None,
    text: Annotated[
        str | None,
        typer.Option(help="What was written. Write @pilot for the bot, <@U123> for people.", show_default=False),
    ] = None,
    rights: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="What they may do: any of ask, steer, stop, approve, with commas, or nothing. Default: as WHO says.",
            show_default=False,
        ),
    ] = None,
    channel: Channel = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Say what becomes of one message, which row decides, and why the rows before it do not."""
    configured = _configured(channel, config)
    may = None if rights is None else _rights(rights)
    case = case_of(source, marker or Marker.NONE, who, state, may)
    if text is not None:
        case = _with_text(case, marker, text, configured.words)
    found = explain(case, configured.overrides)
    told = _told(found.decision.notice, configured.who_may)
    if as_json:
        write_json(_as_json(case, found, told))
    else:
        _print(case, found, told)


def _rights(given: str) -> Rights:
    names = {name.strip() for name in given.split(",")} - {"", "nothing"}
    unknown = names - set(WHO_MAY)
    if unknown:
        raise BadInput(
            f"{', '.join(sorted(unknown))} is no right: give any of ask, steer, stop, approve, or nothing."
        )
    return Rights(**dict.fromkeys(names, True))


def _with_text(case: Case, marker: Marker | None, text: str, words: StopWords) -> Case:
    """The case of a message that says `text`, whose marker is read from it unless another one is given."""
    if case.source in _NO_WORDS:
        raise BadInput(f"A {case.source} carries no text: leave --text out, or give a source that people write.")
    raw = _TYPED_MENTION.sub(f"<@{BOT}>", text)
    mentioned = case.source is Source.MENTION or f"<@{BOT}>" in raw
    to_us = mentioned or case.source is Source.DIRECT_MESSAGE
    read, _, stop = marker_of(raw, bot_user=BOT, mentioned=to_us, words=words)
    given = marker if marker is not None and marker is not Marker.NONE else read
    plain = case_of(case.source, given, case.who, case.state, case.rights, bare=stop is None or stop.bare)
    return replace(
        plain,
        mentioned=mentioned,
        assent=is_assent(without_mention(raw, BOT)),
        approval_open=case.state is SessionState.SUSPENDED,
    )


def _told(notice: Notice | None, who_may: Mapping[str, str]) -> str | None:
    if notice is None:
        return None
    right = notice.value.rpartition("_")[2]
    return say(notice, who_may=who_may.get(right, ""))


def _as_json(case: Case, found: Explanation, told: str | None) -> dict[str, Any]:
    decision = found.decision
    return {
        "case": {
            "source": case.source.value,
            "marker": case.marker.value,
            "who": case.who.value,
            "state": case.state.value,
            "rights": [right for right in WHO_MAY if getattr(case.rights, right)],
            "mentioned": case.mentioned,
        },
        "disposition": decision.disposition.value,
        "row": decision.row,
        "effect": None if decision.effect is None else decision.effect.value,
        "notice": None if decision.notice is None else decision.notice.value,
        "told": told,
        "passed": [{"row": row, "why": why} for row, why in found.passed],
    }


def _print(case: Case, found: Explanation, told: str | None) -> None:
    decision = found.decision
    may = ", ".join(right for right in WHO_MAY if getattr(case.rights, right)) or "nothing"
    lines = [
        f"Message:   {case.source} from a {case.who} who may {may}; marker {case.marker}; session {case.state}",
        f"Decision:  {decision.disposition}" + (f", and: {decision.effect}" if decision.effect else ""),
        f"Row:       {decision.row}",
        f"Told:      {printable(told) if told else 'nothing in words'}",
        "",
        f"Passed over, in order ({len(found.passed)}):" if found.passed else "No row was passed over.",
    ]
    write("\n".join(lines) + "\n")
    if found.passed:
        write_table(["row", "why not"], found.passed, wrap={"why not"})
