"""What Slack's client makes of what a person types: escaping, mentions, channels, links.

Tokens that are already formed (`<@U123>`, `<#C123|name>`, `<!here>`, `<https://...|label>`) stay as they are, so
that a test can write them. Code spans and blocks are only escaped.
"""

from __future__ import annotations

import re

from bot.playground.slack.people import Workspace

_CODE = re.compile(r"(```.*?```|`[^`\n]+`)", re.DOTALL)
_TOKEN = re.compile(
    r"(<(?:[@#][A-Z0-9]+(?:\|[^<>]*)?|![a-z]+(?:\^[^<>]*)?(?:\|[^<>]*)?|(?:https?://|mailto:)[^<>\s]+(?:\|[^<>]*)?)>)"
)
_LINK = re.compile(r"(https?://[^\s<>]*[^\s<>.,;:!?)\]])")
_AT = re.compile(r"(?<![\w@/.])@([\w.-]*\w)")
_HASH = re.compile(r"(?<![\w#&/])#([\w-]*\w)")
_BROADCASTS = ("here", "channel", "everyone")


def escape(text: str) -> str:
    """The three characters that Slack escapes, and no others."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def unescape(text: str) -> str:
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def as_sent(text: str, workspace: Workspace) -> str:
    """The text of the message that Slack stores for what was typed."""
    parts = _CODE.split(text)
    return "".join(escape(part) if index % 2 else _prose(part, workspace) for index, part in enumerate(parts))


def _prose(text: str, workspace: Workspace) -> str:
    parts = _TOKEN.split(text)
    return "".join(part if index % 2 else _linked(part, workspace) for index, part in enumerate(parts))


def _linked(text: str, workspace: Workspace) -> str:
    parts = _LINK.split(text)
    return "".join(
        f"<{escape(part)}>" if index % 2 else _named(escape(part), workspace) for index, part in enumerate(parts)
    )


def _named(text: str, workspace: Workspace) -> str:
    people = {name.lower(): person.id for person in workspace.everyone() for name in (person.real_name, person.name)}
    channels = {channel.name.lower(): channel.id for channel in workspace.channels if not channel.is_im}

    def mention(match: re.Match[str]) -> str:
        name = match[1].lower()
        if name in _BROADCASTS:
            return f"<!{name}>"
        return f"<@{people[name]}>" if name in people else match[0]

    def reference(match: re.Match[str]) -> str:
        name = match[1].lower()
        return f"<#{channels[name]}|{match[1]}>" if name in channels else match[0]

    return _HASH.sub(reference, _AT.sub(mention, text))
