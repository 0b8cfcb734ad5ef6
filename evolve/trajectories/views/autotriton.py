"""Rows as AutoTriton was trained on (arXiv 2507.05687): its instruction, reasoning, one program.

The instruction names the reference only. In front of the program is the reasoning that is stored
with the step. For a translation it is the model's thought, or else its text before the program. For
a compiler's program that was cleaned up it is the text, because the prompt asked for it.
"""

from collections.abc import Sequence

from evolve.core.model import Message
from evolve.trajectories.rewards import Tree, pipeline
from evolve.trajectories.step import Step
from evolve.trajectories.views.filters import Check, Filter, pinned
from evolve.trajectories.views.rows import Example, Group, PromptOnly
from evolve.trajectories.views.turns import score_of
from operators.llm.clean_up import NAME as CLEAN_UP
from operators.prompting.replies import prose_of, thought_of
from operators.quoting import quote

_REWARD = "autotriton@2+grpo@1"
_INSTRUCTION = """\
Implement the PyTorch module below with Triton kernels.

{task}

Think it through first. Then answer with one fenced `python` block: a complete module that defines
the class `ModelNew`, whose constructor and `forward` take what those of `Model` take and whose
result is the same, computed by Triton kernels that it launches."""


def instruction(step: Step) -> tuple[Message, ...]:
    """The request for the step's task, the same for every step of it."""
    return (Message("user", _INSTRUCTION.format(task=quote(step.task.source, "task"))),)


def reasoning(step: Step) -> str:
    """The reasoning that leads to the program; empty if none is stored."""
    if step.reply is None:
        return ""
    wrote = prose_of(step.reply.text)
    if step.operator == CLEAN_UP:
        return wrote
    return step.reply.reasoning.strip() or thought_of(step.reply.text) or wrote


def reasoned(step: Step) -> str:
    """There is reasoning to learn from."""
    return "" if reasoning(step) else "no reasoning is stored"


def one_for_a_task() -> Check:
    """A check that keeps the first step of each task."""
    seen: set[str] = set()

    def check(step: Step) -> str:
        known = step.task.revision in seen
        seen.add(step.task.revision)
        return "the same task as in an earlier row" if known else ""

    return check


REASONED = pinned("reasoned@1", reasoned, "AutoTriton, arXiv 2507.05687", reads_texts=True)
ONE_FOR_A_TASK = Filter(name="one_for_a_task@1", source="evolve-kernels", start=one_for_a_task)


def sft(step: Step) -> Example:
    """Instruction, then reasoning and program."""
    return Example(
        steps=(step,),
        prompt=instruction(step),
        completion=f"<think>\n{reasoning(step)}\n</think>\n\n```python\n{step.code.rstrip()}\n```",
        score=score_of(step),
    )


def prompt(step: Step) -> PromptOnly:
    """The instruction alone, for RL."""
    return PromptOnly(steps=(step,), prompt=instruction(step))


def group(steps: Sequence[Step]) -> Group:
    """Answers to one prompt with the reward, and GRPO's advantage among those that have one."""
    shaped = pipeline(_REWARD)
    scores = [shaped.reward.score(step) for step in steps]
    known = [step for step, score in zip(steps, scores, strict=True) if score is not None]
    rewards = [score for score in scores if score is not None]
    alone = Tree([-1] * len(known), [0] * len(known))
    advantages = shaped.shape(rewards, alone)
    return Group(
        steps=tuple(known),
        prompt=known[0].prompt,
        completions=tuple("" if step.reply is None else step.reply.text for step in known),
        rewards=tuple(rewards),
        advantages=tuple(value for value in advantages if value is not None),
    )
