"""`evolve report`: one offline HTML file about a run."""

from collections.abc import Sequence
from pathlib import Path

from evolve.app.database import open_store
from evolve.cli.args import add_run, add_store, parser


def main(words: Sequence[str]) -> int:
    """Write the report and print its path."""
    from evolve.report.run.html import write_report

    arguments = parser("report", "Write a run's report as one HTML file that needs no network.")
    add_run(arguments)
    arguments.add_argument(
        "-o", "--output", metavar="FILE", help="where to (default: RUN.html beside the database)"
    )
    add_store(arguments)
    options = arguments.parse_args(words)
    with open_store(options.store) as store:
        run = store.run(options.run)
        target = Path(options.output) if options.output else store.folder / f"{run.name}.html"
        print(write_report(store, run.name, target))
    return 0
