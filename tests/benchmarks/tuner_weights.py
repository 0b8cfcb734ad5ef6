"""Whether the numbers in what the tuner expects are owed to the tables that it is judged on.

    python -m tests.benchmarks.tuner_weights TABLE.json --draws 40

Draws numbers at random in place of those in `operators.local.tuning.expectation`, each up to four
times as large or as small. For each program it takes the draw that does best on all the other ones
(mean gap after a tenth of the evaluations, one above 30 % counted as 30 %), and prints how close
the tuner comes with that: whoever had chosen the numbers without this program would have seen it.
"""

import argparse
import json
import random
import statistics
from collections.abc import Mapping, Sequence
from multiprocessing import Pool
from pathlib import Path

from operators.local.tuning import expectation
from tests.benchmarks.bench_tuner import CLOSE, SMALL, run
from tests.benchmarks.conditions import print_conditions
from tests.benchmarks.tuner_replay import Table

NUMBERS = ("_OFF", "_IDLE", "_BUSY_WITH_PRODUCTS", "_BUSY", "_ROWS", "_SUMS", "_ELEMENTS")
_CAP = 0.3

Numbers = Mapping[str, float]
Gaps = Mapping[str, Sequence[float]]
"""By program, one for each seed."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("table", type=Path)
    parser.add_argument("--draws", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=10)
    options = parser.parse_args()
    print_conditions()
    shipped = {name: getattr(expectation, name) for name in NUMBERS}
    draws = [shipped, *(drawn(shipped, random.Random(k)) for k in range(options.draws))]
    with Pool() as pool:
        found = pool.starmap(gaps, [(options.table, each, options.seeds) for each in draws], 1)
    print("as shipped:", said(found[0]))
    others = [statistics.mean(map(capped, each.values())) for each in found[1:]]
    print(f"drawn at random: mean gaps {min(others):.1%} to {max(others):.1%}")
    print("chosen on the other programs:", said(left_out(found[1:])))


def drawn(shipped: Numbers, rng: random.Random) -> Numbers:
    return {name: value * 2.0 ** rng.randint(-2, 2) for name, value in shipped.items()}


def gaps(path: Path, numbers: Numbers, seeds: int) -> Gaps:
    """Of all programs but those with few instances."""
    for name, value in numbers.items():
        setattr(expectation, name, value)
    table = json.loads(path.read_text())
    found = {}
    for name, source in table["sources"].items():
        rows = [row for row in table["rows"] if row["problem"] == name]
        if len(rows) >= SMALL and any(row["time_ms"] for row in rows):
            known = Table.read(rows, source)
            found[name] = [run(known, seed, len(rows) // 10).gap for seed in range(seeds)]
    return found


def left_out(draws: Sequence[Gaps]) -> Gaps:
    """Of each program, with the draw that is best for the others."""

    def without(name: str, draw: Gaps) -> float:
        return statistics.mean(capped(each) for other, each in draw.items() if other != name)

    return {name: min(draws, key=lambda draw: without(name, draw))[name] for name in draws[0]}


def capped(each: Sequence[float]) -> float:
    return statistics.mean(min(gap, _CAP) for gap in each)


def said(found: Gaps) -> str:
    medians = {name: statistics.median(each) for name, each in found.items()}
    listed = ", ".join(f"{name} {median:.1%}" for name, median in medians.items())
    reached = sum(median <= CLOSE for median in medians.values())
    mean = statistics.mean(map(capped, found.values()))
    return f"{reached} of {len(found)} within 2 %, mean gap {mean:.1%}\n  {listed}"


if __name__ == "__main__":
    main()
