"""AutoTriton's rows: both kinds for SFT, instructions for RL, and groups with GRPO's advantages."""

import math

import pytest

from evolve.core.evaluation import Status
from evolve.core.model import CallStatus, ReplyStatus
from evolve.trajectories.tally import Tally
from evolve.trajectories.views.recipes import find_recipe
from tests.trajectories.searched import Searched, verdict

KERNEL = """\
import triton


@triton.jit
def add(x):
    pass


class ModelNew:
    name = "{name}"

    def forward(self, x):
        add[(1,)](x)
"""
PLAIN = "class ModelNew:\n    pass  # @triton.jit\n"


def triton(name: str) -> str:
    return KERNEL.format(name=name)


def wrote(name: str, words: str = "Each block takes a row.") -> str:
    return f"{words}\n\n```python\n{triton(name)}```"


def rows(search: Searched, recipe: str, kind: str) -> tuple[list, dict[str, int]]:
    tally = Tally()
    found = list(find_recipe(recipe).rows(search.store, [search.run.id], kind, tally=tally))
    return found, {reason: n for r in tally.removed.values() for reason, n in r.items()}


def test_a_translation_is_instruction_reasoning_and_one_block(search: Searched) -> None:
    search.model("A", verdict(0.8), code=triton("A"), reply=wrote("A"), reasoning="Rows are short.")
    [row], _ = rows(search, "autotriton_translation@1", "supervised")
    assert [message.role for message in row.prompt] == ["user"]
    assert "class Model: pass" in row.prompt[0].content
    assert row.completion == (
        f"<think>\nRows are short.\n</think>\n\n```python\n{triton('A').rstrip()}\n```"
    )
    assert row.score == 0.8


@pytest.mark.parametrize(
    ("reply", "reasoning"),
    [
        (f"<think>\nTry rows.\n</think>\n{wrote('A')}", "Try rows."),
        (wrote("A", "What is read:\n\nall, once."), "What is read:\n\nall, once."),
    ],
)
def test_the_reasoning_is_the_thought_or_else_what_the_reply_says_first(
    reply: str, reasoning: str, search: Searched
) -> None:
    search.model("A", verdict(1.0), code=triton("A"), reply=reply)
    [row], _ = rows(search, "autotriton_translation@1", "supervised")
    assert row.completion.startswith(f"<think>\n{reasoning}\n</think>\n\n```python\n")


def test_only_verified_first_steps_that_launch_triton_are_translations(search: Searched) -> None:
    search.model("A", verdict(1.0), code=triton("A"), reply=wrote("A"))
    search.model("B", verdict(1.0), code=PLAIN, reply=wrote("B"))
    search.model("C", verdict(status=Status.WRONG_VALUE), code=triton("C"), reply=wrote("C"))
    search.model("D", verdict(1.0), code=triton("D"), reply=wrote("D", ""))
    search.model("E", verdict(1.0, custom=False), code=triton("E"), reply=wrote("E"))
    search.built_in("S", verdict(1.0))
    search.model("F", verdict(2.0), "S", code=triton("F"), reply=wrote("F"))
    found, removed = rows(search, "autotriton_translation@1", "supervised")
    assert [row.step.sequence for row in found] == [0]
    assert removed == {
        "not correct": 2,
        "launches no Triton kernel of its own": 1,
        "no reasoning is stored": 1,
        "no model made it": 1,
        "made from another program": 1,
    }


def test_what_the_compiler_wrote_is_learned_from_as_it_was_cleaned_up(search: Searched) -> None:
    """The reasoning is what was written for the reader, not the thought about the compiler's."""
    search.built_in("S", verdict(1.0), operator="inductor")
    search.model(
        "A",
        verdict(1.0),
        "S",
        operator="clean_up",
        code=triton("A"),
        reply=wrote("A", "A row fits a block."),
        reasoning="The compiler's names are ugly.",
    )
    search.model("B", verdict(1.0), "S", code=triton("B"), reply=wrote("B"))
    [row], removed = rows(search, "autotriton_compiled@1", "supervised")
    assert row.step.sequence == 1
    assert row.completion.startswith("<think>\nA row fits a block.\n</think>\n\n```python\n")
    assert "compiler" not in row.completion
    assert removed["not the compiler's program written anew"] == 1
    translated, _ = rows(search, "autotriton_translation@1", "supervised")
    assert translated == []


def test_each_task_is_one_instruction_for_rl(search: Searched) -> None:
    search.model("A", verdict(1.0), code=triton("A"), reply=wrote("A"))
    search.model("B", verdict(1.0), code=triton("B"), reply=wrote("B"))
    [row], removed = rows(search, "autotriton_rl@1", "prompt")
    assert row.step.sequence == 0
    assert "class Model: pass" in row.prompt[0].content
    assert removed["the same task as in an earlier row"] == 1


def test_answers_to_one_prompt_are_a_group_with_grpos_advantages(search: Searched) -> None:
    """Rewards (1, 0, 0): mean 1/3, standard deviation 1/sqrt(3), so 2/sqrt(3) and -1/sqrt(3)."""
    search.model("A", verdict(1.0), code=triton("A"), reply=wrote("A"))
    search.model("B", verdict(3.0), code=PLAIN, reply="no Triton")
    search.model(None, None, failure="no_code", reading=ReplyStatus.NO_CODE, reply="I cannot.")
    search.model("C", verdict(status=Status.INFRA), code=triton("C"))  # nobody's fault
    search.model("D", verdict(1.0), code=triton("D"), mended="I would rather not.")
    search.model("E", verdict(1.0), code=triton("E"), job="Another prompt.")
    search.model("F", verdict(1.0), code=triton("F"), status=CallStatus.COMPLETED, reply=" ")
    [row], removed = rows(search, "autotriton_rl@1", "group")
    assert [step.sequence for step in row.steps] == [0, 1, 2]
    assert row.prompt == row.steps[0].prompt
    assert row.completions == (wrote("A"), "no Triton", "I cannot.")
    assert row.rewards == (1.0, 0.0, 0.0)
    expected = [2 / math.sqrt(3), -1 / math.sqrt(3), -1 / math.sqrt(3)]
    assert row.advantages == pytest.approx(expected, abs=1e-5)
    assert removed == {
        "no verdict, or one that says nothing": 1,
        "answered when asked to correct an answer": 1,
        "no text of a reply is stored": 1,
        "no other answer to its prompt": 1,
    }
