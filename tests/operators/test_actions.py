"""The action set as a file, the steps that a program allows, and the choice among them."""

import random
import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evolve.core.errors import UsageError
from evolve.core.model import CallStatus, ModelReply, ReplyStatus
from operators.llm.actions import (
    Action,
    Step,
    listing,
    load_actions,
    offered,
    read_choice,
    steps_of,
)
from operators.source.regions import Region

SOURCE = """\
import triton


@triton.jit
def kernel(x, n):
    for i in range(n):
        x += tl.load(i)


class ModelNew:
    pass
"""


def action(name: str, *regions: str, languages: tuple[str, ...] = ()) -> Action:
    return Action(name, f"{name} it", regions, languages, "advice", "")


def step(name: str, first: int = 1, kind: str = "loop") -> Step:
    return Step(action(name, kind), Region(kind, "r", first, first))


def written(tmp_path, text: str):
    file = tmp_path / "actions.yaml"
    file.write_text(text)
    return load_actions(str(file))


def test_an_action_is_read_with_all_its_fields(tmp_path):
    [found] = written(
        tmp_path,
        "unroll:\n  summary: ' shorter loops '\n  regions: loop\n  languages: [triton, cpp]\n"
        "  advice: do\n  example: |\n    x\n",
    )
    assert found == Action("unroll", "shorter loops", ("loop",), ("triton", "cpp"), "do", "x")


def test_languages_and_an_example_may_be_left_out(tmp_path):
    text = "a:\n  summary: s\n  regions: [loop, module]\n  advice: d\n"
    [found] = written(tmp_path, text)
    assert (found.regions, found.languages, found.example) == (("loop", "module"), (), "")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", "cannot be read as YAML"),
        ("[]", "holds no actions"),
        ("- a", "holds no actions"),
        ("a: text", "a: an action has summary, regions and advice"),
        ("a: {summary: s, regions: loop}", "a: an action has summary, regions and advice"),
        (
            "a: {summary: s, regions: loop, advice: d, speed: 1, colour: 2}",
            "a: unknown colour, speed; fields are advice, example, languages, regions, summary",
        ),
        ("a: {summary: s, regions: planet, advice: d}", "a.regions: 'planet' is none of"),
        ("a: {summary: s, regions: loop, advice: d, languages: c}", "a.languages: 'c' is none of"),
    ],
)
def test_what_is_wrong_in_a_file_is_said(text, said, tmp_path):
    with pytest.raises(UsageError, match=re.escape(said)):
        written(tmp_path, text)


def test_actions_apply_to_regions_and_languages_of_theirs():
    found = steps_of(
        SOURCE,
        (
            action("unroll", "loop"),
            action("vectorise", "loop", languages=("cpp",)),
            action("rename", "module", languages=("triton",)),
        ),
    )
    assert sorted((one.action.name, one.region.kind) for one in found) == [
        ("rename", "module"), ("unroll", "loop"),
    ]  # fmt: skip


def test_a_step_shows_the_lines_of_its_region():
    [found] = steps_of(SOURCE, (action("unroll", "loop"),))
    assert "    for i in range(n):\n        x += tl.load(i)\n<" in found.excerpt(SOURCE)
    assert "def kernel" not in found.excerpt(SOURCE)
    assert step("rename", kind="module").excerpt(SOURCE) == ""


def test_steps_are_listed_from_1_with_the_first_line_of_their_region():
    said = listing(SOURCE, [step("unroll", 6), step("rename", 4)])
    assert said.splitlines() == [
        f"1. unroll of {step('unroll', 6).region}: unroll it",
        "   for i in range(n):",
        f"2. rename of {step('rename', 4).region}: rename it",
        "   @triton.jit",
    ]


@given(st.lists(st.sampled_from("abcd"), max_size=30), st.integers(0, 12), st.integers(0, 1000))
def test_what_is_offered_is_of_all_types_in_turn(names, most, seed):
    steps = [step(name) for name in names]
    found = offered(steps, most, random.Random(seed))
    assert found == sorted(set(found))
    assert len(found) == min(most, len(steps))
    have, taken = Counter(names), Counter(names[place] for place in found)
    for name in have:
        for other in have:
            assert taken[name] >= min(have[name], taken[other] - 1)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("ACTION: 1", 0),
        ("It helps.\n**Action: 3**", 2),
        ("ACTION: 2\nACTION: 2", 1),
        ("<think>\nACTION: 1\n</think>\nACTION: 2", 1),
    ],
)
def test_a_choice_is_the_number_of_a_listed_step(text, place):
    assert read_choice(ModelReply(status=CallStatus.COMPLETED, text=text), 3) == place


@pytest.mark.parametrize("text", ["", "ACTION: 0", "ACTION: 4", "ACTION: 1\nACTION: 2", "take 1"])
def test_anything_else_is_no_plan(text):
    found = read_choice(ModelReply(status=CallStatus.COMPLETED, text=text), 3)
    assert (found.status, found.note) == (
        ReplyStatus.BAD_PLAN, "no line ACTION: with a listed number",
    )  # fmt: skip


def test_a_plan_that_was_cut_is_not_taken():
    found = read_choice(ModelReply(status=CallStatus.TRUNCATED, text="ACTION: 1"), 12)
    assert found.status is ReplyStatus.TRUNCATED
