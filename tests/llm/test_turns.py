"""The turns of a coding agent, read from its output.

Invariants:
1. The streams of Claude Code, Cursor and Codex give the same turns for the same episode.
2. A call has its answer, and a submission its program, however often other events come between.
3. Nothing that is printed is lost or raises: what is no known event is shown as it is.
4. All texts of turns can be stored and sent; reading takes a time that grows with the length alone.
"""

import json
import time
from dataclasses import replace

import pytest

from evolve.core.program import Program
from evolve.llm.programs.printed import read_printed
from evolve.llm.programs.records import read_records
from evolve.llm.programs.turns import MAX_TRANSCRIPT_CHARS, Turn, last_part
from evolve.llm.programs.turns import turns as turns_of

SOURCE = "class ModelNew:\n    pass\n"
GIVEN = {"source": SOURCE, "note": "wider"}
ANSWER = [{"type": "text", "text": "correct"}]
EPISODE = [
    Turn(kind="thinking", text="hm"),
    Turn(kind="text", text="I try it."),
    Turn(kind="call", tool="submit", text="note: wider", program=SOURCE, result="correct"),
]


def block(kind: str, **values: object) -> dict:
    return {"type": kind, "message": {"role": kind, "content": [values]}}


CLAUDE = [
    {"type": "system", "subtype": "init"},
    block("assistant", type="thinking", thinking="hm"),
    block("assistant", type="text", text="I try it."),
    block("assistant", type="tool_use", id="1", name="mcp__evolve__submit", input=GIVEN),
    {"type": "rate_limit_event"},
    block("user", type="tool_result", tool_use_id="1", content=ANSWER),
    {"type": "result", "result": "done"},
]
CODEX = [
    {"type": "thread.started"},
    {"type": "item.completed", "item": {"type": "reasoning", "text": "hm"}},
    {"type": "item.completed", "item": {"type": "agent_message", "text": "I try it."}},
    {"type": "item.started", "item": {"type": "mcp_tool_call", "tool": "submit"}},
    {
        "type": "item.completed",
        "item": {
            "id": "1",
            "type": "mcp_tool_call",
            "tool": "submit",
            "arguments": GIVEN,
            "result": {"content": ANSWER},
        },
    },
    {"type": "turn.completed", "usage": {}},
]
CALL = {"mcpToolCall": {"args": {"toolName": "submit", "args": GIVEN}}}
RESULT = {"mcpToolCall": {"result": {"success": {"content": [{"text": {"text": "correct"}}]}}}}
CURSOR = [
    {"type": "thinking", "subtype": "delta", "text": "h"},
    {"type": "thinking", "subtype": "delta", "text": "m"},
    block("assistant", type="text", text="I try it."),
    {"type": "tool_call", "subtype": "started", "call_id": "1", "tool_call": CALL},
    {"type": "tool_call", "subtype": "completed", "call_id": "1", "tool_call": RESULT},
    CLAUDE[-1],
]


def turns(output: str) -> list[Turn]:
    return turns_of(read_records(output))


def printed(events: list) -> str:
    return "\n".join(map(json.dumps, events))


@pytest.mark.parametrize("events", [CLAUDE, CODEX, CURSOR])
def test_streams_of_common_agents_give_the_same_turns(events):
    assert turns(printed(events)) == EPISODE


def test_a_call_without_its_answer_keeps_its_program():
    assert turns(printed(CLAUDE[:4])) == [*EPISODE[:2], replace(EPISODE[2], result="")]


def test_an_answer_whose_call_was_cut_off_is_shown():
    (found,) = turns(printed(CLAUDE[5:]))
    assert found.kind == "event" and "correct" in found.text


def test_output_that_is_no_stream_is_one_text():
    assert turns("one\n\ntwo") == [Turn(kind="text", text="one\n\ntwo\n")]
    assert turns("") == turns("\n\n") == []


def test_text_between_events_stands_in_its_place():
    found = turns("warning: old\n" + printed(CLAUDE[2:3]) + "\n{broken")
    assert [each.text for each in found] == ["warning: old\n", "I try it.", "{broken\n"]


@pytest.mark.parametrize(
    "event",
    [
        {"type": "news", "x": 1},
        {"type": ["assistant"]},
        {"x": {"y": []}},
        {"response": "the answer", "stats": {}},
        block("assistant", type="image"),
        {"type": "item.completed", "item": {"type": "web_search"}},
    ],
)
def test_what_is_no_known_event_is_shown_as_it_is(event):
    (found,) = turns(json.dumps(event))
    assert found.kind == "event"
    (alone,) = turns(json.dumps(event, indent=2))
    assert alone == found


@pytest.mark.parametrize(
    "event",
    [
        {"type": "assistant"},
        {"type": "assistant", "message": "x"},
        {"type": "user", "message": {"content": [None, "x"]}},
        {"type": "tool_call", "tool_call": {"x": None}},
        {"type": "tool_call", "tool_call": []},
        {"type": "item.completed"},
        {"type": "assistant", "message": {"content": [{"type": "tool_use", "input": [1]}]}},
    ],
)
def test_events_without_their_parts_raise_nothing(event):
    turns(printed([event, *CLAUDE]))


def test_a_stream_that_ends_without_a_result_gives_its_last_words():
    assert read_printed(printed(CLAUDE[:4])).text == "I try it."
    assert read_printed(printed(CLAUDE[3:4])).text == ""


@pytest.mark.parametrize("events", [CLAUDE[:-1], CODEX, CURSOR[:-1]])
@pytest.mark.parametrize("printed_last", ["", "\nwarning: it ends", "\n{broken"])
def test_the_last_words_of_a_stream_are_its_last_message(events, printed_last):
    assert read_printed(printed(events) + printed_last).text == "I try it."


@pytest.mark.parametrize("separator", ["\u2028", "\x85", "\u2029"])
def test_a_line_ends_at_a_line_feed_only(separator):
    """JSON may hold all other separators of Unicode as they are."""
    source = f"{SOURCE}# {separator}\n"
    event = block("assistant", type="tool_use", id="1", name="submit", input={"source": source})
    lines = [json.dumps(each, ensure_ascii=False) for each in (event, CLAUDE[-1])]
    for end in ("\n", "\r\n"):
        output = end.join(lines)
        assert [turn.program for turn in turns(output)] == [source]
        assert read_printed(output).text == "done"


def test_a_program_of_a_transcript_can_be_stored():
    """JSON carries halves of surrogate pairs, which no program can have."""
    given = {"source": SOURCE + "# \ud800\n"}
    event = block("assistant", type="tool_use", id="1", name="submit", input=given)
    (found,) = turns(printed([event]))
    assert Program(found.program).digest
    assert found.program == SOURCE + "# \ufffd\n"


@pytest.mark.parametrize("kind", ["text", "thinking", "tool_use", "tool_result", "unknown"])
def test_lone_surrogates_are_replaced_wherever_they_stand(kind):
    hostile = r"a\ud800b"
    texts = dict.fromkeys(("content", "text", "thinking"), "X") | {"input": {"source": "X"}}
    record = block("assistant", type=kind, id="1", name="mcp__evolve__submit", **texts)
    line = json.dumps(record).replace("X", hostile)
    for turn in turns_of(read_records(f"{line}\n{line}")):
        "".join((turn.text, turn.program, turn.result)).encode()
    said = json.dumps({"type": "result", "result": "X"}).replace("X", hostile)
    assert read_printed(said).text == "a\ufffdb"


def test_a_result_that_is_nested_without_end_is_named():
    nested: object = "deep"
    for _ in range(100_000):
        nested = [nested]
    call, answer = block("assistant", type="tool_use", id="1", name="look", input={}), {
        "type": "user", "message": {"content": [{"type": "tool_result", "tool_use_id": "1",
                                                 "content": nested}]}}  # fmt: skip
    (turn,) = turns_of([call, answer])
    assert turn.result == "(nested too deeply)"


def test_many_lines_of_text_are_one_turn_in_little_time():
    """25,000 lines took 8 s where each was added to the text before it."""
    lines = "x" * 79 + "\n"
    start = time.process_time()
    (turn,) = turns_of(read_records(25_000 * lines))
    assert time.process_time() - start < 2.0
    assert turn.text == 25_000 * lines


def test_of_a_long_output_the_last_whole_lines_are_kept_and_the_cut_is_said():
    line = json.dumps(block("assistant", type="text", text="y" * 1000)) + "\n"
    kept = last_part(3000 * line)
    said, *others = kept.splitlines(keepends=True)
    assert len(kept) < MAX_TRANSCRIPT_CHARS + 100
    assert set(others) == {line}
    left_out = (3000 - len(others)) * len(line)
    assert said == f"[{left_out:,} characters before this line are not stored]\n"
    assert last_part(line) == line
