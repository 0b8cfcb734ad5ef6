"""The judge's clients: workers in places here or elsewhere, and a replay of recorded verdicts."""

from evolve.evaluation.local import LocalEvaluator
from evolve.evaluation.pooled import PooledEvaluator
from evolve.evaluation.replay import ReplayEvaluator
from evolve.worker.service.dispatch.faults import WorkerDied
from evolve.worker.service.dispatch.place import Deadlines

__all__ = [
    "Deadlines",
    "LocalEvaluator",
    "PooledEvaluator",
    "ReplayEvaluator",
    "WorkerDied",
]
