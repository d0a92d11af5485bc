"""Label matchers as Alertmanager knows them, and whether a set of them chooses something.

A silence must name what it hides. `alertname=~".+"`, `severity!="x"` or `team=""` name nothing: such matchers may
narrow a choice down, but one of the set has to make it. A pattern makes a choice when it fits none of many names that
nobody ever gave. Patterns are read by a linear-time engine whose syntax is that of Alertmanager's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import StringConstraints, TypeAdapter, ValidationError
from pydantic_core import SchemaError

from bot.tools.shaping import Arguments, cleaned, one_line
from core.errors import ToolError

MOST_MATCHERS = 10
MOST_VALUE_CHARS = 500
ABOVE_CHANCE = 2
OPERATORS = {(False, True): "=", (False, False): "!=", (True, True): "=~", (True, False): "!~"}
"""By whether the value is a pattern, and whether the label must fit it."""

LABEL_PATTERN = r"^[a-zA-Z_][a-zA-Z0-9_]*$(?!\n)"

NOBODYS_NAMES = (
    *("Abundu", "Bovex", "Cyprine", "Drolk", "Eskavor", "Fuzemple", "Gwintar", "Hyjacob", "Izotope", "Jumblex"),
    *("Kelundro", "Lirpa", "Mozquin", "Nybbles", "Ovarune", "Pliqua", "Quorvex", "Rhumzot", "Skwilb", "Tazmuk"),
    *("Ulvexar", "Vrimjo", "Wyxlot", "Xanquib", "Yorvempt", "Zebruwik"),
    *("aqu-1", "bvx-02", "cja-7-b", "dwo-44", "exu-5", "fyq-12", "gzi-9", "hev-31", "iwo-8", "jxa-6", "kyu-77"),
    *("lzo-3", "mab-21", "nec-4", "oxi-19", "pyo-2", "quz-58", "rav-11", "sew-33", "tix-6", "uyo-90", "vaz-1"),
    *("wub-14", "xec-27", "yid-8", "zof-65"),
    *("QuelVorp", "MizDralkHoon", "ZubTekk5xx", "AxoPlinteHigh", "TwyvernGoshDown", "BruxErrorJilp", "NodeWopquax"),
    *("Gol_mex", "prax:hib:rate5m", "VEX-07-DOWN", "iq"),
    *("a", "Q", "zz", "7", "8251", "0.37", "10.9.81.77:9142", "http://qv.zulm.example/wj?k=1", "vuj_kex_ilo"),
    *("ÄÖ-é", "名前", "two words", "UPPER_QIX", "x" * 40, "deep/quim/zov.wux"),
)


@dataclass(frozen=True, slots=True)
class Matcher:
    """One matcher. A pattern fits a whole value or not at all; a label that is missing is empty."""

    name: str
    value: str
    is_regex: bool = False
    is_equal: bool = True

    def __str__(self) -> str:
        """As Alertmanager writes and reads it: `name="value"`."""
        escaped = self.value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        return f'{self.name}{OPERATORS[self.is_regex, self.is_equal]}"{escaped}"'

    def makes_a_choice(self) -> bool:
        """Whether it leaves out alerts that nobody thought of. Raises ToolError for a pattern that is none."""
        if not self.is_regex:
            return self.is_equal and self.value != ""
        fits = _pattern(self.value)
        by_chance = sum(fits(name) for name in NOBODYS_NAMES)
        return self.is_equal and not fits("") and by_chance < ABOVE_CHANCE


def matchers_argument(description: str, least: int) -> dict[str, Any]:
    """The schema of a list of matchers."""
    one = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "Label name", "pattern": LABEL_PATTERN, "maxLength": 128},
            "operator": {
                "type": "string",
                "enum": list(OPERATORS.values()),
                "description": "How the label must compare; = if left out. =~ takes an anchored regular expression",
                "default": "=",
            },
            "value": {"type": "string", "description": "Value or pattern", "maxLength": MOST_VALUE_CHARS},
        },
        "required": ["name", "value"],
        "additionalProperties": False,
    }
    return {"type": "array", "items": one, "minItems": least, "maxItems": MOST_MATCHERS, "description": description}


def given_matchers(arguments: Arguments) -> list[Matcher]:
    """The matchers of checked arguments. Raises ToolError for a value that can't be sent as it is."""
    kinds = {operator: kind for kind, operator in OPERATORS.items()}
    found = [
        Matcher(one["name"], one["value"], *kinds[one.get("operator", "=")]) for one in arguments.get("matchers", ())
    ]
    for one in found:
        if cleaned(one.value) != one.value:
            raise ToolError(f"The value of {one.name} holds characters that no label has.")
    return found


def require_a_choice(matchers: Sequence[Matcher]) -> None:
    """Raises ToolError when the matchers together would fit alerts that nobody named."""
    choices = [one.makes_a_choice() for one in matchers]
    if not any(choices):
        shown = ", ".join(one_line(str(one), 80) for one in matchers)
        raise ToolError(
            f"Nothing was silenced: {shown} would also hide alerts that nobody named. At least one matcher must "
            'name what is meant, such as alertname="CheckoutErrorRate" or host=~"web-[12]"; negative matchers, '
            "empty values and patterns such as .* or .+ only narrow that down."
        )


class _Fits:
    """Whether a pattern fits a whole value."""

    def __init__(self, pattern: str) -> None:
        self._alone = TypeAdapter(Annotated[str, StringConstraints(pattern=pattern)])
        self._whole = TypeAdapter(Annotated[str, StringConstraints(pattern=rf"\A(?:{pattern})\z")])

    def __call__(self, value: str) -> bool:
        try:
            self._whole.validate_python(value)
        except ValidationError:
            return False
        return True


def _pattern(text: str) -> _Fits:
    try:
        return _Fits(text)
    except SchemaError as error:
        why = str(error).rpartition("error:")[2] or str(error)
        raise ToolError(f"{one_line(text, 80)!r} can't be used as a pattern: {one_line(why, 200)}.") from error
