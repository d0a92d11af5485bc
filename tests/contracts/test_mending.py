"""No stored history bricks its session: whatever happened to the rows, the next question is answered.

The rows are damaged behind the program's back; the model refuses what the API would refuse. Every damage leads to a
row for each stitch, an answer, and a history that later requests extend byte by byte.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from core.errors import ModelRefusedHistory
from core.frame import framed
from core.gateway import CallResult, CallStatus
from core.history import EntryKind, flatten
from core.ledger import Frozen, Stitch, Surroundings
from core.limits import Limits
from core.ports import ModelAnswer, ModelRequest, ToolOutput
from core.repair import Fate, Known
from core.validator import problems
from storage.database import Database
from storage.tables import calls, entries, sessions
from tests.core.doubles import call
from tests.support.house import FROZEN, House
from tests.support.scene import BOT, FAST, Scene, answer, scene, tool

ASK = f"<@{BOT}> checkout answers 5xx, what is going on?"
AGAIN = f"<@{BOT}> and now?"
LOOK = answer("I look.", ("metrics", {"q": "up"}), ("logs", {"q": "error"}))
THINKING = {"type": "thinking", "thinking": "hm", "signature": "signed"}

Damage = Callable[[AsyncConnection, list[dict[str, Any]]], Any]


def strict(said: ModelAnswer) -> Callable[[ModelRequest], Any]:
    """A model that refuses what the API would refuse, and says `said` to everything else."""

    async def line(request: ModelRequest) -> ModelAnswer:
        found = problems({"messages": request.messages, "tools": request.tools, "system": request.system})
        if found:
            raise ModelRefusedHistory(found[0].problem)
        return said

    return line


async def _set(tx: AsyncConnection, entry: dict[str, Any], body: Any) -> None:
    stored = body if isinstance(body, str) else json.dumps(body)
    await tx.execute(update(entries).where(entries.c.id == entry["id"]).values(body=stored))


async def lose_the_results(tx: AsyncConnection, found: list[dict[str, Any]]) -> None:
    await tx.execute(delete(entries).where(entries.c.id == found[2]["id"]))


async def lose_the_results_and_what_is_known(tx: AsyncConnection, found: list[dict[str, Any]]) -> None:
    await lose_the_results(tx, found)
    await tx.execute(delete(calls))


async def lose_the_calls(tx: AsyncConnection, found: list[dict[str, Any]]) -> None:
    await _set(tx, found[1], [{"type": "text", "text": "I look."}])


async def double_an_id(tx: AsyncConnection, found: list[dict[str, Any]]) -> None:
    body = json.loads(found[1]["body"])
    await _set(tx, found[1], [*body, body[-1]])


async def swap_results_and_answer(tx: AsyncConnection, found: list[dict[str, Any]]) -> None:
    for row, body in ((found[2], found[3]["body"]), (found[3], found[2]["body"])):
        await _set(tx, row, body)


async def put_half_a_character(tx: AsyncConnection, found: list[dict[str, Any]]) -> None:
    await _set(tx, found[2], found[2]["body"].replace("metrics says", r"\ud83d metrics\u0000 says"))


async def leave_no_json(tx: AsyncConnection, found: list[dict[str, Any]]) -> None:
    await _set(tx, found[2], '[{"type": "tool_res')


async def leave_a_number(tx: AsyncConnection, found: list[dict[str, Any]]) -> None:
    await _set(tx, found[1], 7)


async def nest_a_million_deep(tx: AsyncConnection, found: list[dict[str, Any]]) -> None:
    await _set(tx, found[3], "[" * 100_000)


async def nest_an_input(tx: AsyncConnection, found: list[dict[str, Any]]) -> None:
    await _set(tx, found[1], found[1]["body"].replace('{"q":"up"}', '{"a":' * 300 + "1" + "}" * 300))


async def blank_the_answer(tx: AsyncConnection, found: list[dict[str, Any]]) -> None:
    await _set(tx, found[3], [{"type": "text", "text": " "}])


async def forget_the_question(tx: AsyncConnection, found: list[dict[str, Any]]) -> None:
    await _set(tx, found[0], [])


async def forget_a_signature(tx: AsyncConnection, found: list[dict[str, Any]]) -> None:
    await _set(tx, found[3], [{"type": "thinking", "thinking": "hm"}, *json.loads(found[3]["body"])])


DAMAGES: list[Damage] = [
    lose_the_results,
    lose_the_results_and_what_is_known,
    lose_the_calls,
    double_an_id,
    swap_results_and_answer,
    put_half_a_character,
    leave_no_json,
    leave_a_number,
    nest_a_million_deep,
    nest_an_input,
    blank_the_answer,
    forget_the_question,
    forget_a_signature,
]


async def damaged(thread: Scene, damage: Damage) -> None:
    async with thread.db.transaction() as tx:
        found = (await tx.execute(select(entries).order_by(entries.c.seq))).mappings().all()
        await damage(tx, [dict(row) for row in found])


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
async def test_whatever_happened_to_its_rows_a_session_answers_again(
    sqlite_database: Database, damage: Damage
) -> None:
    lines = [strict(LOOK), *(strict(answer(f"Answer {number}.")) for number in range(3))]
    async with scene(sqlite_database, lines, [tool("metrics"), tool("logs")]) as thread:
        await thread.say(ASK)
        assert await thread.settled() == ["completed"]
        await damaged(thread, damage)
        await thread.say(AGAIN)
        assert await thread.settled(2) == ["completed"] * 2
        await thread.say(AGAIN)
        assert await thread.settled(3) == ["completed"] * 3
        assert thread.faults == []
        third, fourth = (flatten(request.messages) for request in thread.model.requests[-2:])
        assert fourth[: len(third)] == third
        assert len(thread.model.requests) == 4
        kinds = [row["kind"] for row in await thread.rows("entries", "seq")]
        assert kinds.count("mended") + kinds.count("condensed") == 1
        if "mended" in kinds:
            assert await thread.rows("repairs")


async def test_a_lost_result_comes_back_from_the_audit_rows(sqlite_database: Database) -> None:
    lines = [strict(LOOK), strict(answer("So.")), strict(answer("Still."))]
    async with scene(sqlite_database, lines, [tool("metrics"), tool("logs")]) as thread:
        await thread.say(ASK)
        await thread.settled()
        await damaged(thread, lose_the_results)
        await thread.say(AGAIN)
        await thread.settled(2)
        results = [
            block for _, block in flatten(thread.model.requests[-1].messages) if block["type"] == "tool_result"
        ]
        assert [result["content"] for result in results] == [
            framed("metrics", "metrics says {'q': 'up'}"),
            framed("logs", "logs says {'q': 'error'}"),
        ]
        assert {row["rule"] for row in await thread.rows("repairs")} >= {"R20"}


async def test_what_can_never_be_sent_ends_one_turn_and_the_next_is_answered(sqlite_database: Database) -> None:
    refused = ModelRefusedHistory("messages.3: `tool_use` ids must be unique")
    lines = [LOOK, answer("So."), refused, refused, strict(answer("Again."))]
    async with scene(sqlite_database, lines, [tool("metrics"), tool("logs")], fallback="claude-other") as thread:
        await thread.say(ASK)
        await thread.settled()
        await thread.say(AGAIN)
        assert await thread.settled(2) == ["completed", "failed"]
        settle = (await thread.rows("settles", "created_at"))[1]
        assert settle["detail"] == "structural_400"
        assert settle["known"].startswith("The model API refuses this history by its rule R22: messages.3")
        first, second = (request.messages for request in thread.model.requests[2:4])
        assert first != second
        assert {request.model for request in thread.model.requests} == {"claude-test"}
        await thread.say(f"<@{BOT}> once more?")
        assert await thread.settled(3) == ["completed", "failed", "completed"]
        sent = str(thread.model.requests[-1].messages)
        assert "metrics says" in sent and "and now?" in sent and "once more?" in sent


async def test_a_release_that_changes_prompt_and_tools_changes_no_session(database: Database) -> None:
    house = House(database)
    asked = await house.say("why?")
    before = await house.claim(asked.session)
    await house.answer(before)
    await house.say("and now?")
    assert asked.session is not None
    changed = Frozen(FROZEN.model, "another prompt", [{"name": "new"}])
    claimed = await house.ledger.claim(asked.session, "w1", changed, surroundings=Surroundings())
    assert claimed is not None and claimed.frozen == before.frozen


async def thoughtful(house: House) -> Any:
    """A session in the middle of a turn, whose first step was thought about."""
    asked = await house.say("why?")
    claimed = await house.claim(asked.session)
    looked = call("logs", position=0, call_id="toolu_1")
    block = {"type": "tool_use", "id": "toolu_1", "name": "logs", "input": {}}
    await house.ledger.open(claimed, 1, [THINKING, block], [looked], [])
    await house.ledger.close(claimed, 1, [CallResult(looked, CallStatus.OK, "12 lines")], lambda _steers: None)
    await house.ledger.release(claimed.lease)
    return asked.session


async def test_another_model_takes_the_session_over_without_the_thinking_of_the_old_one(database: Database) -> None:
    house = House(database)
    session = await thoughtful(house)
    other = Frozen("claude-opus-5-5", FROZEN.system, FROZEN.tools)
    claimed = await house.ledger.claim(session, "w1", other, surroundings=Surroundings())
    assert claimed is not None
    assert claimed.frozen.model == "claude-opus-5-5"
    assert "thinking" not in str(claimed.messages) and "12 lines" in str(claimed.messages)
    assert await house.ledger.history(session) == claimed.messages
    await house.ledger.release(claimed.lease)
    again = await house.ledger.claim(session, "w1", other, surroundings=Surroundings())
    assert again is not None and again.messages == claimed.messages and again.steps == 1
    async with database.reading() as tx:
        found = (await tx.execute(select(entries.c.kind).order_by(entries.c.seq))).scalars().all()
        model = (await tx.execute(select(sessions.c.model))).scalars().all()
    assert (found, model) == (["user", "assistant", "results", "mended"], ["claude-opus-5-5"])


async def test_a_step_in_its_middle_is_ended_by_the_model_that_began_it(database: Database) -> None:
    house = House(database)
    asked = await house.say("why?")
    claimed = await house.claim(asked.session)
    block = {"type": "tool_use", "id": "toolu_1", "name": "logs", "input": {}}
    await house.ledger.open(claimed, 1, [THINKING, block], [call("logs", position=0, call_id="toolu_1")], [])
    await house.ledger.release(claimed.lease)
    assert asked.session is not None
    again = await house.ledger.claim(asked.session, "w1", Frozen("claude-opus-5-5", "system", []))
    assert again is not None
    assert again.frozen.model == FROZEN.model and again.open_calls and "thinking" in str(again.messages)


async def test_a_history_goes_on_from_what_was_kept_of_it(database: Database) -> None:
    house = House(database)
    asked = await house.say("why?")
    claimed = await house.claim(asked.session)
    kept = [{"role": "user", "content": [{"type": "text", "text": "why, in short?"}]}]
    stitch = Stitch("R11", "messages.0", "blank")
    await house.ledger.go_on_from(claimed, EntryKind.MENDED, kept, [stitch, stitch])
    await house.step(claimed, 1, ["logs"])
    history = await house.ledger.history(claimed.lease.session)
    assert history[0] == kept[0] and len(history) == 3


async def test_the_audit_rows_say_what_is_known_of_each_call(database: Database) -> None:
    house = House(database)
    asked = await house.say("why?")
    claimed = await house.claim(asked.session)
    await house.step(claimed, 1, ["logs", "metrics"])
    rows = [
        {"status": "open", "tier": "read"},
        {"status": "open", "tier": "write"},
        {"status": "intent", "tier": "write"},
        {"status": "timeout", "tier": "read", "output": "No answer within 10 s, so nothing was read."},
        {"status": "denied", "tier": "write"},
        {"status": "ok", "tier": "read", "output": " "},
    ]
    async with database.transaction() as tx:
        for number, row in enumerate(rows):
            values = {"id": f"c{number}", "call_id": f"toolu_c{number}", "position": number, "step": 2, "tool": "x"}
            fixed = {"session_id": asked.session, "turn_id": claimed.turn, "arguments": "{}", "input_summary": ""}
            await tx.execute(insert(calls).values(**values, **fixed, **row))
    assert asked.session is not None
    known = await house.ledger.known(asked.session)
    assert known[f"toolu_{claimed.turn}_1_0"] == Known(Fate.RESULT, False, result=framed("logs", "all fine"))
    assert [known[f"toolu_c{number}"] for number in range(6)] == [
        Known(Fate.INTERRUPTED, False),
        Known(Fate.NOT_STARTED, True),
        Known(Fate.INTERRUPTED, True),
        Known(Fate.RESULT, False, result="No answer within 10 s, so nothing was read.", is_error=True),
        Known(Fate.DECLINED, True),
        Known(Fate.RESULT, False, result="(no output)"),
    ]


async def test_a_session_of_many_turns_is_condensed_and_goes_on(sqlite_database: Database) -> None:
    limits = Limits(**{**_values(FAST), "condense_at_tokens": 3_000, "condense_to_tokens": 1_200})
    rounds = 12
    lines: list[Any] = []
    for number in range(rounds):
        lines += [
            strict(answer("", ("logs", {"n": number}))),
            strict(answer(f"Conclusion {number}: gateway-{number}.")),
        ]

    async def long(arguments: Any) -> Any:

        return ToolOutput("noise\n" * 200 + f"gateway-{arguments['n']} refused\n" + "noise\n" * 200)

    async with scene(sqlite_database, lines, [tool("logs", long)], limits=limits) as thread:
        for number in range(rounds):
            await thread.say(f"<@{BOT}> question {number}?")
            assert await thread.settled(number + 1) == ["completed"] * (number + 1)
        kinds = [row["kind"] for row in await thread.rows("entries", "seq")]
        assert 1 <= kinds.count("condensed") <= rounds // 2
        last = str(thread.model.requests[-1].messages)
        assert all(f"question {number}?" in last for number in range(rounds))
        assert all(f"gateway-{number} refused" in last for number in range(rounds))
        assert max(len(json.dumps(request.messages)) for request in thread.model.requests) < 16_000
        assert await thread.rows("repairs") == []
        assert await thread.rows("diagnoses") == []


def _values(limits: Limits) -> dict[str, Any]:
    return {name: getattr(limits, name) for name in limits.__slots__}


async def test_a_prompt_that_is_too_long_is_no_end_of_a_session(sqlite_database: Database) -> None:
    def fits(said: ModelAnswer) -> Callable[[ModelRequest], Any]:
        async def line(request: ModelRequest) -> ModelAnswer:
            tokens = len(json.dumps(request.messages)) // 4
            if tokens > 2_000:
                raise ModelRefusedHistory(f"prompt is too long: {tokens} tokens > 2000 maximum")
            return await strict(said)(request)

        return line

    async def long(_arguments: Any) -> Any:

        return ToolOutput("noise\n" * 1_000)

    lines: list[Any] = []
    for number in range(4):
        lines += [fits(answer("", ("logs", {"n": number}))), fits(answer("So.")), fits(answer("So."))]
    async with scene(sqlite_database, lines, [tool("logs", long)]) as thread:
        for number in range(4):
            await thread.say(f"<@{BOT}> question {number}?")
            thread.model.lines = lines[number * 3 :]
            assert await thread.settled(number + 1) == ["completed"] * (number + 1)
        assert "condensed" in [row["kind"] for row in await thread.rows("entries")]


async def test_half_a_character_in_what_was_read_from_slack_stops_nobody(database: Database) -> None:
    house = House(database)
    asked = await house.say("why?")
    around = Surroundings("half \ud83d of it, and \0", [{"type": "text", "text": "\udc00 attached"}])
    assert asked.session is not None
    assert await house.ledger.claim(asked.session, "w1", FROZEN, surroundings=around) is not None
    kept = await house.ledger.history(asked.session)
    assert "half \ufffd of it" in str(kept) and "\ufffd attached" in str(kept)
