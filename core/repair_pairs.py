"""Calls and results: every call answered right behind it, every result behind its call.

    R20 R24   each call gets its result in the next message, in front of the texts
    R21       a result without a call becomes marked text where it stands
    R22       a call stored twice is one call; another call of the same id gets an id of its own
    R23       several results of one call become one
    R26 R27   ids and inputs of other APIs
    R28       names
    R31       what stands behind a call moves in front of it, or into a message of its own

`core.repair_answers` gives each result to its call by the ids as they are stored; here each answer of the model
is written again with its results behind it, and only here ids change, on both sides at once. A new id depends
on nothing but what stands in front of it, so it is the same in every later request.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from core.messages import Block
from core.repair_answers import Answers, Call, said
from core.repair_lines import Line, NotRepairable, Scene, text_block, unused
from core.repair_words import Fate, Known, placeholder, raw_arguments
from core.validator_rules import (
    CALL_ID,
    NARROW_TOOL_NAME,
    SERVER_CALLS,
    SERVER_RESULTS,
    THINKING,
    Profile,
)

UNKNOWN_TOOL: Final = "unknown_tool"


def pair(lines: list[Line], scene: Scene) -> list[Line]:
    """The lines with every step of the model closed."""
    return _Writer(lines, scene).write()


@dataclass(slots=True)
class _Step:
    """One answer of the model: what it says, then what it calls, and the results of these calls."""

    words: list[Block] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)

    def abandoned(self) -> bool:
        """Whether a call of it has no result in the next message: what follows is another answer."""
        return any(not call.here for call in self.calls)


class _Writer:
    def __init__(self, lines: Sequence[Line], scene: Scene) -> None:
        self._lines = lines
        self._scene = scene
        self._answers = Answers(lines, scene)
        self._taken: set[str] = set()
        self._numbers: Counter[str] = Counter()
        self._round_before: tuple[list[Block], list[Call]] = ([], [])
        self._out: list[Line] = []

    def write(self) -> list[Line]:
        index = 0
        while index < len(self._lines):
            line = self._lines[index]
            if line.role == "assistant":
                index += self._write_answer(line, index)
            else:
                self._out.append(self._with(line, self._rest(index)))
                self._round_before = ([], [])
                index += 1
        return self._out

    @staticmethod
    def _with(line: Line, blocks: list[Block]) -> Line:
        return Line(line.at, line.role, blocks, line.raw, line.fields)

    def _rest(self, index: int) -> list[Block]:
        """The blocks of a line without the results that went to their calls."""
        rest: list[Block] = []
        for at, block in enumerate(self._lines[index].blocks):
            rest.extend(self._answers.texts.get((index, at), []) if block["type"] == "tool_result" else [block])
        return rest

    def _write_answer(self, line: Line, index: int) -> int:
        """Write an answer of the model and the message behind it; returns how many lines that were."""
        following = self._lines[index + 1] if index + 1 < len(self._lines) else None
        if following is not None and following.role != "user":
            following = None
        rest = self._rest(index + 1) if following is not None else []
        calls = self._answers.calls[index]
        copies = self._copies(line, calls)
        steps = self._steps(line, calls, copies)
        for step in steps[:-1]:
            self._out.append(Line(line.at, "assistant", [*step.words, *self._call_blocks(step, line)]))
            self._out.append(Line(line.at, "user", self._results(step, line)))
            self._scene.note("R31", line.path, "cut behind a call that has no result: what follows is a new answer")
        self._write_last(steps[-1], line, following, rest)
        kept = [call for call in calls if id(call) not in copies]
        if following is None or rest:
            self._round_before = ([], [])
        elif kept or not calls:
            self._round_before = (line.blocks, kept)
        return 1 if following is None else 2

    def _write_last(self, step: _Step, line: Line, following: Line | None, rest: list[Block]) -> None:
        blocks = self._ordered(step, line)
        if blocks:
            self._out.append(self._with(line, blocks))
        results = self._results(step, line)
        if following is None:
            if results:
                self._out.append(Line(line.at, "user", results))
            return
        if any(old is not new for old, new in zip(following.blocks, results, strict=False)):
            self._scene.note("R24", following.path, "the results stand in front, in one run")
        if results or rest:
            self._out.append(self._with(following, [*results, *rest]))

    def _copies(self, line: Line, calls: Sequence[Call]) -> set[int]:
        """R22: the calls that are copies of one in front of them in the line, or of the round before."""
        copies: set[int] = set()
        before = {call.raw_id: call for call in self._round_before[1]}
        firsts: dict[str, Call] = {}
        for call in calls:
            if call.raw_id is None:
                continue
            first, earlier = firsts.setdefault(call.raw_id, call), before.get(call.raw_id)
            if first is not call and first.same_as(call) and _adds_nothing(call, first):
                copies.add(id(call))
                self._scene.note("R22", line.path, f"a call stored twice is one call ({call.raw_id})")
            elif earlier and earlier.same_as(call) and call.real() and _adds_nothing(call, earlier):
                copies.add(id(call))
                self._scene.note("R22", line.path, f"a round stored twice is one round ({call.raw_id})")
        return copies

    def _steps(self, line: Line, calls: Sequence[Call], copies: Collection[int]) -> list[_Step]:
        """R31: the answer as steps of words and calls; one step when each call is answered behind it."""
        by_place = {call.at: call for call in calls}
        steps = [_Step()]
        if copies and len(copies) == len(calls) and line.blocks == self._round_before[0]:
            return steps
        for at, block in enumerate(line.blocks):
            call = by_place.get(at)
            if call is not None:
                if id(call) not in copies:
                    steps[-1].calls.append(call)
                continue
            if steps[-1].calls and self._starts_anew(block, steps[-1]):
                steps.append(_Step())
            steps[-1].words.append(block)
        return steps

    @staticmethod
    def _starts_anew(block: Mapping[str, Any], step: _Step) -> bool:
        if block["type"] in THINKING:
            return True
        return step.abandoned() and block["type"] not in SERVER_CALLS | SERVER_RESULTS

    def _ordered(self, step: _Step, line: Line) -> list[Block]:
        """Words, then calls; with the profile first-party an answered step keeps the order that it has."""
        new = self._call_blocks(step, line)
        if self._scene.profile is Profile.FIRST_PARTY and not step.abandoned():
            by_place = {call.at: block for call, block in zip(step.calls, new, strict=True)}
            if len(step.words) + len(new) == len(line.blocks):
                return [by_place.get(at, block) for at, block in enumerate(line.blocks)]
        blocks = [*step.words, *new]
        if any(old["type"] != each["type"] for old, each in zip(line.blocks, blocks, strict=False)):
            self._scene.note("R31", line.path, "what stood behind a call stands in front of it")
        return blocks

    def _call_blocks(self, step: _Step, line: Line) -> list[Block]:
        return [self._call_block(call, line) for call in step.calls]

    def _call_block(self, call: Call, line: Line) -> Block:
        given = call.block
        wanted: dict[str, Any] = {"id": self._new_id(call, line), "name": self._name(given, line)}
        if not isinstance(given.get("input"), Mapping):
            wanted["input"] = {}
            self._scene.note(
                "R27", line.path, f"an input that is no object is kept beside the result ({call.raw_id})"
            )
        changed = any(given.get(name) != value for name, value in wanted.items())
        call.new_id = wanted["id"]
        return {**given, **wanted} if changed else given

    def _new_id(self, call: Call, line: Line) -> str:
        given = call.raw_id if call.raw_id is not None else f"call_{line.at}_{call.at}"
        legal = given if CALL_ID.fullmatch(given) else re.sub(r"[^a-zA-Z0-9_-]", "_", given) or "call"
        new = unused(legal, self._taken, self._numbers)
        if new != given:
            rule = "R22" if new != legal else "R26"
            self._scene.note(rule, line.path, f"the call {given} and its result are called {new}")
        return new

    def _name(self, block: Mapping[str, Any], line: Line) -> str:
        """R28: a legal name; the fixed one for no name at all must not be a real tool's."""
        name = block.get("name")
        text = name if isinstance(name, str) else ""
        if self._scene.profile is Profile.FIRST_PARTY:
            legal = text[:200]
        else:
            legal = text if NARROW_TOOL_NAME.fullmatch(text) else re.sub(r"[^a-zA-Z0-9_-]", "_", text)[:64]
        if not legal:
            legal = UNKNOWN_TOOL
            while legal in self._tool_names():
                legal += "_2"
        if legal != name:
            self._scene.note("R28", line.path, f"the tool name {text!r} is sent as {legal}")
        return legal

    def _tool_names(self) -> set[str]:
        tools = self._scene.now("tools")
        given = tools if isinstance(tools, list) else []
        return {str(tool.get("name")) for tool in given if isinstance(tool, Mapping)}

    def _results(self, step: _Step, line: Line) -> list[Block]:
        """One result for each call: as they stood when all stood there, else in the order of the calls."""
        results = [self._result(call, line) for call in step.calls]
        places = [self._answers.places.get(id(call.results[0])) if call.results else None for call in step.calls]
        known = [place for place in places if place is not None]
        if len(known) < len(results):
            return results
        return [result for _, result in sorted(zip(known, results, strict=True), key=lambda pair: pair[0])]

    def _result(self, call: Call, line: Line) -> Block:
        result = self._chosen(call, line)
        if result.get("tool_use_id") != call.new_id:
            result = {**result, "tool_use_id": call.new_id}
        value = call.block.get("input", {})
        return result if isinstance(value, Mapping) else _with_evidence(result, value)

    def _chosen(self, call: Call, line: Line) -> Block:
        real = call.real()
        if len(call.results) > 1:
            self._scene.note("R23", line.path, f"{len(call.results)} results of one call became one ({call.raw_id})")
        if len(real) > 1:
            return _merged(real)
        if real or call.results:
            return real[0] if real else call.results[0]
        return self._closing(call, line)

    def _closing(self, call: Call, line: Line) -> Block:
        """R20: what is known about a call that nothing in the history answers."""
        known = self._scene.known.get(call.raw_id or "", Known())
        if known.fate is Fate.IN_FLIGHT or (call.raw_id or "") in self._scene.in_flight:
            raise NotRepairable(f"The call {call.raw_id} still runs: hold the request until it has ended.")
        block: Block = {"type": "tool_result", "tool_use_id": call.new_id}
        if known.fate is Fate.RESULT:
            self._scene.note("R20", line.path, f"the result of {call.raw_id} was taken from the records")
            block["content"] = known.result
            return {**block, "is_error": True} if known.is_error else block
        self._scene.note("R20", line.path, f"the call {call.raw_id} was closed: {known.fate.value}")
        return {**block, "content": placeholder(known), "is_error": True}


def _adds_nothing(call: Call, first: Call) -> bool:
    reported = {said(result) for result in first.real()}
    return all(said(result) in reported for result in call.real())


def _merged(real: Sequence[Block]) -> Block:
    """R23: everything that was reported, in one result; an error only if all are."""
    parts: list[Block] = []
    for result in real:
        content = result.get("content", [])
        parts.extend([text_block(content)] if isinstance(content, str) else content)
    merged = {name: value for name, value in real[0].items() if name != "is_error"}
    merged["content"] = [part for part in parts if part["type"] != "text" or part["text"].strip()]
    if all(result.get("is_error") for result in real):
        merged["is_error"] = True
    return merged


def _with_evidence(result: Block, value: Any) -> Block:
    content = result.get("content", "")
    evidence = raw_arguments(value)
    if isinstance(content, str):
        return {**result, "content": f"{content}\n{evidence}".lstrip("\n")}
    return {**result, "content": [*content, text_block(evidence)]}
