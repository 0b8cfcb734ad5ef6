"""What composing a prompt costs, with all operators that ask a model.

    python -m tests.benchmarks.bench_prompts --sizes 1000,100000

The database of `bench_store` at each size, with a full archive of 10^4 programs; each sample is a
whole request: schedule, selection, everything that is read from the store, and the text. Times are
this process's own, so that other work on the machine does not count.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from archives import TopK
from evolve.app import components
from evolve.app.config.compose import compose
from evolve.app.manual.files import ByHand
from evolve.core.model import ModelRequest
from evolve.search.engine import Search
from evolve.search.selection import Tournament
from evolve.store import Store
from tests.benchmarks.bench_store import CAPACITY, grow
from tests.benchmarks.conditions import print_conditions

SAMPLES = 40
OPERATORS = "operators=[llm,universal,contrastive,macro_micro]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="1000,100000", help="ascending")
    parser.add_argument("--dir", help="folder for the database")
    options = parser.parse_args()
    print_conditions()
    print(f"{'stored':>9} {'operator':>14} {'median ms':>10} {'p95 ms':>8} {'characters':>11}")
    with tempfile.TemporaryDirectory(dir=options.dir) as folder:
        path = Path(folder) / "bench.db"
        for size in map(int, options.sizes.split(",")):
            grow(path, size)
            with Store.open(path) as store:
                measure(store, size)


def measure(store: Store, size: int) -> None:
    """Time every operator, after one request that fills the caches."""
    run = store.run()
    search = Search(
        store=store,
        run=run,
        archive=TopK(capacity=CAPACITY),
        selection=Tournament(size=4),
        operators=components.build_operators(compose(["task=rmsnorm", OPERATORS])),
        model=ByHand(),
    )
    for name in search.model_operators:
        milliseconds, characters = [], 0
        for _ in range(SAMPLES + 1):
            start = time.process_time()
            asked = search.preview(operators=[name])
            milliseconds.append(1e3 * (time.process_time() - start))
            if asked is not None and isinstance(asked.outcome, ModelRequest):
                characters = sum(len(message.content) for message in asked.outcome.messages)
        warm = milliseconds[1:]
        print(
            f"{size:>9} {name:>14} {statistics.median(warm):>10.2f} "
            f"{statistics.quantiles(warm, n=20)[-1]:>8.2f} {characters or '(declined)':>11}",
            flush=True,
        )


if __name__ == "__main__":
    main()
