"""The end of a run because no operator has anything to propose."""

from evolve.core.lineage import NO_PROPOSALS
from evolve.search.engine import Search

NOTHING_LEFT = "nothing is left to propose"


def nothing_left(search: Search) -> str:
    """The reason for such an end: with that of each operator, if none has proposed a program."""
    progress, run = search.progress, search.run.id
    if progress.evaluations or progress.screens:
        return NOTHING_LEFT
    steps = [step for step in search.store.steps(run) if step.operator not in NO_PROPOSALS]
    if any(step.program for step in steps):
        return NOTHING_LEFT
    failed = {step.operator: step.failure for step in steps if step.failure}
    reasons = [f"{name}: {why}" for name, why in {**search.declined, **failed}.items()]
    return f"{NOTHING_LEFT}: {'; '.join(reasons)}" if reasons else NOTHING_LEFT
