"""A sitting of a run with a slow synthetic judge, for tests that send it signals.

python -m tests.cli.sitting DATABASE LATENCY_S
"""

import asyncio
import sys

from evolve.cli.session import search
from evolve.cli.stopping import stoppable
from evolve.cli.unattended import outliving_the_terminal
from evolve.store import Store
from evolve.testing.synthetic import SyntheticEvaluator, synthetic_task
from tests.cli.recording import settings


async def sit(path: str, latency_s: float) -> int:
    """Start or continue the run `demo`; the exit status of the command."""
    config = settings("name=demo", "termination.evaluations=300", "device.slots=2")
    with Store.open(path, create=True) as store:
        names = [run.name for run in store.runs()]
        if "demo" in names:
            run = store.run("demo")
        else:
            run = store.create_run(name="demo", task=synthetic_task(), config=config, seed=0)
        judge = SyntheticEvaluator(latency_s=latency_s, slots=2)
        print("sitting", flush=True)
        return await search(store, run, config, judge)


if __name__ == "__main__":
    with outliving_the_terminal(), stoppable(for_good=True):
        code = asyncio.run(sit(sys.argv[1], float(sys.argv[2])))
    sys.exit(code)
