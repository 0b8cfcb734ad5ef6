"""The current work of a search, in words."""

import time

from evolve.app.text import elapsed_text
from evolve.core.lineage import VERIFY
from evolve.core.protocols import Evaluator
from evolve.evaluation import LocalEvaluator
from evolve.report.text import count_text, one_line
from evolve.search.execution.judging import UnderWay
from evolve.search.execution.pipeline import Pipeline

MAX_PHASE = 100  # characters


def under_way(pipeline: Pipeline, evaluator: Evaluator) -> list[str]:
    """A line for each evaluation that is under way, and one for the calls of models."""
    now = time.monotonic()
    lines = [_evaluation(each, pipeline, evaluator, now) for each in pipeline.under_way]
    if calls := pipeline.calls_since:
        of = "" if len(calls) == 1 else "the oldest "
        waited = elapsed_text(now - calls[0])
        lines.append(f"{count_text(len(calls), 'model call')} under way, {of}{waited}")
    return lines or ["choosing the next step"]


def _evaluation(each: UnderWay, pipeline: Pipeline, evaluator: Evaluator, now: float) -> str:
    phase = "judging"
    if isinstance(evaluator, LocalEvaluator):
        phase = evaluator.phase_of(each.instance) or "waiting for the judge"
    phase, took = one_line(phase, MAX_PHASE), elapsed_text(now - each.since)
    if each.ticket.operator != VERIFY:
        return f"#{each.ticket.sequence} {each.ticket.operator}: {phase}, {took}"
    about_s = pipeline.verification_s
    about = f" of about {elapsed_text(about_s)}" if about_s else ""
    return f"#{each.ticket.sequence} verifying the best in fresh processes: {phase}, {took}{about}"
