"""How fast a long run is exported for a trainer, in how much memory, and how large it becomes.

    python -m tests.benchmarks.bench_trainers --sizes 1000,10000

The database is that of `bench_export`; a fresh process writes each kind of files. Rows are looked
through for held-out tasks and keys, as in every export; `--held-out` names the tasks (KernelBench
in a checkout, for instance), by default one.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from evolve.store import Store
from evolve.trajectories.decontamination.exclusions import Rules
from evolve.trajectories.decontamination.holdout import hold_out
from evolve.trajectories.exporters.export import Plan, export
from evolve.trajectories.exporters.formats import find_format
from evolve.trajectories.views.recipes import find_recipe
from tests.benchmarks.bench_export import converse
from tests.benchmarks.bench_store import grow
from tests.benchmarks.conditions import memory_mb, print_conditions

WAYS = {
    "jsonl": ("trl-kto", "kto@1", False),
    "parquet": ("trl-kto", "kto@1", True),
    "gains": ("trl-sft", "kernel_smith@2", False),
}


def main() -> None:
    options = _options()
    if options.measure:
        print(json.dumps(measure(options.measure, options.way, options.held_out)))
        return
    print_conditions()
    print(
        f"{'steps':>9} {'way':>8} {'rows':>9} {'seconds':>8} {'cpu s':>7} {'rows/s':>7} "
        f"{'rows/cpu s':>10} {'memory MB':>10} {'files MB':>9}"
    )
    with tempfile.TemporaryDirectory(dir=options.dir) as folder:
        path = Path(folder) / "bench.db"
        for size in map(int, options.sizes.split(",")):
            grow(path, size)
            converse(path)
            for way in WAYS:
                row = _in_fresh_process(path, way, options.held_out)
                print(
                    f"{size:>9} {way:>8} {row['rows']:>9.0f} {row['seconds']:>8.1f} "
                    f"{row['cpu_s']:>7.1f} {row['rows'] / row['seconds']:>7.0f} "
                    f"{row['rows'] / row['cpu_s']:>10.0f} "
                    f"{row['memory_mb']:>10.0f} {row['files_mb']:>9.0f}",
                    flush=True,
                )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="1000,10000", help="ascending")
    parser.add_argument("--dir", help="folder for the database (ten GB at 10^6)")
    parser.add_argument("--held-out", default="examples/tasks/softmax/task.py")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--way", help=argparse.SUPPRESS)
    return parser.parse_args()


def _in_fresh_process(path: Path, way: str, held_out: str) -> dict[str, float]:
    command = [sys.executable, "-m", "tests.benchmarks.bench_trainers"]
    command += ["--measure", str(path), "--way", way, "--held-out", held_out]
    answer = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(answer.stdout)
    return found


def measure(path: Path, way: str, held_out: str) -> dict[str, float]:
    """Export the whole run in one way."""
    target, recipe, parquet = WAYS[way]
    plan = Plan(
        format=find_format(target),
        recipe=find_recipe(recipe),
        rules=Rules(held_out=hold_out([held_out])),
        parquet=parquet,
    )
    with (
        Store.open(path, read_only=True) as store,
        tempfile.TemporaryDirectory(dir=path.parent) as folder,
    ):
        start, cpu = time.perf_counter(), time.process_time()
        made = export(store, store.runs(), Path(folder) / "out", plan, lambda *_: None)
        return {
            "rows": sum(made.rows["labelled" if target == "trl-kto" else "supervised"].values()),
            "seconds": time.perf_counter() - start,
            "cpu_s": time.process_time() - cpu,
            "memory_mb": memory_mb(),
            "files_mb": sum(shard.bytes for shard in made.shards) / 1e6,
        }


if __name__ == "__main__":
    main()
