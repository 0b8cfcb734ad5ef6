"""How many of the small mistakes in correct kernels the judge notices.

    python -m tests.benchmarks.bench_mutation --out mutants.jsonl --each 30
    python -m tests.benchmarks.bench_mutation --out mutants.jsonl --table

Mutants of every shipped seed and of the kernels in `tests/evaluation/kernels` and
`tests/redteam/honest` that name their task, at size tiny on the cpu device. Runs can be cut short:
what is in the file is not done again. `--table` prints what the file holds.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evolve.app.text import table
from evolve.cli.commands.judge.mutation import audit_text
from evolve.core.errors import EvolveError
from evolve.core.evaluation import Status
from evolve.core.task import Task
from evolve.evaluation import LocalEvaluator
from evolve.evaluation.mutation.audit import SEEDS, Fate, Judged, audit, oracle
from evolve.evaluation.mutation.mutant import Kind, Mutant, Mutants, generate, sample
from evolve.evaluation.mutation.tally import by_kind
from evolve.languages.base import Language
from evolve.languages.registry import detect_language
from evolve.tasks import find_task
from evolve.tasks.shipped import library_folder, shipped_names
from tests.benchmarks.conditions import print_conditions

KERNELS = Path(__file__).parents[1] / "evaluation" / "kernels"


@dataclass(frozen=True)
class Kernel:
    """A correct kernel and the task that it is for."""

    name: str
    task: Task
    source: str


def kernels() -> Iterator[Kernel]:
    """Shipped seeds first, then those of the tests: `TASK-variant.py`."""
    for name in shipped_names():
        task = find_task(name, size="tiny")
        for path in sorted((library_folder() / name / "seeds").glob("*.py")):
            yield Kernel(f"{name}/{path.stem}", task, path.read_text())
    for path in sorted(KERNELS.glob("*.py")):
        name, _, variant = path.stem.partition("-")
        yield Kernel(f"{name}/{variant}", find_task(name, size="tiny"), path.read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="JSON lines, one for each mutant")
    parser.add_argument("--each", type=int, default=30, help="mutants of a kernel")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="inputs of a case for the oracle")
    parser.add_argument("--only", default="", help="kernels whose name contains this")
    parser.add_argument("--language", choices=[language.value for language in Language])
    parser.add_argument("--minutes", type=float, default=600, help="start no kernel after that")
    parser.add_argument("--table", action="store_true", help="print what the file holds")
    options = parser.parse_args()
    if options.table:
        print("\n".join(_summary(options.out)))
        return
    print_conditions()
    asyncio.run(_run(options))


async def _run(options: argparse.Namespace) -> None:
    end = time.monotonic() + 60 * options.minutes
    async with AsyncExitStack() as stack:
        cache = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="evolve-bench-")))
        evaluator = await LocalEvaluator.start(cache=cache)
        stack.push_async_callback(evaluator.close)
        for kernel in kernels():
            wanted = options.language in (None, detect_language(kernel.source))
            if wanted and options.only in kernel.name and time.monotonic() < end:
                await _one(evaluator, kernel, cache, options)


async def _one(
    evaluator: LocalEvaluator, kernel: Kernel, cache: Path, options: argparse.Namespace
) -> None:
    made = generate(kernel.source)
    known = {(row["line"], row["after"]) for row in _rows(options.out, kernel.name)}
    chosen = [
        mutant
        for mutant in sample(made.mutants, options.each)
        if (mutant.line, mutant.after) not in known
    ]
    if not chosen:
        return
    start = time.monotonic()
    with options.out.open("a") as out:

        def tell(one: Judged) -> None:
            row = {"kernel": kernel.name, "generated": len(made.mutants)} | one.to_json()
            print(json.dumps(row), file=out, flush=True)

        try:
            async with oracle(kernel.task, cache, "cpu", options.seeds) as prover:
                found = await audit(evaluator, prover, kernel.task, kernel.source, chosen, tell)
        except EvolveError as error:
            print(f"{kernel.name}: {error}", file=sys.stderr)
            return
    row = by_kind(found)[-1]
    print(
        f"{kernel.name}: {row.tried} of {len(made.mutants)} tried, {row.invalid} invalid, "
        f"{row.unproven} unproven, {row.killed} of {row.proven} killed, "
        f"{time.monotonic() - start:.0f} s",
        flush=True,
    )


def _rows(path: Path, kernel: str = "") -> list[dict[str, Any]]:
    lines = path.read_text().splitlines() if path.exists() else []
    rows = [json.loads(line) for line in lines]
    return [row for row in rows if not kernel or row["kernel"] == kernel]


def _summary(path: Path) -> Iterator[str]:
    rows = _rows(path)
    found = [_judged(row) for row in rows]
    names = dict.fromkeys(row["kernel"] for row in rows)
    places = dict.fromkeys(place for row in rows for place in row["kills"])
    made = Mutants(tuple(one.mutant for one in found), 0)
    yield from audit_text(made, found, list(places))
    yield ""
    yield table(
        ["KERNEL", "TRIED", "WRONG", "KILLED"],
        [
            [name, *(str(count) for count in (row.tried, row.proven, row.killed))]
            for name in names
            for row in by_kind([o for o, r in zip(found, rows, strict=True) if r["kernel"] == name])
            if row.name == "all"
        ],
    )


def _judged(row: dict[str, Any]) -> Judged:
    mutant = Mutant(Kind(row["kind"]), row["line"], row["before"], row["after"], "")
    return Judged(mutant, Fate(row["fate"]), Status(row["status"]), row["feedback"],
                    row["proof"], tuple(row["kills"]))  # fmt: skip


if __name__ == "__main__":
    main()
