"""Programs, tasks and compiled references by their texts.

Invariants:
1. Identities follow from texts and assignments alone, and differ where these do.
2. A text without `ModelNew` gets a message with the remedy.
3. A worker's answer is compiled code, or the reason for none.
"""

from dataclasses import replace

import pytest

from evolve.core.compiled import Compiled, convolution_key, each_of, read_compiled
from evolve.core.errors import UsageError
from evolve.core.program import Program, instance_digest, without_model
from evolve.core.reference import CaseCost
from evolve.core.source.normalise import normalised_length, normalised_text
from evolve.core.source.pytext import Module, first_line
from evolve.core.source.tokens import estimate_tokens
from evolve.core.source.tunables import Space, Tunable
from evolve.core.task import Case, Task


def test_identities_follow_from_texts_and_assignments():
    one, other = Program("x = 1"), Program("x = 2")
    assert one.digest == Program("x = 1").digest != other.digest
    written, larger = instance_digest(one.digest, {}), instance_digest(one.digest, {"A": 1, "B": 2})
    assert written not in (one.digest, larger)
    assert larger == instance_digest(one.digest, {"B": 2, "A": 1})
    assert larger != instance_digest(one.digest, {"A": 1, "B": True})
    assert larger != instance_digest(other.digest, {"A": 1, "B": 2})


@pytest.mark.parametrize(
    ("source", "remedy"),
    [
        ("class ModelNew: ...", ""),
        ("from mine import ModelNew", ""),
        ("class Model: ...\nclass Net: ...", "rename its class Model to ModelNew"),
        ("class A: ...\nclass Net(A): ...", "rename its class Net to ModelNew"),
        ("x = 1", "write one, a torch.nn.Module"),
        ("class " + "x" * 61 + ": ...", "write one, a torch.nn.Module"),
    ],
)
def test_a_text_without_the_class_gets_a_message_with_the_remedy(source, remedy):
    message = without_model(source)
    assert message.startswith(f"defines no class ModelNew; {remedy}" if remedy else "")
    assert bool(message) is bool(remedy)


@pytest.mark.parametrize(
    "change",
    [
        {"source": "x = 2"},
        {"size": "gpu"},
        {"precision": "fp16"},
        {"accumulation": "tf32"},
        {"cases": (Case(name="wide"),)},
        {"files": {"a.py": ""}},
    ],
)
def test_all_that_a_judgement_depends_on_is_in_the_revision(change):
    plain = {"name": "t", "source": "x = 1"}
    assert Task(**plain | change).revision != Task(**plain).revision


def test_names_seeds_and_categories_are_not_in_the_revision():
    task = Task(name="t", source="x = 1")
    other = Task(name="u", source="x = 1", seeds=("class ModelNew: ...",), category="norm")
    assert task.revision == other.revision


def test_texts_of_a_task_are_its_modules():
    files = {"a.py": "eCA9IDI=", "b.bin": "AAA=", "c.py": "/w=="}
    assert Task(name="t", source="x = 1", files=files).texts == ("x = 1", "x = 2", "\ufffd")


def test_a_convolution_is_named_by_its_parameters():
    settings = [[2], [1], [1, 1], False, [0], 8]
    assert convolution_key([4, 8, 16, 16], [8, 1, 3, 3], settings) == (
        "convolution 4x8x16x16 8x1x3x3 2x2 1x1 1x1 0x0 8"
    )
    settings = [[2], [1], [1], True, [1], 1]
    assert convolution_key([4, 8, 16], [8, 2, 3], settings) == "transposed 4x8x16 8x2x3 2 1 1 1 1"


def test_one_number_stands_for_every_dimension():
    assert (each_of([3], 2), each_of([3, 4], 2), each_of([3], 1)) == ((3, 3), (3, 4), (3,))


def test_a_workers_answer_is_compiled_code_or_the_reason_for_none():
    made = Compiled(variant="default", torch="2.13.0", cases=())
    answer = {"default": {"compiled": made.to_json()}, "whole": {"reason": "a loop"}}
    assert read_compiled(answer) == {"default": made, "whole": "a loop"}
    with pytest.raises(KeyError):
        read_compiled({"default": {"compiled": None}})


def test_the_limits_of_a_case_are_in_milliseconds():
    case = CaseCost(
        name="wide",
        time_ms=9.0,
        moved_bytes=4_000_000,
        flops=6_000_000,
        bytes_per_s=2e9,
        flops_per_s=3e9,
        bound="memory",
    )
    assert (case.memory_ms, case.arithmetic_ms) == (2.0, 2.0)
    assert replace(case, flops=0, flops_per_s=None).arithmetic_ms == 0


def test_tokens_are_a_digit_or_three_other_bytes():
    texts = ("", "a", "abc", "abcd", "1234", "é7é")
    assert [estimate_tokens(text) for text in texts] == [0, 1, 1, 2, 4, 3]


def test_a_decorated_definition_begins_with_its_first_decorator():
    module = Module("x = 1\n@a\n@b\ndef f(): ...\nclass C: ...\n")
    assert [first_line(node) for node in module.tree.body] == [1, 2, 5]


def test_a_text_that_cannot_be_read_is_compared_as_it_is():
    broken = "def f(:  # why\n"
    assert normalised_text(broken) == broken
    assert normalised_length(broken) == len(broken)
    assert normalised_text("x  =  1  # why\n") == "x = 1"
    assert normalised_length("x  =  1  # why\n") == 5.0


@pytest.mark.parametrize(
    ("choices", "value", "beside"),
    [
        ((1, 2, 4), 2, (1, 4)),
        ((1, 2, 4), 1, (2,)),
        ((1, 2, 4), 4, (2,)),
        ((1, 2, 4), None, (1, 2, 4)),
        (("a", "b", "c"), "b", ("a", "c")),
        ((False, True), True, (False,)),
    ],
)
def test_neighbours_are_the_choices_beside_a_number_and_all_others_of_a_word(
    choices, value, beside
):
    tunable = Tunable("X", value, choices)
    assert tuple(tunable.neighbours(value)) == beside
    assert (len(Space()), len(Space((tunable,)))) == (0, 1)


def test_a_value_of_another_type_is_no_choice():
    with pytest.raises(UsageError, match=r"tunable X: True is not a choice; take one of \[1, 2\]"):
        Tunable("X", 1, (1, 2)).index(True)
