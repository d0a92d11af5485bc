"""A connection to an MCP server that is a process of ours: one JSON-RPC message a line.

The SDK has one too. This one keeps three things that a bot which runs for months needs: a message has a largest
size, the server gets no more of our environment than it has to, and nothing of its process group outlives the
connection. A line that is no JSON, or half a character in it, costs nobody the connection.
"""

from __future__ import annotations

import json
import os
import signal
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
from anyio.abc import ByteReceiveStream, Process
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client._transport import TransportStreams
from mcp.os.posix.utilities import terminate_posix_process_tree
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from bot.tools.shaping import cleaned, one_line

LONGEST_MESSAGE = 8 * 1024 * 1024
DEEPEST = 64
GRACE_S = 1.0
HEARING_S = 0.3
MOST_WORDS = 8_192
INHERITED = ("PATH", "HOME")
LAST_LINES = 5
CLOSED = (anyio.ClosedResourceError, anyio.BrokenResourceError, anyio.EndOfStream, OSError)


class Life:
    """One life of a server. `ended` is told when it is over, with the reason as far as it can be known."""

    def __init__(self, over: Callable[[str], None]) -> None:
        self.lines: deque[str] = deque(maxlen=LAST_LINES)
        self.too_long = False
        self.ended = False
        self.closing = False
        self.heard = anyio.Event()
        self._over = over

    def end(self) -> None:
        """The server has ended, unless it is us who ended it."""
        if not self.closing:
            self.ended = True
            self._over(str(self))

    def __str__(self) -> str:
        if self.too_long:
            return f"it sent a message of more than {LONGEST_MESSAGE // 2**20} MB"
        lines = one_line(cleaned(" / ".join(self.lines)), 300).rstrip(".")
        return f"it ended; its last words: {lines}" if lines else "it ended"


@asynccontextmanager
async def stdio(command: Sequence[str], env: Mapping[str, str], life: Life) -> AsyncIterator[TransportStreams]:
    """Start a server and talk to it. Raises OSError when it can't be started."""
    process = await anyio.open_process(command, env=environment(env), start_new_session=True)
    incoming, read_stream = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write_stream, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_read, process, incoming, life)
            tasks.start_soon(_write, process, outgoing)
            tasks.start_soon(_listen, process, life)
            try:
                yield read_stream, write_stream
            finally:
                life.closing = True
                with anyio.CancelScope(shield=True):
                    await _end(process)
                    with anyio.move_on_after(HEARING_S):
                        await life.heard.wait()
                tasks.cancel_scope.cancel()
    finally:
        for stream in (incoming, read_stream, write_stream, outgoing):
            stream.close()
        with anyio.move_on_after(GRACE_S, shield=True):
            await process.aclose()


def environment(given: Mapping[str, str]) -> dict[str, str]:
    """What a server gets of ours, and what is configured."""
    return {**{name: os.environ[name] for name in INHERITED if name in os.environ}, **given}


async def _read(process: Process, incoming: MemoryObjectSendStream[SessionMessage | Exception], life: Life) -> None:
    """Everything that the server says, until it ends or says too much at once."""
    with incoming, suppress(*CLOSED):
        async for line in _lines(process.stdout, life):
            if line.strip():
                await incoming.send(_message(line))
    life.end()


async def _chunks(stream: ByteReceiveStream | None) -> AsyncIterator[bytes]:
    if stream is not None:
        async for chunk in stream:
            yield chunk


async def _lines(stream: ByteReceiveStream | None, life: Life) -> AsyncIterator[bytes]:
    parts: list[bytes] = []
    size = 0
    async for chunk in _chunks(stream):
        *whole, rest = chunk.split(b"\n")
        for line in whole:
            yield b"".join([*parts, line])
            parts, size = [], 0
        parts.append(rest)
        size += len(rest)
        if size > LONGEST_MESSAGE:
            life.too_long = True
            return


def _message(line: bytes) -> SessionMessage | Exception:
    try:
        return SessionMessage(
            jsonrpc_message_adapter.validate_python(plain(json.loads(line), DEEPEST), by_name=False)
        )
    except (ValueError, RecursionError) as error:
        return ValueError(f"not a message: {one_line(cleaned(str(error)), 200)}")


def plain(value: Any, depth: int) -> Any:
    """The value with text that everybody can write, and nothing below a depth that nobody reads."""
    if isinstance(value, str):
        return cleaned(value)
    if isinstance(value, (list, dict)) and depth == 0:
        return "[nested too deeply]"
    if isinstance(value, list):
        return [plain(one, depth - 1) for one in value]
    if isinstance(value, dict):
        return {cleaned(key): plain(one, depth - 1) for key, one in value.items()}
    return value


async def _write(process: Process, outgoing: MemoryObjectReceiveStream[SessionMessage]) -> None:
    with outgoing, suppress(*CLOSED):
        async for message in outgoing:
            text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
            if process.stdin is not None:
                await process.stdin.send(text.encode() + b"\n")


async def _listen(process: Process, life: Life) -> None:
    """What the server writes for people: the last of it is kept to say why it is gone."""
    rest = b""
    with suppress(*CLOSED):
        async for chunk in _chunks(process.stderr):
            *whole, rest = (rest + chunk)[-MOST_WORDS:].split(b"\n")
            life.lines.extend(line.decode("utf-8", "replace") for line in whole if line.strip())
    life.heard.set()


async def _end(process: Process) -> None:
    """Close its stdin, give it a moment, then end its whole group."""
    if process.stdin is not None:
        with suppress(*CLOSED):
            await process.stdin.aclose()
    with anyio.move_on_after(GRACE_S):
        await process.wait()
    await terminate_posix_process_tree(process, GRACE_S)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
