"""The judge's clients: workers in places here or elsewhere, and a replay of recorded verdicts."""

from evolve.evaluation.faults import WorkerDied
from evolve.evaluation.local import LocalEvaluator
from evolve.evaluation.place import Deadlines
from evolve.evaluation.pooled import PooledEvaluator
from evolve.evaluation.replay import ReplayEvaluator

__all__ = ["Deadlines", "LocalEvaluator", "PooledEvaluator", "ReplayEvaluator", "WorkerDied"]
