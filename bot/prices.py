"""What an answer cost, in US dollars: list prices per million tokens (first-party API, no discounts).

A model that is not in the table is booked at the price of `DEFAULT_MODEL`: a guess that keeps limits and
reports meaningful, where 0 would hide the spending. `known(model)` says whether the figure is a guess.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from core.ports import Usage

DEFAULT_MODEL = "claude-sonnet-5-5"


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars per million tokens. Cache writes are those of the 5-minute cache, the one we use."""

    input: float
    output: float
    cache_read: float
    cache_write: float


_FABLE_5 = Price(10.0, 50.0, 1.0, 12.5)
_FABLE_5_1 = Price(10.0, 50.0, 0.25, 12.5)
_OPUS = Price(5.0, 25.0, 0.5, 6.25)
_SONNET_4 = Price(3.0, 15.0, 0.3, 3.75)

PRICES: dict[str, Price] = {
    "claude-fable-5-2": _FABLE_5_1,
    "claude-fable-5-1": _FABLE_5_1,
    "claude-fable-5": _FABLE_5,
    "claude-mythos-5-2": _FABLE_5_1,
    "claude-mythos-5-1": _FABLE_5_1,
    "claude-mythos-5": _FABLE_5,
    "claude-opus-5-5": Price(4.0, 20.0, 0.2, 5.0),
    "claude-opus-5": _OPUS,
    "claude-opus-4-8": _OPUS,
    "claude-opus-4-7": _OPUS,
    "claude-opus-4-6": _OPUS,
    "claude-opus-4-5": _OPUS,
    "claude-sonnet-5-5": Price(2.0, 10.0, 0.1, 2.5),
    "claude-sonnet-5": Price(2.0, 10.0, 0.2, 2.5),
    "claude-sonnet-4-6": _SONNET_4,
    "claude-sonnet-4-5": _SONNET_4,
    "claude-haiku-5-5": Price(0.1, 0.5, 0.01, 0.125),
    "claude-haiku-4-5": Price(1.0, 5.0, 0.1, 1.25),
}

LONG_PROMPT_TOKENS = 100_000
LONG_PROMPT_PRICES: dict[str, Price] = {"claude-haiku-5-5": Price(0.5, 2.5, 0.05, 0.625)}
"""Prices of one request whose prompt, cached parts included, is longer than `LONG_PROMPT_TOKENS`."""

_DATE = re.compile(r"-\d{8}$")


def known(model: str) -> bool:
    """Whether the price of `model` is in the table; the date at the end of a snapshot's name doesn't matter."""
    return _DATE.sub("", model) in PRICES


def cost_usd(model: str, usage: Usage) -> float:
    """What one answer cost. An unknown model is booked at the price of `DEFAULT_MODEL`."""
    price = _price(_DATE.sub("", model), usage)
    return (
        usage.input_tokens * price.input
        + usage.output_tokens * price.output
        + usage.cache_read_tokens * price.cache_read
        + usage.cache_write_tokens * price.cache_write
    ) / 1_000_000


def _price(name: str, usage: Usage) -> Price:
    prompt = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
    if prompt > LONG_PROMPT_TOKENS and name in LONG_PROMPT_PRICES:
        return LONG_PROMPT_PRICES[name]
    return PRICES.get(name) or PRICES[DEFAULT_MODEL]
