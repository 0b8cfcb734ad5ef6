"""`evolve cost`: the cost of runs, in USD, tokens and device seconds, from the store."""

import argparse
import csv
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from evolve.app.database import open_store
from evolve.app.text import table
from evolve.cli.args import add_store, parser
from evolve.core.errors import UsageError
from evolve.store import Cost, RunRow

BY = ("run", "task", "model", "operator", "user", "project")
SUMS = (
    *("calls", "unknown", "unpriced", "prompt_tokens", "completion_tokens", "tokens"),
    *("usd", "evaluations", "device_time_s"),
)


def main(words: Sequence[str]) -> int:
    """Sum up, and print a table or CSV."""
    options = _parse(words)
    by = list(dict.fromkeys(options.by.split(",")))
    for name in by:
        if name not in BY:
            raise UsageError(f"--by {name}: it can be {', '.join(BY)}, or several with commas")
    with open_store(options.store) as store:
        runs = {run.name: run for run in store.runs()}
        only = store.run(options.run).id if options.run else None
        rows = summed(store.costs(only), by, runs)
    if options.csv:
        writer = csv.DictWriter(sys.stdout, [*by, *SUMS], lineterminator="\n")
        writer.writeheader()
        writer.writerows({**row, "usd": _usd(row, unknown="")} for row in rows)
    elif rows:
        total = _total(rows) | {by[0]: "all"}
        print(table([*by, *SUMS], [_cells(row, by) for row in (*rows, total)]))
    else:
        print("nothing has cost anything yet")
    return 0


def _parse(words: Sequence[str]) -> argparse.Namespace:
    arguments = parser(
        "cost",
        "Sum up the costs. Evaluations of every fidelity count. Calls with an unknown outcome "
        "count at their reserved cost; calls of models without a price are counted apart and add "
        "no cost. Replays cost nothing.",
    )
    arguments.add_argument("run", nargs="?", metavar="RUN", help="one run only (default: all)")
    arguments.add_argument(
        "--by", default="run,model", metavar="A,B", help=f"of {', '.join(BY)} (default: run,model)"
    )
    arguments.add_argument("--csv", action="store_true", help="for machines; usd empty if unknown")
    add_store(arguments)
    return arguments.parse_args(words)


def summed(
    costs: Iterable[Cost], by: Sequence[str], runs: Mapping[str, RunRow]
) -> list[dict[str, Any]]:
    """The costs as rows, one for each combination of the columns of `by`."""
    groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for cost in costs:
        run = runs[cost.run]
        named = {"task": run.task.name, "model": cost.model or "(none)"}
        named |= {"user": run.user or "(unknown)", "project": run.project or "(none)"}
        key = tuple(named.get(name) or str(getattr(cost, name)) for name in by)
        groups.setdefault(key, []).append({name: getattr(cost, name) for name in SUMS})
    return [dict(zip(by, key, strict=True)) | _total(rows) for key, rows in sorted(groups.items())]


def _total(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    found = list(rows)
    return {name: sum(row[name] for row in found) for name in SUMS}


def _usd(row: Mapping[str, Any], *, unknown: str) -> str:
    return f"{row['usd']:.6f}" if not row["unpriced"] else unknown


def _cells(row: Mapping[str, Any], by: Sequence[str]) -> list[str]:
    usd = f"{row['usd']:.2f}" + (" + unknown" if row["unpriced"] else "")
    shown = dict(row) | {"usd": usd, "device_time_s": f"{row['device_time_s']:.1f}"}
    return [
        f"{value:,}" if isinstance(value := shown.get(name, ""), int) else str(value)
        for name in (*by, *SUMS)
    ]
