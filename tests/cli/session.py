"""A session of a run with a slow synthetic judge, for tests of how it ends.

python -m tests.cli.session DATABASE LATENCY_S [KEY=VALUE ...]

Besides settings of the run there are `verify=`, the latency of verifications, `slow_from=`, the
number of the first evaluation that takes a minute, and `late=`, `LATE_S` of the pipeline.
"""

import asyncio
import os
import sys
import threading
from collections.abc import Mapping, Sequence

from evolve.cli.detached_output import outliving_the_terminal
from evolve.cli.main import LOADING, USAGE
from evolve.cli.signals import stoppable
from evolve.core.errors import StoreError
from evolve.core.evaluation import Evaluation, Fidelity
from evolve.core.protocols import EvaluationRequest
from evolve.search.execution.deadline import LATE_S
from evolve.store import Store
from evolve.testing.synthetic import SyntheticEvaluator, synthetic_task
from tests.cli.at_terminal import search
from tests.cli.recording import settings


class Judge(SyntheticEvaluator):
    """Takes as long as it is told."""

    def __init__(self, latency_s: float, timing: Mapping[str, float]) -> None:
        super().__init__(slots=2)
        self._usual_s = latency_s
        self._timing = timing

    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        is_slow = self.calls >= self._timing.get("slow_from", 1e9)
        self.latency_s = 60.0 if is_slow else self._usual_s
        if request.fidelity is Fidelity.VERIFY:
            self.latency_s = self._timing.get("verify", self._usual_s)
        return await super().evaluate(request)


async def sit(path: str, latency_s: float, words: Sequence[str] = ()) -> int:
    """Start or continue the run `demo`; the exit status of the command."""
    own = [word for word in words if "." not in word.partition("=")[0]]
    timing = {key: float(value) for key, _, value in (word.partition("=") for word in own)}
    of_run = [word for word in words if word not in own]
    config = settings("name=demo", "termination.evaluations=300", "device.slots=2", *of_run)
    with Store.open(path, create=True) as store:
        names = [run.name for run in store.runs()]
        if "demo" in names:
            run = store.run("demo")
        else:
            run = store.create_run(name="demo", task=synthetic_task(), config=config, seed=0)
        judge = Judge(latency_s, timing)
        print("session", flush=True)
        return await search(store, run, config, judge, late_s=timing.get("late", LATE_S))


if __name__ == "__main__":
    with outliving_the_terminal(), stoppable(for_good=True):
        try:
            code = asyncio.run(sit(sys.argv[1], float(sys.argv[2]), sys.argv[3:]))
        except StoreError as error:  # as `evolve` does
            print(f"evolve: {error}", file=sys.stderr)
            code = USAGE
    if any(thread.name == LOADING for thread in threading.enumerate()):  # as `evolve` does
        sys.stdout.flush()
        os._exit(code)
    sys.exit(code)
