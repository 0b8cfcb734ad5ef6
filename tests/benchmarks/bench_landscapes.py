"""How presets fare on landscapes with a planted optimum, beside the portfolio and each of its arms.

    python -m tests.benchmarks.bench_landscapes --seeds 10 --out landscapes.jsonl
    python -m tests.benchmarks.bench_landscapes --out landscapes.jsonl --table

`preset:NAME` is `search=NAME`, every part as `conf/` composes it; `arm:NAME` is the portfolio with
that arm alone. A scripted model stands for the language model: it reads the operators' prompts and
answers with small random changes (`tests/search/landscape_model.py`), for 0.02 USD a call.
`own:NAME` is a preset to the end of its own budget, and `portfolio:NUMBER` the portfolio with so
many evaluations; presets without a budget in proposals have as many evaluations as all others.
`policy:NAME` is a selection policy on the archive `tree` with `remeasure`, children made without a
prompt; `policy:portfolio` has all of them as arms. All have as many evaluations; what ends a preset
otherwise does not count. The score is the true one of the verified champion, from the start (0) to
the optimum (1). It may be cut short at any time: each row is in the file as soon as its run ends,
and is not made again. Processor time is in the rows too, and what is left is forecast by it.
`--own-budgets` leaves out `needle`, on which no method can do anything but guess.
"""

import argparse
import math
import os
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from pathlib import Path
from typing import Any

from evolve.app.config.locate import config_dir
from evolve.core.protocols import SelectionPolicy
from evolve.search import selection
from evolve.search.methods import Method
from evolve.search.schedule import Bandit, Scheduled
from evolve.store import Store
from evolve.testing.landscapes import family
from operators import Remeasure
from tests.benchmarks import json_lines
from tests.benchmarks.conditions import print_conditions
from tests.search.climbing import climbed, verified
from tests.search.composed import preset, searched, verified_progress

LANDSCAPES = ("deceptive", "multi_modal", "noisy", "plateau", "needle")
PORTFOLIOS = {"arm:": "preset:portfolio", "policy:": "policy:portfolio"}  # what has arms as which
NEED_OTHERS = {"posterior", "contrast", "repairs"}  # arms that need several programs, or failures

Job = tuple[str, str, int, int]  # landscape, method, seed, evaluations
Scores = Mapping[tuple[str, str], Sequence[float]]  # by landscape and method


def policies() -> Mapping[str, SelectionPolicy]:
    """One policy of each kind, as it ships."""
    return {
        "greedy": selection.Greedy(),
        "beam": selection.Beam(),
        "tournament": selection.Tournament(),
        "uct": selection.Uct(),
        "puct": selection.Puct(),
        "thompson": selection.Thompson(),
    }


def presets() -> list[str]:
    """All that search by a method of their own, the portfolio first."""
    found = {path.stem for path in (config_dir() / "search").glob("*.yaml")}
    return ["portfolio", *sorted(found - {"portfolio", "quick", "seeds"})]


def policy_parts(name: str) -> dict[str, Any]:
    """What makes a search one of a policy, or of all of them."""
    if name != "portfolio":
        return {"selection": policies()[name]}
    return {
        "selection": selection.Greedy(),
        "methods": {
            each: Method(selection=policy, weights={"mutate": 1.0})
            for each, policy in policies().items()
        },
        "schedule": Bandit(),
    }


@cache
def arms() -> list[str]:
    """The portfolio's arms that can begin alone, with one program."""
    return [name for name in preset("portfolio")["methods"] if name not in NEED_OTHERS]


def own_budgets() -> list[str]:
    """All presets at their own budgets, and the portfolio at those that are usual."""
    return [
        *(f"own:{name}" for name in presets() if name not in ("portfolio", "single", "greedy")),
        *(f"portfolio:{number}" for number in (50, 100, 300)),
    ]


def methods() -> list[str]:
    return [
        *(f"preset:{name}" for name in presets()),
        *(f"arm:{name}" for name in arms()),
        *(f"policy:{name}" for name in ("portfolio", *policies())),
    ]


@cache
def composed(method: str) -> Mapping[str, Any]:
    """The configuration of a preset, or of an arm of the portfolio on its own."""
    kind, _, name = method.partition(":")
    if kind in ("preset", "own", "portfolio"):
        return preset("portfolio" if kind == "portfolio" else name)
    config = preset("portfolio")
    config["methods"] = {name: config["methods"][name]}
    named = {*config["methods"][name]["operators"], "seed", "remeasure"}
    config["operators"] = {
        operator: node if operator in named else None
        for operator, node in config["operators"].items()
    }
    return config


def score(job: Job) -> float:
    """The final score of a run."""
    name, method, seed, evaluations = job
    landscape = family(seed)[name]
    kind, _, policy = method.partition(":")
    with (
        tempfile.TemporaryDirectory() as folder,
        Store.open(Path(folder) / "evolve.db", create=True) as store,
    ):
        if kind == "policy":
            again = {"remeasure": Scheduled(operator=Remeasure(), weight=math.inf)}
            wanted = {"seed": seed, "evaluations": evaluations, **policy_parts(policy)}
            search = climbed(store, landscape, others=again, **wanted)
            verified(search, landscape)
        else:
            config = composed(method)
            has_own = kind == "own" and config["termination"]["proposals"] is not None
            most = None if has_own else int(policy) if kind == "portfolio" else evaluations
            search = searched(store, landscape, config, seed=seed, evaluations=most)
        return verified_progress(store, search.run, landscape)


def timed_score(job: Job) -> tuple[float, float]:
    """The final score of a run, and the seconds of processor time that it took."""
    start = time.process_time()
    found = score(job)
    return found, time.process_time() - start


def main() -> None:
    options = _options()
    print_conditions()
    with tempfile.TemporaryDirectory() as folder:
        out = options.out or Path(folder) / "landscapes.jsonl"
        if not options.table:
            chosen = own_budgets() if options.own_budgets else methods()
            chosen = options.methods.split(",") if options.methods else chosen
            seeds = range(options.first_seed, options.first_seed + options.seeds)
            names = [name for name in LANDSCAPES if name != "needle" or not options.own_budgets]
            run(out, jobs(chosen, seeds, options.evaluations, names), options.jobs)
        print_table(scores(out))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=1, help="10 for figures")
    parser.add_argument("--first-seed", type=int, default=0, help="100 to choose by other seeds")
    parser.add_argument("--evaluations", type=int, default=100)
    parser.add_argument("--methods", help="some of preset:NAME, arm:NAME, policy:NAME")
    parser.add_argument("--own-budgets", action="store_true", help="presets at those, no arms")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path, help="JSON lines; kept and continued")
    parser.add_argument("--table", action="store_true", help="print what the file holds")
    return parser.parse_args()


def jobs(
    chosen: Sequence[str],
    seeds: Sequence[int],
    evaluations: int,
    landscapes: Sequence[str] = LANDSCAPES,
) -> list[Job]:
    """Seed by seed, so that what is there when it is cut short can be compared."""
    return [
        (name, method, seed, evaluations)
        for seed in seeds
        for name in landscapes
        for method in chosen
    ]


def run(out: Path, wanted: Sequence[Job], processes: int) -> None:
    """Append a row to the file for each job that it lacks, as soon as it is done."""
    done = {tuple(row["job"]) for row in _rows(out)}
    waiting = [job for job in wanted if job not in done]
    print(f"{len(waiting)} runs to make{forecast(out, waiting, processes)}", flush=True)
    with ProcessPoolExecutor(processes) as pool:
        running = {pool.submit(timed_score, job): job for job in waiting}
        for ended in as_completed(running):
            found, seconds = ended.result()
            row = {"job": running[ended], "score": found, "cpu_s": round(seconds, 2)}
            json_lines.add(out, row)


def forecast(out: Path, waiting: Sequence[Job], processes: int) -> str:
    """How long they take on idle cores, by what runs of their methods took; empty if unknown."""
    taken: dict[str, list[float]] = defaultdict(list)
    for row in _rows(out):
        if "cpu_s" in row:
            taken[row["job"][1]].append(row["cpu_s"])
    if not waiting or any(job[1] not in taken for job in waiting):
        return ""
    hours = sum(statistics.mean(taken[job[1]]) for job in waiting) / processes / 3600
    return f", about {hours:.1f} h on {processes} idle cores"


def scores(out: Path) -> Scores:
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in _rows(out):
        name, method, *_ = row["job"]
        found[name, method].append(row["score"])
    return found


def _rows(path: Path) -> list[dict[str, Any]]:
    return json_lines.read(path) if path.exists() else []


def print_table(found: Scores) -> None:
    print(f"{'mean score':<22}" + "".join(f"{name:>17}" for name in LANDSCAPES))
    for method in dict.fromkeys(method for _, method in found):
        cells = [_cell(found[name, method]) for name in LANDSCAPES]
        print(f"{method:<22}" + "".join(f"{each:>17}" for each in cells))
    for name in LANDSCAPES:
        for kind, portfolio in PORTFOLIOS.items():
            alone = sorted(arm_means(found, name, kind))
            if alone and found[name, portfolio]:
                ours, median = statistics.mean(found[name, portfolio]), statistics.median(alone)
                best = f"best arm {alone[-1]:.2f}, median {median:.2f}"
                print(f"{name}: {portfolio} {ours:.2f}, {best}")


def arm_means(found: Scores, landscape: str, kind: str) -> list[float]:
    """The mean score of every arm alone."""
    return [
        statistics.mean(values)
        for (name, method), values in found.items()
        if name == landscape and method.startswith(kind) and values
        if method not in PORTFOLIOS.values()
    ]


def _cell(values: Sequence[float]) -> str:
    """The mean with half its 95 % interval over seeds, and how many there are."""
    if not values:
        return ""
    half = half_width(values) if len(values) > 1 else math.nan
    return f"{statistics.mean(values):.2f} ± {half:.2f} ({len(values)})"


def half_width(values: Sequence[float]) -> float:
    """Half the 95 % interval of a mean, by Student's t (its expansion in the normal quantile)."""
    z, freedom = 1.96, len(values) - 1
    t = z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
    return t * statistics.stdev(values) / math.sqrt(len(values))


if __name__ == "__main__":
    main()
