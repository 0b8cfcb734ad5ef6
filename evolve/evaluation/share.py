"""One search's share of a judge that several have."""

from collections.abc import Callable
from dataclasses import dataclass

from evolve.core.evaluation import Evaluation
from evolve.core.protocols import EvaluationRequest, Evaluator


@dataclass(frozen=True, slots=True)
class Share:
    """A judge whose slots are divided among the searches that have something for it.

    A search that saw all of them would have as many proposals wait in the queue, each made without
    the outcome of the others. It has one more than its share, so that no slot waits for its answer.

    Args:
        judge: of all of them.
        searches: how many have something for it now; those that only wait for models do not count.
        taken: slots that the measurements of winners have now.
    """

    judge: Evaluator
    searches: Callable[[], int]
    taken: Callable[[], int]

    @property
    def slots(self) -> int:
        free = max(1, self.judge.slots - self.taken())
        return min(free, -(-free // max(1, self.searches())) + 1)

    @property
    def device_class(self) -> str:
        return self.judge.device_class

    @property
    def evaluator_version(self) -> str:
        return self.judge.evaluator_version

    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        return await self.judge.evaluate(request)

    async def close(self) -> None:
        """Nothing: the judge is closed by its owner."""
