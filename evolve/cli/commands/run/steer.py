"""`evolve steer`: change a search that is under way, from another terminal."""

from argparse import RawDescriptionHelpFormatter
from collections.abc import Sequence
from pathlib import Path

from evolve.app.database import open_store
from evolve.cli.args import add_store, parser
from evolve.core.run_store.steering import SteeringKind
from evolve.tasks.files import read_text

HELP = """\
Change a search that is under way; it takes the change between two steps, and
its run keeps it.

  note TEXT        every prompt quotes it from now on; an empty one takes it back
  pin STEP         the program of a step is the parent from now on; several take turns
  ban STEP         it is no parent from now on
  release STEP     it is neither pinned nor banned any more
  program FILE     judge your program as a step of the run
  budget NAME=N    add to a limit: evaluations=100, usd=5, wall_time=30m
  pause, continue  stop for a while; that costs no wall time of the run
  end              verify the best program and finish
"""


def main(words: Sequence[str]) -> int:
    """Store the change that the words name."""
    arguments = parser("steer", HELP)
    arguments.formatter_class = RawDescriptionHelpFormatter
    arguments.add_argument("run", metavar="RUN", help="name of the run")
    arguments.add_argument("change", metavar="CHANGE", help="one of the above")
    arguments.add_argument("value", metavar="VALUE", nargs="?", default="", help="as above")
    add_store(arguments)
    options = arguments.parse_args(words)
    from evolve.search.steering import steer

    value = options.value
    if options.change == SteeringKind.PROGRAM:
        value = read_text(Path(value), "program") if value else ""
    with open_store(options.store, read_only=False) as store:
        event = steer(store, store.run(options.run), options.change, value)
    print(f"stored: {event.text}; the search takes it before its next step")
    return 0
