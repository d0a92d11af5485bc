"""The local Slack's memory on disk: a demo with the same data goes on where it ended, as Slack itself would.

The bot keeps its rows when it ends, so the messages that they speak of must be there when it comes back: else it
would edit cards that nobody has. Each change of a message is one line, written at once, so that a `kill -9` loses
nothing. Opening reads the newest line of each message and begins a new file with those. Files, views and running
streams are not kept.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from bot.playground.slack.people import Json
from bot.playground.slack.state import Message, SharedFile, State
from core.errors import BadInput


class Keeper:
    """`open` puts back what was kept and keeps what comes; `close` ends that."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._out: IO[str] | None = None

    def open(self, state: State) -> None:
        """Raises BadInput if the file can't be read or written."""
        try:
            lines = self._path.read_text(encoding="utf-8").splitlines() if self._path.exists() else []
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(f"{self._path} can't be read ({error}): move it away, or give another --data.") from error
        for kept in _newest(lines):
            state.restore(Message(kept["channel"], kept["body"], ephemeral_user=kept["only"], gone=kept["gone"]))
            for file in self._files(kept["body"]):
                state.files[file.id] = file
        self._begin(state)
        state.keep = self._write
        state.keep_file = self._write_file

    def close(self) -> None:
        if self._out is not None:
            self._out.close()
            self._out = None

    def _begin(self, state: State) -> None:
        fresh = self._path.with_suffix(".new")
        try:
            fresh.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with fresh.open("w", encoding="utf-8") as out:
                for channel in state.channels_with_messages():
                    out.writelines(_line(message) for message in state.ever(channel))
            fresh.replace(self._path)
            self._out = self._path.open("a", encoding="utf-8", buffering=1)
        except OSError as error:
            raise BadInput(f"{self._path} can't be written ({error.strerror}): give another --data.") from error

    @property
    def _beside(self) -> Path:
        return self._path.with_suffix(".files")

    def _files(self, body: Json) -> Iterator[SharedFile]:
        """The files of a kept message whose bytes are still there."""
        for shown in body.get("files") or ():
            path = self._beside / Path(str(shown.get("id"))).name
            if path.is_file():
                name, kind = str(shown.get("name")), str(shown.get("mimetype"))
                yield SharedFile(path.name, name, kind, path.read_bytes(), True, str(shown.get("title") or ""))

    def _write_file(self, file: SharedFile) -> None:
        self._beside.mkdir(mode=0o700, parents=True, exist_ok=True)
        (self._beside / file.id).write_bytes(file.content)

    def _write(self, message: Message) -> None:
        if self._out is not None:
            self._out.write(_line(message))


def _line(message: Message) -> str:
    kept = {
        "channel": message.channel,
        "body": message.body,
        "only": message.ephemeral_user,
        "gone": message.gone,
    }
    return f"{json.dumps(kept, ensure_ascii=False)}\n"


def _newest(lines: list[str]) -> list[Json]:
    """The last line of each message. A line that was cut off while it was written is left out."""
    found: dict[tuple[str, str], Json] = {}
    for line in lines:
        try:
            kept = json.loads(line)
            found[kept["channel"], kept["body"]["ts"]] = kept
        except (ValueError, KeyError, TypeError):
            continue
    return list(found.values())
