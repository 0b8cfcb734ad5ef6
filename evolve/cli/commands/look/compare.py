"""`evolve compare`: searches of one task side by side, to be run with equal budgets or stored."""

import argparse
import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evolve.app.compare.methods import methods_of
from evolve.app.database import location_of, open_store
from evolve.app.text import table
from evolve.cli.args import add_store, parser
from evolve.cli.signals import stoppable
from evolve.core.errors import RESUMABLE, UsageError

if TYPE_CHECKING:
    from evolve.app.compare.runner import Entry
    from evolve.report.comparison.compare import Comparison

DESCRIPTION = """\
Compare searches of one task.

With --search, runs every method with every seed on the same task, judge and budget, which are
given as key=value words as for `evolve run`; with names of runs, compares stored runs.

  evolve compare --search polca --search greedy --seeds 3 task=softmax termination.evaluations=60
  evolve compare --search mcts --search "mcts selection.exploration=0.5" task=softmax ...
  evolve compare softmax-1 softmax-2

The runs are ordinary ones of the database: the same command again goes on where they stand, and
with a larger budget continues them. Only the budget ends them; termination.stagnation has no
default here. Verdicts are not shared between them unless store.reuse=true is given.
"""


def main(words: Sequence[str]) -> int:
    """Run the missing methods of a comparison; then write the page and the table."""
    options = _parser().parse_intermixed_args(words)
    runs = [word for word in options.words if "=" not in word]
    settings = [word for word in options.words if "=" in word]
    if runs and (settings or options.search):
        raise UsageError(
            f"compare takes names of runs ({', '.join(runs)}) or --search with key=value words, "
            "not both"
        )
    if runs:
        return _compare_stored(runs, options)
    if not options.search:
        raise UsageError(
            "compare needs names of stored runs, or --search NAME for each method to be run"
        )
    return _run_and_compare(settings, options)


def _parser() -> argparse.ArgumentParser:
    arguments = parser("compare", DESCRIPTION)
    arguments.formatter_class = argparse.RawDescriptionHelpFormatter
    arguments.add_argument(
        "words", nargs="*", metavar="RUN | key=value", help="stored runs, or settings for new ones"
    )
    arguments.add_argument(
        "--search",
        action="append",
        default=[],
        metavar="PRESET",
        help='a method, e.g. polca, or "polca selection=polca_ucb"; give it for each',
    )
    arguments.add_argument(
        "--seeds", type=int, default=3, metavar="N", help="runs of each method (default: 3)"
    )
    arguments.add_argument(
        "--name", metavar="NAME", help="the runs' names begin with it (default: compare-TASK)"
    )
    arguments.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="the page; the CSV lies beside it (default: NAME.html beside the database)",
    )
    add_store(arguments)
    return arguments


def _compare_stored(names: Sequence[str], options: argparse.Namespace) -> int:
    with open_store(options.store) as store:
        methods = methods_of([store.run(name) for name in dict.fromkeys(names)])
    return _write(methods, options.store, options.output, options.name or "compare")


def _run_and_compare(settings: Sequence[str], options: argparse.Namespace) -> int:
    from evolve.app.compare.runner import plan, plan_notes, search_all
    from evolve.cli.console.frontend import Terminal

    entries = plan(
        settings, options.search, seeds=options.seeds, name=options.name, store=options.store
    )
    for note in (*_key_notes(entries), *plan_notes(entries)):
        print(note)
    finished = asyncio.run(search_all(entries, Terminal(), during=stoppable))
    path = location_of(entries[0].config)
    with open_store(path) as store:
        begun = {run.name for run in store.runs()}
    methods: dict[str, list[str]] = {}
    for entry in entries:
        if entry.name in begun:
            methods.setdefault(entry.label, []).append(entry.name)
    written = _write(methods, path, options.output, entries[0].comparison)
    return written if finished else RESUMABLE


def _key_notes(entries: Sequence["Entry"]) -> list[str]:
    """The messages about the models of new runs; each once."""
    from evolve.app.models import key_notes

    new = [entry.config for entry in entries if entry.request.existing is None]
    return list(dict.fromkeys(note for config in new for note in key_notes(config)))


def _write(methods: Mapping[str, Sequence[str]], path: str, output: str | None, name: str) -> int:
    from evolve.report.comparison.compare import (
        caveats,
        gather_comparison,
        verdict,
        write_comparison,
    )

    with open_store(path) as store:
        page = Path(output) if output else store.folder / f"{name}.html"
        comparison = gather_comparison(store, methods)
    write_comparison(comparison, page, page.with_suffix(".csv"))
    print()
    print(_table(comparison))
    print()
    for line in (verdict(comparison), *caveats(comparison)):
        print(line)
    print(f"  page   {page}")
    print(f"  table  {page.with_suffix('.csv')}")
    return 0


def _table(comparison: "Comparison") -> str:
    from evolve.report.comparison.compare import method_lines

    first = comparison.groups[0].label
    header = ("METHOD", "SEEDS", "SPEEDUP", "INTERVAL", "COVERAGE", f"HIGHER THAN {first}", "TIME")
    rows: list[Sequence[Any]] = [
        (
            *(line.label, str(line.seeds), line.speedup, line.span or "-"),
            *(line.coverage or "-", line.beats or "-", line.time),
        )
        for line in method_lines(comparison)
    ]
    return table(header, rows)
