"""How methods fare on landscapes with a planted optimum, each alone and as arms of a portfolio.

    python -m tests.benchmarks.bench_landscapes --seeds 30 --out landscapes.jsonl
    python -m tests.benchmarks.bench_landscapes --out landscapes.jsonl --table

Every run has the real engine, a database, the archive `tree`, the operator `remeasure`, and as many
evaluations; the score is the true one of its leader, from the start (0) to the optimum (1). An
evaluation is priced like a call of a model, 0.02 USD, so that the portfolio's bandit has something
to go by. Runs can be cut short: what is in the file is not done again.
"""

import argparse
import json
import math
import os
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from evolve.core.protocols import SelectionPolicy
from evolve.search import selection
from evolve.search.methods import Method
from evolve.search.schedule import Bandit, Scheduled
from evolve.store import Store
from evolve.testing.landscapes import family
from operators import Remeasure
from tests.benchmarks.conditions import print_conditions
from tests.search.climbing import climbed, progress

PORTFOLIO = "portfolio"
NAMES = ("deceptive", "multi_modal", "noisy", "plateau", "needle")
USD_PER_EVALUATION = 0.02

Job = tuple[str, str, int, int]  # landscape, method, seed, evaluations


def arms() -> Mapping[str, SelectionPolicy]:
    """One method of each kind, as it ships."""
    return {
        "greedy": selection.Greedy(),
        "beam": selection.Beam(),
        "tournament": selection.Tournament(),
        "uct": selection.Uct(),
        "puct": selection.Puct(),
        "thompson": selection.Thompson(),
    }


def parts(method: str) -> dict[str, Any]:
    """What makes a search one of a method, or of all of them."""
    if method != PORTFOLIO:
        return {"selection": arms()[method]}
    return {
        "selection": selection.Greedy(),
        "methods": {
            name: Method(selection=policy, weights={"mutate": 1.0})
            for name, policy in arms().items()
        },
        "schedule": Bandit(usd_per_device_hour=3600 * USD_PER_EVALUATION),
    }


def score(job: Job) -> float:
    """The final score of a run."""
    name, method, seed, evaluations = job
    landscape = family(seed)[name]
    again = {"remeasure": Scheduled(operator=Remeasure(), weight=math.inf)}
    with (
        tempfile.TemporaryDirectory() as folder,
        Store.open(Path(folder) / "evolve.db", create=True) as store,
    ):
        search = climbed(
            store, landscape, seed=seed, evaluations=evaluations, others=again, **parts(method)
        )
        return progress(search, landscape)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=1, help="30 for figures: an hour")
    parser.add_argument("--evaluations", type=int, default=150)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path, help="JSON lines; kept and continued")
    parser.add_argument("--table", action="store_true", help="print what the file holds")
    options = parser.parse_args()
    print_conditions()
    with tempfile.TemporaryDirectory() as folder:
        options.out = options.out or Path(folder) / "landscapes.jsonl"
        if not options.table:
            run(options)
        print_table(options.out)


def run(options: argparse.Namespace) -> None:
    done = {tuple(row["job"]) for row in rows(options.out)}
    jobs = [
        (name, method, seed, options.evaluations)
        for seed in range(options.seeds)
        for name in NAMES
        for method in (*arms(), PORTFOLIO)
    ]
    waiting = [job for job in jobs if job not in done]
    with ProcessPoolExecutor(options.jobs) as pool, options.out.open("a") as out:
        for job, found in zip(waiting, pool.map(score, waiting), strict=True):
            print(json.dumps({"job": job, "score": found}), file=out, flush=True)


def rows(path: Path) -> Iterator[dict[str, Any]]:
    if path.exists():
        yield from map(json.loads, path.read_text().splitlines())


def print_table(path: Path) -> None:
    scores: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in rows(path):
        name, method, *_ = row["job"]
        scores[name, method].append(row["score"])
    print(f"{'mean score':<12}" + "".join(f"{name:>17}" for name in NAMES))
    for method in (*arms(), PORTFOLIO):
        cells = "".join(f"{cell(scores[name, method]):>17}" for name in NAMES)
        print(f"{method:<12}{cells}")
    for name in NAMES:
        alone = sorted(statistics.mean(scores[name, method]) for method in arms())
        ours = statistics.mean(scores[name, PORTFOLIO])
        print(
            f"{name}: portfolio {ours:.2f}, best arm {alone[-1]:.2f}, "
            f"median arm {statistics.median(alone):.2f}"
        )


def cell(scores: list[float]) -> str:
    """The mean with its standard error, and how many runs it is of."""
    error = statistics.stdev(scores) / math.sqrt(len(scores)) if len(scores) > 1 else math.nan
    return f"{statistics.mean(scores):.2f} ± {error:.2f} ({len(scores)})"


if __name__ == "__main__":
    main()
