"""Rewards: pure functions of stored evaluations, pinned by name and version.

>>> reward("dr_kernel@1").source
'Dr. Kernel, arXiv 2602.05885'
"""

from evolve.trajectories.rewards.lookup import (
    Pipeline,
    pipeline,
    reward,
    reward_names,
    shaping_names,
)
from evolve.trajectories.rewards.reward import Grade, Reward, grade, worth
from evolve.trajectories.rewards.shaping import Tree, keep_probability, keeps_match

__all__ = [
    "Grade",
    "Pipeline",
    "Reward",
    "Tree",
    "grade",
    "keep_probability",
    "keeps_match",
    "pipeline",
    "reward",
    "reward_names",
    "shaping_names",
    "worth",
]
