"""A small transformer of the tests: its parts by share of time, and a winner put back.

    python -m tests.benchmarks.bench_capture --steps 20 --pairs 10

Prints the table of `evolve tasks capture`, the judge's verdict on a C++ kernel for one part
(`evolve eval`), and the gain of the whole script with that kernel (`evolve apply`).
"""

import argparse
import tempfile
from pathlib import Path

from evolve.cli.main import main as evolve
from tests.benchmarks.conditions import print_conditions

SCRIPTS = Path(__file__).parents[1] / "capture" / "scripts"
PART, KERNEL = "new_gelu.py", SCRIPTS / "new_gelu_cpp.py"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", default="20", help="of the script")
    parser.add_argument("--pairs", default="10", help="of processes")
    options = parser.parse_args()
    print_conditions()
    own = ["--", "--steps", options.steps]
    script = str((SCRIPTS / "transformer.py").relative_to(Path.cwd()))
    with tempfile.TemporaryDirectory() as place:
        evolve(["tasks", "capture", script, "--out", place, *own])
        task = str(Path(place) / PART)
        evolve(["eval", str(KERNEL), "--task", task, "--store", str(Path(place) / "none.db")])
        winner = f"{task}={KERNEL}"
        evolve(["apply", script, "--winner", winner, "--pairs", options.pairs, *own])


if __name__ == "__main__":
    main()
