"""A stored run scored again: no device, no model."""

import bisect
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from evolve.core.digest import framed_digest
from evolve.store import Store
from evolve.trajectories.rewards import Pipeline, Tree
from evolve.trajectories.rewards.shaping import Scores
from evolve.trajectories.step import Made, Step
from evolve.trajectories.steps import History


@dataclass(frozen=True, slots=True)
class Rescored:
    """Numbers of the steps of a run that were scored, and their score under each reward.

    `history` has gone through the run: its `at` gives the steps. `unknown` counts, for each reward,
    the reasons why steps have no score.
    """

    history: History
    sequences: Sequence[int]
    scores: Sequence[Scores]
    unknown: Sequence[Counter[str]]


class _Places:
    """How the steps that are scored hang together, in a few bytes for each."""

    def __init__(self) -> None:
        self.sequences = array("I")
        self._parents = array("i")
        self._prompts = array("Q")  # beginnings of digests

    def add(self, step: Step) -> None:
        """Take the next step."""
        self._parents.append(-1 if step.parent_step is None else self._place(step.parent_step))
        key = step.prompt_key or framed_digest("no prompt", str(step.sequence))
        self._prompts.append(int(key[:16], 16))
        self.sequences.append(step.sequence)

    def _place(self, sequence: int) -> int:
        place = bisect.bisect_left(self.sequences, sequence)
        is_there = place < len(self.sequences) and self.sequences[place] == sequence
        return place if is_there else -1

    def tree(self) -> Tree:
        """The steps so far."""
        _, groups = np.unique(np.asarray(self._prompts), return_inverse=True)
        return Tree(self._parents, groups.tolist())


def rescore(store: Store, run_id: int, pipelines: Sequence[Pipeline]) -> Rescored:
    """Score every step of the search that made or failed to make something new.

    Raises:
        UsageError: there is no such run.
    """
    samples = any(one.reward.needs_samples for one in pipelines)
    texts = any(one.reward.needs_texts for one in pipelines)
    history = History(store, run_id)
    places = _Places()
    scores: list[list[float | None]] = [[] for _ in pipelines]
    unknown: list[Counter[str]] = [Counter() for _ in pipelines]
    for step in history.steps(texts=texts, samples=samples):
        if not step.is_search or step.made is Made.AGAIN:
            continue
        places.add(step)
        for one, given, why in zip(pipelines, scores, unknown, strict=True):
            given.append(one.reward.score(step))
            if given[-1] is None:
                why[one.reward.why_unknown(step)] += 1
    tree = places.tree()
    shaped = [one.shape(given, tree) for one, given in zip(pipelines, scores, strict=True)]
    return Rescored(history, places.sequences, shaped, unknown)
