"""Preference pairs: steps from the same parents, with the same job, that differ beyond the error.

Both were correct, so the preference is for speed. Each step is in one pair at most: the fastest of
a family with its slowest, then the next ones inwards, as long as their intervals are apart.
"""

import math
from array import array
from collections.abc import Iterator, Sequence

from evolve.core.digest import canonical_json, framed_digest
from evolve.core.measurement import Ratio
from evolve.trajectories.step import Step, comparable
from evolve.trajectories.views.prompts import job_of
from evolve.trajectories.views.rows import Preference
from evolve.trajectories.views.turns import completion


class Families:
    """Collects candidates for pairs; some forty bytes for each, no texts."""

    def __init__(self) -> None:
        self._names: dict[bytes, int] = {}
        self._of = array("I")
        self._sequences = array("I")
        self._ratios = array("d")  # value, low, high

    def add(self, step: Step) -> None:
        """Take a step that is correct and timed, with its texts."""
        if step.ratio is None:
            raise ValueError(f"step {step.id} has no ratio")
        name = bytes.fromhex(_family(step))[:16]
        self._of.append(self._names.setdefault(name, len(self._names)))
        self._sequences.append(step.sequence)
        self._ratios.extend(step.ratio.to_json())

    def pairs(self) -> Iterator[tuple[int, int]]:
        """Sequence numbers of the better and the worse step, family by family."""
        members: list[list[int]] = [[] for _ in self._names]
        for place, family in enumerate(self._of):
            members[family].append(place)
        for places in members:
            yield from self._of_family(places)

    def _of_family(self, places: Sequence[int]) -> Iterator[tuple[int, int]]:
        ranked = sorted(places, key=lambda place: (-self._ratios[3 * place], place))
        for better, worse in zip(ranked, ranked[::-1], strict=True):
            if self._ratio(better).low <= self._ratio(worse).high:
                return
            yield self._sequences[better], self._sequences[worse]

    def _ratio(self, place: int) -> Ratio:
        return Ratio(*self._ratios[3 * place : 3 * place + 3])

    @property
    def count(self) -> int:
        """Candidates so far."""
        return len(self._sequences)


def _family(step: Step) -> str:
    """The common part of siblings: all parents, the main one as shown, and the request.

    So the answer of each is one to the prompt of the other, which may tell more of the search.
    """
    parent, judged = step.parent, step.evaluation
    shown = "" if parent is None else canonical_json(dict(parent.assignment))
    judge = "" if judged is None else f"{judged.device_class} {judged.evaluator_version}"
    return framed_digest(*step.parents, shown, step.operator, judge, job_of(step.prompt))


def preference(better: Step, worse: Step) -> Preference:
    """The row of a pair; its prompt is that of the earlier one, which cannot show the other.

    Raises:
        ValueError: they cannot be compared.
    """
    if better.ratio is None or worse.ratio is None:
        raise ValueError(f"steps {better.id} and {worse.id} need a ratio each")
    if not comparable(better.evaluation, worse.evaluation):
        raise ValueError(f"steps {better.id} and {worse.id} were not judged alike")
    earlier = min(better, worse, key=lambda step: step.sequence)
    return Preference(
        steps=(better, worse),
        prompt=earlier.prompt,
        chosen=completion(better),
        rejected=completion(worse),
        margin=math.log(better.ratio.value / worse.ratio.value),
    )
