"""`evolve report`: one offline HTML file about a run, or about all suites of a database."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from evolve.app.database import open_store
from evolve.app.text import table
from evolve.cli.args import add_run, add_store, parser
from evolve.core.errors import UsageError


def main(words: Sequence[str]) -> int:
    """Write the report and print its path."""
    from evolve.report.run.html import write_report

    arguments = parser("report", "Write a run's report as one HTML file that needs no network.")
    add_run(arguments)
    arguments.add_argument(
        "--suites", action="store_true", help="in place of a run: all runs of `evolve bench`"
    )
    arguments.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="where to (default: RUN.html or suites.html beside the database)",
    )
    add_store(arguments)
    options = arguments.parse_args(words)
    if options.suites:
        return _report_suites(options)
    with open_store(options.store) as store:
        run = store.run(options.run)
        target = Path(options.output) if options.output else store.folder / f"{run.name}.html"
        print(write_report(store, run.name, target))
    return 0


def _report_suites(options: argparse.Namespace) -> int:
    from evolve.report.suite.overview import (
        HEADER,
        VERSUS,
        bench_rows,
        comparison_rows,
        differences,
        read_benches,
        write_overview,
    )

    if options.run:
        raise UsageError(f"{options.run} and --suites are given; leave one of them out")
    with open_store(options.store) as store:
        benches = read_benches(store)
        target = Path(options.output) if options.output else store.folder / "suites.html"
    print(table(HEADER, bench_rows(benches)))
    if compared := comparison_rows(benches):
        print()
        print(table(VERSUS, compared))
    for difference in differences(benches):
        print(difference)
    print(write_overview(benches, target))
    return 0
