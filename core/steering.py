"""The steering policy at work: which row decides, and why the rows before it did not.

The policy itself is `core.steering_table`; what a text says about itself is `core.marker`; what people are told is
`core.notices`. A channel may add rows of its own (`Override`). They stand behind the control plane, so rights and
control words are decided before them, and a row that would start or steer applies only to who may.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from core.errors import BadInput
from core.marker import Ruling, is_assent, marker_of, parse_decision
from core.messages import Disposition, Marker, Rights, SessionState, Source, Who
from core.notices import Notice, say
from core.steering_table import (
    CONTROL_ROWS,
    CONTROL_WORDS,
    CONVERSATION_ROWS,
    MAY_ASK,
    MAY_STEER,
    STOP_WORDS,
    TEXT,
    Case,
    Cell,
    Condition,
    Effect,
    Row,
)

__all__ = [
    "DEFAULT_RIGHTS",
    "Case",
    "Decision",
    "Effect",
    "Explanation",
    "Notice",
    "Override",
    "Ruling",
    "case_of",
    "dispose",
    "explain",
    "is_assent",
    "marker_of",
    "parse_decision",
    "rows",
    "say",
]

DEFAULT_RIGHTS: Mapping[Who, Rights] = MappingProxyType(
    {
        Who.BOT: Rights(),
        Who.EXTERNAL: Rights(),
        Who.GUEST: Rights(),
        Who.PARTICIPANT: Rights(ask=True, steer=True, stop=True),
        Who.MEMBER: Rights(ask=True, steer=True, stop=True),
    }
)
"""What people may do where the configuration says nothing; approving is only for whom it names."""

_OVERRIDABLE = frozenset(
    {Source.MENTION, Source.REPLY, Source.DIRECT_MESSAGE, Source.ALERT, Source.SCHEDULE},
)
_NEEDS = {Disposition.START: MAY_ASK, Disposition.QUEUE: MAY_ASK, Disposition.STEER: MAY_STEER}
_UNDER_WAY = (SessionState.RUNNING, SessionState.SUSPENDED)


@dataclass(frozen=True, slots=True)
class Decision:
    """What a message does: its disposition, the row that decided, what its author is told, and what else happens."""

    disposition: Disposition
    row: str
    notice: Notice | None = None
    effect: Effect | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """A decision with the rows that were passed over, in order, each with the reason."""

    decision: Decision
    passed: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Override:
    """A row that a channel adds: for this source, marker, who and state (None: any) the disposition is `to`.

    It can't make or unmake control: a control word as `marker`, or `control` as `to`, raises `BadInput`.
    """

    to: Disposition
    source: Source | None = None
    marker: Marker | None = None
    who: Who | None = None
    state: SessionState | None = None

    def __post_init__(self) -> None:
        if self.to is Disposition.CONTROL or self.marker in CONTROL_WORDS:
            raise BadInput("A channel can't redefine stop words, approvals or what is control; remove that row.")
        if self.source is not None and self.source not in _OVERRIDABLE:
            names = ", ".join(sorted(_OVERRIDABLE))
            raise BadInput(f"A channel can't redefine the source {self.source}; it can redefine {names}.")

    def why_not(self, case: Case) -> str | None:
        """Why the row does not apply to `case`, or None if it does."""
        if case.source not in _OVERRIDABLE:
            return f"source {case.source} is not for channels to decide"
        for name in ("source", "marker", "who", "state"):
            wanted, found = getattr(self, name), getattr(case, name)
            if wanted is not None and wanted is not found:
                return f"{name} is {found}, the row is about {wanted}"
        needed = _NEEDS.get(self.to)
        if needed is not None and not _is_automatic(case) and not needed.holds(case):
            return f"it would need: {needed.name}"
        return None

    def disposition(self, state: SessionState) -> Disposition:
        """`to` as far as the session's state can do it: nothing can start beside a turn, or steer without one."""
        if self.to is Disposition.START and state in _UNDER_WAY:
            return Disposition.QUEUE
        if self.to is Disposition.STEER and state not in _UNDER_WAY:
            return Disposition.START
        return self.to


def _is_automatic(case: Case) -> bool:
    return case.source in (Source.ALERT, Source.SCHEDULE)


def dispose(case: Case, overrides: Sequence[Override] = ()) -> Decision:
    """What the policy makes of `case`. Total: the last row catches everything."""
    for row in CONTROL_ROWS:
        if _why_not(row, case) is None:
            return _decided(row, case)
    for number, override in enumerate(overrides, start=1):
        if override.why_not(case) is None:
            return _overridden(number, override, case)
    return _decided(next(row for row in CONVERSATION_ROWS if _why_not(row, case) is None), case)


def explain(case: Case, overrides: Sequence[Override] = ()) -> Explanation:
    """The decision that `dispose` makes, with every row that was passed over on the way."""
    passed: list[tuple[str, str]] = []
    for name, why in _walk(case, overrides):
        if why is None:
            break
        passed.append((name, why))
    return Explanation(dispose(case, overrides), tuple(passed))


def _walk(case: Case, overrides: Sequence[Override]) -> Iterator[tuple[str, str | None]]:
    yield from ((row.name, _why_not(row, case)) for row in CONTROL_ROWS)
    yield from ((f"channel:{number}", item.why_not(case)) for number, item in enumerate(overrides, start=1))
    yield from ((row.name, _why_not(row, case)) for row in CONVERSATION_ROWS)


def _overridden(number: int, override: Override, case: Case) -> Decision:
    to = override.disposition(case.state)
    suspended = to is Disposition.STEER and case.state is SessionState.SUSPENDED
    refused = Notice.REFUSED_ASK if to is Disposition.REFUSE else None
    return Decision(to, f"channel:{number}", refused, Effect.WITHDRAW_REQUEST if suspended else None)


def _decided(row: Row, case: Case) -> Decision:
    cell = row.cell(case.state)
    while cell.only_if is not None and cell.otherwise is not None and not cell.only_if.holds(case):
        cell = cell.otherwise
    return Decision(cell.disposition, row.name, cell.notice, cell.effect)


def _why_not(row: Row, case: Case) -> str | None:
    """The first column of `row` that does not fit `case`, or None if all do."""
    if row.sources is not None and case.source not in row.sources:
        return f"source is {case.source}"
    if row.markers is not None and case.marker not in row.markers:
        return f"marker is {case.marker}"
    if row.who is not None and case.who not in row.who:
        return f"who is {case.who}"
    missing: Condition | None = next((condition for condition in row.given if not condition.holds(case)), None)
    return None if missing is None else f"does not hold: {missing.name}"


# -- printing --------------------------------------------------------------------------------------------------------


def rows(overrides: Sequence[Override] = ()) -> list[dict[str, str]]:
    """The policy as printable rows, in the order in which they are asked."""
    table = [_printed(row) for row in CONTROL_ROWS]
    table += [_printed_override(number, item) for number, item in enumerate(overrides, start=1)]
    return table + [_printed(row) for row in CONVERSATION_ROWS]


def _printed(row: Row) -> dict[str, str]:
    printed = {
        "row": row.name,
        "source": _names(row.sources, Source),
        "marker": _names(row.markers, Marker),
        "who": _names(row.who, Who),
        "given": ", ".join(condition.name for condition in row.given) or "-",
    }
    return printed | {state.value: describe(row.cell(state)) for state in SessionState}


def _printed_override(number: int, override: Override) -> dict[str, str]:
    needed = _NEEDS.get(override.to)
    printed = {
        "row": f"channel:{number}",
        "source": override.source or "any",
        "marker": override.marker or "any",
        "who": override.who or "any",
        "given": needed.name if needed else "-",
    }
    applies = [state for state in SessionState if override.state in (None, state)]
    return printed | {state.value: override.disposition(state) if state in applies else "-" for state in SessionState}


def _names(chosen: frozenset[Source] | frozenset[Marker] | frozenset[Who] | None, kind: type) -> str:
    if chosen is None:
        return "any"
    return ", ".join(item.value for item in kind if item in chosen)  # type: ignore[attr-defined]


def describe(cell: Cell) -> str:
    """A cell in words: what happens, what else it does, and what is said."""
    words = cell.disposition.value
    if cell.effect is not None:
        words += f" ({cell.effect.value})"
    if cell.notice is not None:
        words += f', says "{cell.notice.value}"'
    if cell.only_if is None or cell.otherwise is None:
        return words
    return f"{words} if {cell.only_if.name}, else {describe(cell.otherwise)}"


_MEANT_BY = {
    Source.BUTTON: Marker.STOP_STEP,
    Source.REACTION: Marker.STOP_STEP,
    Source.NATIVE_STOP: Marker.CANCEL,
}


def case_of(
    source: Source,
    marker: Marker,
    who: Who,
    state: SessionState,
    rights: Rights | None = None,
    *,
    bare: bool = True,
) -> Case:
    """The plainest case of its kind, for `policy explain`: default rights, a stop word alone, an edit in time.

    Of buttons, reactions and the native Stop the policy asks for no marker; the plainest of them is a stop.
    """
    if marker is Marker.NONE:
        marker = _MEANT_BY.get(source, marker)
    return Case(
        source,
        marker,
        who,
        state,
        rights if rights is not None else DEFAULT_RIGHTS[who],
        mentioned=source is Source.MENTION,
        bare_stop=bare and marker in STOP_WORDS and source in TEXT,
        consumed=False if source in (Source.EDIT, Source.DELETE) else None,
    )
