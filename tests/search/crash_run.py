"""One process of the crash test: resumes the run of a database, and keeps a journal of starts.

Usage: python -m tests.search.crash_run DATABASE JOURNAL EVALUATIONS
"""

import asyncio
import math
import os
import sys
from dataclasses import replace
from pathlib import Path

from evolve.core.protocols import Context, EvaluationRequest, Proposal
from evolve.search.execution.pipeline import Pipeline
from evolve.search.schedule import Scheduled
from evolve.search.termination import from_config
from evolve.store import Store
from evolve.testing.synthetic import SyntheticEvaluator, synthetic_task
from operators import Remeasure
from tests.search.conftest import Variants, make_search, operators, variants


class Children(Variants):
    """New programs that are children of one that is held."""

    parents = 1

    def propose(self, context: Context) -> Proposal:
        parents = tuple(elite.program for elite in context.parents)
        return replace(super().propose(context), parents=parents)


class Journalled(SyntheticEvaluator):
    """Writes a line before each evaluation, with a system call that survives kill -9."""

    def __init__(self, path: Path) -> None:
        super().__init__(slots=3, latency_s=0.01, noise=0.05)
        self._journal = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    async def evaluate(self, request: EvaluationRequest):
        line = f"{request.instance} {request.fidelity} {request.repeat}\n"
        os.write(self._journal, line.encode())
        return await super().evaluate(request)


def main(database: str, journal: str, evaluations: str) -> None:
    store = Store.open(database, create=True)
    if not store.runs():
        store.create_run(
            name="crash",
            task=synthetic_task(),
            config={"baseline": "eager"},
            seed=3,
        )
    remeasure = Scheduled(operator=Remeasure(least=0.0), weight=math.inf)
    parts = operators() | variants() | {"remeasure": remeasure}
    parts |= {"children": Scheduled(operator=Children())}
    search = make_search(store, store.run("crash"), operators=parts)
    limits = from_config({"evaluations": int(evaluations)})
    asyncio.run(Pipeline(search, Journalled(Path(journal)), limits).run())
    store.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
