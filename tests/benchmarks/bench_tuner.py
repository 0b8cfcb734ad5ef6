"""The tuner against every instance of shipped templates, timed once and kept in a table.

    python -m tests.benchmarks.bench_tuner measure TABLE.json --seconds 230
    python -m tests.benchmarks.bench_tuner replay TABLE.json

`measure` takes templates in Triton where there is a CUDA device, and seeds in C++ elsewhere.
Workers compile instances side by side and time them one after the other, alone; on a CPU nothing is
compiled meanwhile. One that takes too long to compile or to run is killed with its worker, and does
not run. What is found is a line of TABLE.jsonl at once; at the end, when there is no more time or
upon a signal the lines become the table. What there was no time for is left out. (Where even the
parent was killed, `gather` makes a table of the lines; what compilers and dying workers say is in
TABLE.log.)
`replay` runs the tuner on the table, on any machine. An evaluation is any measurement that it asks
for, a screen or a full one, of an instance that it saw before too; the gap is how much slower than
the best of the table the one is that it would keep. A search asks again while measurements are
under way (`--at-once`), of which the tuner knows no more than that. Where a space is too large for
a table, choices are left out, and both say how much of it the table is. A tenth of a space of a
dozen would be the program as written: these are tuned to the end.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from evolve.core.source import tunables
from operators.local.tune import Tune
from tests.benchmarks.conditions import print_conditions
from tests.benchmarks.gpu_forks import Turns, hush, prepare
from tests.benchmarks.tuner_parent import Measuring, described, put_together
from tests.benchmarks.tuner_problems import DEVICE, PROBLEMS
from tests.benchmarks.tuner_replay import Run, Table

SMALL = 20
"""Instances; a space of fewer is tuned to the end."""
CLOSE = 0.02
"""A gap that is aimed at."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=("measure", "gather", "replay"))
    parser.add_argument("table", type=Path)
    parser.add_argument("--seconds", type=float, default=230, help="of measure, at most")
    parser.add_argument("--problems", default=",".join(PROBLEMS))
    parser.add_argument("--seeds", type=int, default=10, help="of replay")
    parser.add_argument("--percent", type=int, default=10, help="of the evaluations, of replay")
    parser.add_argument("--at-once", type=int, default=1, help="measurements under way, of replay")
    options = parser.parse_args()
    hush()
    print_conditions()
    if options.part == "replay":
        replay(options.table, range(options.seeds), options.percent, options.at_once)
        return
    if options.part == "measure":
        measure(options.table, options.problems.split(","), options.seconds)
    table = put_together(options.table.with_suffix(".jsonl"))
    options.table.write_text(json.dumps(table))
    print("\n".join(described(table)))


def measure(table: Path, names: Sequence[str], seconds: float) -> None:
    """Lines about all instances, in the order in which they are found."""
    until, cores = time.monotonic() + seconds, len(os.sched_getaffinity(0))
    if DEVICE == "cuda":
        prepare()
        cores = max(1, cores - 1)  # whoever is timed should not wait for one
    with tempfile.TemporaryDirectory() as folder:
        turns = Turns(Path(folder) / "lock")
        Measuring(names, table.with_suffix(".jsonl"), turns, cores).go(until)


# --- the tuner against it -------------------------------------------------------------------------


def replay(path: Path, seeds: Sequence[int], percent: int = 10, at_once: int = 1) -> None:
    """Print, for each program, how close the tuner comes with a share of all evaluations."""
    found = json.loads(path.read_text())
    print(f"{found['device']}: gaps after {percent} % of the evaluations, {len(seeds)} runs each")
    medians, shares = [], []
    for name, source in found["sources"].items():
        rows = [row for row in found["rows"] if row["problem"] == name]
        if not any(row["time_ms"] for row in rows):
            print(f"{name}: no times")
            continue
        table = Table.read(rows, source)
        budget = len(rows) * percent // 100 if len(rows) >= SMALL else 2 * len(rows)
        runs = [run(table, seed, budget, at_once) for seed in seeds]
        print(f"{name}: {_said(table, source, runs)}", flush=True)
        if len(rows) >= SMALL:
            medians.append(statistics.median(one.gap for one in runs))
            shares.append(_share(runs))
    if medians:
        print(
            f"{sum(median <= CLOSE for median in medians)} of {len(medians)} programs of {SMALL} "
            f"instances or more are within {CLOSE:.0%}, and {statistics.mean(shares):.0%} of runs"
        )


def _share(runs: Sequence[Run]) -> float:
    return statistics.mean(one.gap <= CLOSE for one in runs)


def _said(table: Table, source: str, runs: Sequence[Run]) -> str:
    gaps = sorted(one.gap for one in runs)
    evaluations = statistics.median(one.evaluations for one in runs)
    full = statistics.median(len(one.measured) for one in runs)
    written = table.time(table.written)
    return (
        f"{len(table.times)} of {tunables.parse(source).size} instances, "
        f"{evaluations:.0f} evaluations of which {full:.0f} in full, "
        f"gap {statistics.median(gaps):.1%} ({gaps[0]:.1%} to {gaps[-1]:.1%}, "
        f"{_share(runs):.0%} of runs within {CLOSE:.0%}); as written "
        f"{f'{written / table.best - 1:.1%}' if written else 'it does not run'}"
    )


def run(table: Table, seed: int, budget: int, at_once: int = 1) -> Run:
    """So many evaluations, or as many as the tuner asks for."""
    one, operator = Run(table, seed, at_once), Tune()
    while one.evaluations < budget and one.step(operator):
        pass
    return one


if __name__ == "__main__":
    main()
