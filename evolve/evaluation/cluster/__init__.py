"""Judges on the nodes of a Ray cluster: an actor for each GPU, shared by all searches."""

from evolve.evaluation.cluster.evaluator import RayEvaluator, start_cluster

__all__ = ["RayEvaluator", "start_cluster"]
