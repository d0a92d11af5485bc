"""`pilothouse fetch URL`: a page as the model would read it, or why it is refused."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Annotated

import typer

from bot.commands.output import write
from bot.web_proxy import Refused, WebProxy

REFUSED = 3

app = typer.Typer()


@app.command()
def fetch(
    url: Annotated[str, typer.Argument(help="The page, beginning with https://.")],
    allow: Annotated[
        list[str] | None,
        typer.Option("--allow", metavar="DOMAIN", help="A domain that may be read; .example.com for all below it."),
    ] = None,
) -> None:
    """Read a web page as the model would, or say why it is refused.

    A refusal exits 3 with `refused: <why>`.
    """
    proxy = WebProxy(allow or [], now=time.time, clock=time.monotonic)
    try:
        page = asyncio.run(proxy.read(url))
    except Refused as refused:
        sys.stderr.write(f"refused: {refused}\n")
        raise typer.Exit(REFUSED) from refused
    write(f"{page.markdown}\n")
