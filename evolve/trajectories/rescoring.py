"""A stored run scored again: no device, no model."""

from collections.abc import Sequence
from dataclasses import dataclass

from evolve.store import Store
from evolve.trajectories.rewards import Pipeline, Tree
from evolve.trajectories.rewards.shaping import Scores
from evolve.trajectories.step import Made
from evolve.trajectories.steps import History


@dataclass(frozen=True, slots=True)
class Rescored:
    """Numbers of the steps of a run that were scored, and what each reward gives them.

    `history` has gone through the run: its `at` gives the steps.
    """

    history: History
    sequences: Sequence[int]
    scores: Sequence[Scores]


def rescore(store: Store, run_id: int, pipelines: Sequence[Pipeline]) -> Rescored:
    """Score every step of the search that made or failed to make something new.

    Raises:
        UsageError: there is no such run.
    """
    samples = any(one.reward.needs_samples for one in pipelines)
    texts = any(one.reward.needs_texts for one in pipelines)
    places: dict[int, int] = {}  # of steps, by number
    parents: list[int] = []
    groups: list[int] = []
    prompts: dict[str, int] = {}
    scores: list[list[float | None]] = [[] for _ in pipelines]
    history = History(store, run_id)
    for step in history.steps(texts=texts, samples=samples):
        if not step.is_search or step.made is Made.AGAIN:
            continue
        place = places[step.sequence] = len(places)
        parents.append(places.get(-1 if step.parent_step is None else step.parent_step, -1))
        groups.append(prompts.setdefault(step.prompt_key or f"step {place}", len(prompts)))
        for one, given in zip(pipelines, scores, strict=True):
            given.append(one.reward.score(step))
    tree = Tree(parents, groups)
    shaped = [one.shape(given, tree) for one, given in zip(pipelines, scores, strict=True)]
    return Rescored(history, list(places), shaped)
