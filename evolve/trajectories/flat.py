"""A step as one flat row of plain data, for analysis."""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from evolve.core.evaluation import Evaluation
from evolve.core.measurement import Ratio
from evolve.trajectories.decontamination.licences import licence_of
from evolve.trajectories.decontamination.splits import family_of
from evolve.trajectories.step import Step

_CANDIDATE = "candidate"


def flat(step: Step) -> dict[str, Any]:
    """The step as a row, units in the names of its columns, None if something is not known."""
    return _origin(step) | _texts(step) | _outcome(step)


def _origin(step: Step) -> dict[str, Any]:
    reply, sampling = step.reply, step.sampling
    return {
        "step_id": step.id,
        "run": step.run,
        "sequence": step.sequence,
        "created": step.created,
        "task": step.task.name,
        "task_revision": step.task.revision,
        "family": family_of(step.task),
        "licence": licence_of(step.task.source),
        "island": step.island,
        "generation": step.generation,
        "operator": step.operator,
        "made": step.made.value,
        "parents": list(step.parents),
        "program": step.program,
        "language": step.language,
        "model": step.model,
        "models": sorted(step.models),
        "temperature": None if sampling is None else sampling.temperature,
        "top_p": None if sampling is None else sampling.top_p,
        "seed": None if sampling is None else sampling.seed,
        "reasoning_effort": None if sampling is None else sampling.reasoning_effort,
        "stop": [] if sampling is None else list(sampling.stop),
        "prompt_tokens": reply.usage.prompt if reply and reply.usage else None,
        "completion_tokens": reply.usage.completion if reply and reply.usage else None,
        "cost_usd": _total(one.reply.cost_usd for one in step.exchanges),
    }


def _total(costs: Iterable[float | None]) -> float | None:
    """The sum of the costs; None if there are none, or one is unknown."""
    known = list(costs)
    return None if not known or None in known else sum(cost or 0.0 for cost in known)


def _texts(step: Step) -> dict[str, Any]:
    reply, known = step.reply, None if step.parent is None else step.parent.evaluation
    return {
        "prompt": [{"role": one.role, "content": one.content} for one in step.prompt],
        "completion": "" if reply is None else reply.text,
        "reasoning": "" if reply is None else reply.reasoning,
        "parent_code": "" if step.parent is None else step.parent.code,
        "child_code": step.code,
        "diff": _diff(step),
        "trace": None if step.trace is None else asdict(step.trace),
        "note": step.note,
        "failure": step.failure,
        "feedback_before": "" if known is None else known.feedback,
        "feedback_after": "" if step.evaluation is None else step.evaluation.feedback,
    }


def _diff(step: Step) -> str:
    """The child's changes of its main parent, as a unified diff; empty without either."""
    if step.parent is None or not step.code:
        return ""
    before, after = step.parent.code.splitlines(), step.code.splitlines()
    return "\n".join(difflib.unified_diff(before, after, "parent", "child", lineterm=""))


def _outcome(step: Step) -> dict[str, Any]:
    known = None if step.parent is None else step.parent.evaluation
    judged = step.evaluation
    environment: Mapping[str, str] = {} if judged is None else judged.environment
    return {
        "parent_status": None if known is None else known.status.value,
        "status": None if step.status is None else step.status.value,
        "stage": None if judged is None else int(judged.stage),
        "fidelity": step.fidelity.value,
        "correct": step.correct,
        "refuted": step.refuted,
        "suite": None if judged is None else judged.suite,
        "labels": list(step.labels),
        "baseline": step.baseline,
        **_ratio_json("ratio", step.ratio),
        **_ratio_json("gain", step.gain),
        "is_gain": None if step.gain is None else step.gain.is_gain,
        **_ratio_json("best_before", step.best_before),
        **_ratio_json("shown_best", step.shown_best),
        "descriptors": {} if judged is None else dict(judged.descriptors),
        "times_ms": _times(step.evaluation),
        "pairs": _pairs(step.evaluation),
        "parent_times_ms": _times(known),
        "on_best_path": step.on_best_path,
        "steering": list(step.steering),
        "device_class": None if judged is None else judged.device_class,
        "evaluator_version": None if judged is None else judged.evaluator_version,
        "environment": dict(environment),
    }


def _ratio_json(name: str, ratio: Ratio | None) -> dict[str, float | None]:
    bounds = (None, None, None) if ratio is None else ratio.to_json()
    return dict(zip((name, f"{name}_low", f"{name}_high"), bounds, strict=True))


def _times(evaluation: Evaluation | None) -> dict[str, list[float]]:
    """The candidate's median times with their intervals, by case."""
    cases = () if evaluation is None else evaluation.cases
    times = {case.name: case.times_ms.get(_CANDIDATE) for case in cases}
    return {name: time.to_json() for name, time in times.items() if time is not None}


def _pairs(evaluation: Evaluation | None) -> dict[str, int]:
    """How many pairs of processes those are of; empty if samples were not read or kept."""
    samples = {} if evaluation is None else evaluation.case_samples
    times = {case: found.ms for case, found in samples.items()}
    return {case: len(sides[_CANDIDATE]) for case, sides in times.items() if _CANDIDATE in sides}
