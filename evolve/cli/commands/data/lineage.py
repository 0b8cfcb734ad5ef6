"""`evolve lineage`: the graph of the programs of a run, for other tools."""

from collections.abc import Sequence

from evolve.app.database import open_store
from evolve.cli.args import add_run, add_store, parser


def main(words: Sequence[str]) -> int:
    """Write the graph in the format that the suffix names."""
    from evolve.report.lineage import export, graph

    arguments = parser("lineage", "Write how every program of a run came to be, as a graph.")
    add_run(arguments)
    arguments.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        required=True,
        help="the suffix names the format: .graphml, .json (node-link) or .dot",
    )
    add_store(arguments)
    options = arguments.parse_args(words)
    with open_store(options.store) as store:
        run = store.run(options.run)
        baseline = str(run.config.get("baseline", "eager"))
        print(export(graph(store.steps(run.id), baseline), options.output))
    return 0
