"""`device=replay`: a judge that answers from recorded evaluations, for tests and re-runs."""

from typing import TYPE_CHECKING

from evolve.core.errors import EvaluatorUnavailable
from evolve.core.evaluation import Evaluation
from evolve.core.protocols import EvaluationRequest

if TYPE_CHECKING:
    from evolve.core.run_store import RunStore


class ReplayEvaluator:
    """Answers every request with the verdict that a recorded run holds on the same instance.

    Args:
        store: the database with the recorded run; may be another one than the search writes to.
        run: its row id.
    """

    slots = 1  # one at a time, so that the order of tells is the order of asks

    def __init__(self, store: "RunStore", run: int) -> None:
        self._store = store
        self._run = run
        self.device_class, self.evaluator_version = store.judge(run)

    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        """The recorded verdict.

        Raises:
            EvaluatorUnavailable: the run holds no verdict on this instance at this fidelity.
        """
        found = self._store.recorded(self._run, request.instance, request.fidelity, request.repeat)
        if found is None:
            raise EvaluatorUnavailable(
                f"device=replay: the recorded run holds no {request.fidelity} evaluation of "
                f"instance {request.instance[:12]}. Replay needs the same seed, task, operators, "
                "archive and selection as the recorded run, which must have been made with "
                "device.slots=1 and not ended by the clock; or take a device that can evaluate"
            )
        return found

    async def close(self) -> None:
        """Nothing to end: the recorded database belongs to its opener."""
