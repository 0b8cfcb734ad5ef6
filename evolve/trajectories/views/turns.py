"""Rows out of single steps, and the words in which a verdict comes back to a model."""

import itertools

from evolve.core.evaluation import Evaluation, Status
from evolve.core.model import Message
from evolve.trajectories.rewards.reward import Grade, grade
from evolve.trajectories.step import Step
from evolve.trajectories.views.filters import whole_reply
from evolve.trajectories.views.prompts import job_of, programs_and_job_of
from evolve.trajectories.views.rows import Conversation, Example, PromptOnly
from operators.prompting.prompt_context import ratio_text
from operators.quoting import quote


def supervised(step: Step) -> Example:
    """The reply as an example to follow; `score` is the speedup over the parent."""
    return Example(
        steps=(step,),
        prompt=step.prompt,
        completion=completion(step),
        score=score_of(step),
        trace=step.trace,
    )


def labelled(step: Step) -> Example:
    """The reply as wanted or not, of a step for which that can be told."""
    return Example(
        steps=(step,),
        prompt=step.prompt,
        completion=completion(step),
        score=score_of(step),
        label=wanted(step),
    )


def prompt_only(step: Step) -> PromptOnly:
    """The prompt alone, whose answers are judged while training."""
    return PromptOnly(steps=(step,), prompt=step.prompt)


def completion(step: Step) -> str:
    """The model's answer in the round that decided."""
    return "" if step.reply is None else step.reply.text


def score_of(step: Step) -> float | None:
    """The speedup over the parent, as measured (`Step.advance`)."""
    return None if step.advance is None else step.advance.value


def wanted(step: Step) -> bool | None:
    """True for a correct program that is the first, a repair, or faster than its parent.

    False for one that failed or is slower; None in between, if the intervals do not tell, and if
    there is no verdict that says anything.
    """
    found = grade(step)
    if found is not Grade.CORRECT:
        return None if found is None else False
    if step.parent is None or step.parent.has_failed:
        return True
    if step.gain is None or not step.gain.excludes(1.0):
        return None
    return step.gain.is_gain


def verdict_text(evaluation: Evaluation, baseline: str) -> str:
    """A verdict as the next turn of a conversation tells it, the judge's own words quoted."""
    ratio = evaluation.ratios.get(baseline)
    said = f"Verdict: {evaluation.status}"
    if evaluation.status is Status.CORRECT:
        if evaluation.custom is False:
            said += ", but its outcome is not made by kernels of its own: it does not count"
        elif ratio is not None:
            said += f", {ratio_text(ratio, baseline)}"
    remarks = f"\n{quote(evaluation.feedback, 'remarks')}" if evaluation.feedback else ""
    return f"{said}.{remarks}"


def conversation(path: list[Step]) -> Conversation | None:
    """The steps from the first to the best program, as turns of one conversation.

    The first turn is the first prompt as it was sent. Every later one has the verdict on the turn
    before, and the request of its own step, in its words. A program made without a model stands
    there as the one to continue from, and so do all programs that were to be joined. None if no
    model made a step.
    """
    turns = [step for step in path if step.reply is not None and step.evaluation is not None]
    if not turns:
        return None
    messages = [*turns[0].prompt, Message("assistant", completion(turns[0]))]
    for before, step in itertools.pairwise(turns):
        messages += Message("user", _next(before, step)), Message("assistant", completion(step))
    examples = (None,) * sum(message.role == "assistant" for message in turns[0].prompt)
    return Conversation(
        steps=tuple(turns[::-1]),
        messages=tuple(messages),
        labels=(*examples, *map(_turn_label, turns)),
    )


def _turn_label(step: Step) -> bool | None:
    """`wanted`; None for a reply that was cut or lost, which the next turn answers all the same."""
    return None if whole_reply(step) else wanted(step)


def _next(before: Step, step: Step) -> str:
    """A step's message after the one before it: the verdict, and its own job."""
    parts = [verdict_text(before.evaluation, before.baseline)] if before.evaluation else []
    parent = step.parent
    if parent is not None and len(step.parents) > 1:
        parts.append(programs_and_job_of(step.prompt, parent.program))
        return "\n\n".join(parts)
    if parent is not None and (parent.program != before.program or parent.assignment):
        parts.append(f"Meanwhile the program has become\n{quote(parent.code, 'program')}")
        if parent.evaluation is not None:
            parts.append(verdict_text(parent.evaluation, step.baseline))
    return "\n\n".join((*parts, job_of(step.prompt)))
