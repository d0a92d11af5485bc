"""An MCP server over stdio in plain JSON-RPC (2025-06-18): quick to start, and it says what no SDK would send.

    python mcp_raw_server.py FOLDER [MODE]

It offers what FOLDER/tools.json holds at that moment, and writes a line to FOLDER/calls for each call it gets and
each that is cancelled. `die`, `hang` and `change` do what their names say; any other tool answers with the text of
FOLDER/result as it stands there: as the result, or with `error: ` in front as the error.

MODE `stubborn`: neither the end of stdin nor SIGTERM ends it, and it has a child of the same kind.
MODE `mute`: it answers nothing.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

DONE = '{"content": [{"type": "text", "text": "done"}]}'


def main(folder: Path, mode: str) -> None:
    (folder / "pid").write_text(str(os.getpid()))
    if mode == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        child = os.fork()
        if child == 0:
            stay()
        (folder / "child").write_text(str(child))
    for line in sys.stdin.buffer:
        request = json.loads(line)
        if request["method"] == "notifications/cancelled":
            note(folder, "hang was cancelled")
        if mode != "mute" and "id" in request:
            answer(folder, request)
    if mode in ("stubborn", "mute"):
        stay()


def answer(folder: Path, request: dict[str, Any]) -> None:
    method, number = request["method"], json.dumps(request["id"])
    if method == "initialize":
        capabilities = {"tools": {"listChanged": True}}
        about = {"name": "raw", "version": "1"}
        done = {"protocolVersion": "2025-06-18", "capabilities": capabilities, "serverInfo": about}
        say(number, "result", json.dumps(done))
    elif method == "tools/list":
        say(number, "result", json.dumps({"tools": json.loads((folder / "tools.json").read_text())}))
    elif method == "tools/call":
        name = request["params"]["name"]
        note(folder, name)
        if name == "die":
            os.write(2, b"a bolt came loose\n")
            os._exit(3)
        if name == "change":
            send(json.dumps({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}))
        if name != "hang":
            result = folder / "result"
            text = result.read_text() if result.exists() else DONE
            say(number, "error" if text.startswith("error: ") else "result", text.removeprefix("error: "))
    else:
        say(number, "error", json.dumps({"code": -32601, "message": "Method not found"}))


def note(folder: Path, line: str) -> None:
    with (folder / "calls").open("a") as file:
        file.write(line + "\n")


def say(number: str, kind: str, text: str) -> None:
    send("noise on the line")
    send(f'{{"jsonrpc":"2.0","id":{number},"{kind}":{text}}}')


def send(line: str) -> None:
    data = line.encode() + b"\n"
    while data:
        data = data[os.write(1, data) :]


def stay() -> None:
    while True:
        time.sleep(60)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "")
