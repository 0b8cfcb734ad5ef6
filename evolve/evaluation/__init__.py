"""The judge's clients: a local worker process, and a replay of recorded verdicts."""

from evolve.evaluation.local import LocalEvaluator
from evolve.evaluation.process import Deadlines, WorkerDied
from evolve.evaluation.replay import ReplayEvaluator

__all__ = ["Deadlines", "LocalEvaluator", "ReplayEvaluator", "WorkerDied"]
