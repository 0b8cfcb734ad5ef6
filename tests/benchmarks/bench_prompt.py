"""What composing a prompt costs in a long run: everything from the context to the request.

    python -m tests.benchmarks.bench_prompt --sizes 1000,100000

The database of `bench_store` at each size, with a full archive of 10^4 programs (fewer where fewer
are stored), read in a fresh process. Every eighth program has failed with 2 KB of feedback; with
`--no-failures` none has, which is the worst case: operators look for failures and find none. Each
operator composes for parents that the selection policy draws anew; the knowledge base is on.
"""

import argparse
import json
import random
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from evolve.core.model import ModelRequest
from evolve.core.protocols import Context
from evolve.search.facts import RunFacts
from evolve.search.ranking import Ranking
from evolve.search.selection import Tournament
from evolve.store import Store
from operators import (
    Contrastive,
    Crossover,
    Edit,
    MacroMicro,
    Repair,
    RewriteFull,
    Summarise,
    Template,
    Universal,
)
from operators.budget import estimate_tokens
from operators.knowledge import Knowledge
from tests.benchmarks.bench_store import grow
from tests.benchmarks.conditions import print_conditions

PROMPTS = 40
DEVICE = {"device_class": "cuda: NVIDIA H200", "torch": "2.13"}


def main() -> None:
    options = _options()
    if options.measure:
        print(json.dumps(measure(options.measure)))
        return
    print_conditions()
    print(f"{PROMPTS} prompts of each operator; failures: {not options.no_failures}")
    print("   stored operator        median ms   p95 ms   cpu ms   tokens")
    with tempfile.TemporaryDirectory(dir=options.dir) as folder:
        path = Path(folder) / "bench.db"
        for size in map(int, options.sizes.split(",")):
            grow(path, size)
            if not options.no_failures:
                plant_failures(path)
            command = [sys.executable, "-m", "tests.benchmarks.bench_prompt", "--measure", path]
            answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            for name, row in json.loads(answer.stdout).items():
                print(
                    f"{size:>9} {name:<14} {row['median_ms']:>10.2f} {row['p95_ms']:>8.2f} "
                    f"{row['cpu_ms']:>8.2f} {row['tokens']:>8.0f}",
                    flush=True,
                )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="1000,10000", help="ascending")
    parser.add_argument("--no-failures", action="store_true", help="every program is correct")
    parser.add_argument("--dir", help="folder for the database (half a GB at 10^5)")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def plant_failures(path: Path) -> None:
    """Every eighth program failed to compile, and the archive has none of those."""
    feedback = "kernel.cpp:12:9: error: expected ';' before '}' token\n" * 40
    row = (b"feedback".rjust(32), "zlib", zlib.compress(feedback.encode()))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(
            "INSERT OR IGNORE INTO blob (sha256, codec, bytes) VALUES (?, ?, ?)", row
        )
        connection.execute(
            "UPDATE evaluation SET status = 'compile_error', custom = NULL, "
            "feedback = (SELECT id FROM blob WHERE sha256 = ?) WHERE id % 8 = 3",
            (row[0],),
        )
        connection.execute(
            "DELETE FROM evaluation_ratio WHERE evaluation IN "
            "(SELECT id FROM evaluation WHERE status != 'correct')"
        )
        connection.execute(
            "DELETE FROM archive_slot WHERE offer IN (SELECT o.id FROM archive_offer o "
            "JOIN evaluation e ON e.ticket = o.ticket WHERE e.status != 'correct')"
        )


def measure(path: Path) -> dict[str, dict[str, float]]:
    """Each operator's time per prompt, and the tokens of its prompts."""
    with Store.open(path, read_only=True) as store:
        run = store.run()
        elites = Ranking(store.slots(run.id).values()).elites
        facts = RunFacts(store, run.id)
        return {
            name: _measure(operator, {"task": run.task, "elites": elites, "facts": facts})
            for name, operator in _operators().items()
        }


def _operators() -> dict[str, Any]:
    knowledge = Knowledge()
    return {
        "universal": Universal(knowledge=knowledge),
        "rewrite_full": RewriteFull(knowledge=knowledge),
        "edit": Edit(knowledge=knowledge),
        "crossover": Crossover(knowledge=knowledge),
        "contrastive": Contrastive(knowledge=knowledge),
        "macro_micro": MacroMicro(knowledge=knowledge),
        "bandit": MacroMicro(knowledge=knowledge, policy="bandit"),
        "template": Template(knowledge=knowledge),
        "summarise": Summarise(knowledge=knowledge),
        "repair": Repair(knowledge=knowledge, share=1.0),
    }


def _measure(operator: Any, facts: Mapping[str, Any]) -> dict[str, float]:
    seconds, cpu, tokens = [], [], []
    selection = Tournament(size=4)
    for number in range(-1, PROMPTS):  # the first one loads the templates
        rng = random.Random(number)
        parents = selection.select(facts["elites"], operator.parents, rng)
        context = Context(parents=parents, rng=rng, sequence=10**6, device=DEVICE, **facts)
        start, spent = time.perf_counter(), time.process_time()
        asked = operator.propose(context)
        if number >= 0:
            seconds.append(time.perf_counter() - start)
            cpu.append(time.process_time() - spent)
        if isinstance(asked, ModelRequest):
            tokens.append(sum(estimate_tokens(message.content) for message in asked.messages))
    return {
        "cpu_ms": 1e3 * statistics.median(cpu),
        "median_ms": 1e3 * statistics.median(seconds),
        "p95_ms": 1e3 * statistics.quantiles(seconds, n=20)[-1],
        "tokens": statistics.median(tokens) if tokens else 0,
    }


if __name__ == "__main__":
    main()
