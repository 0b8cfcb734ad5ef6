"""`evolve db`: care of the database file."""

import argparse
import sys
from collections.abc import Sequence

from evolve.app.database import open_store
from evolve.app.text import table
from evolve.cli.args import add_run, add_store, parser
from evolve.core.errors import UsageError
from evolve.report.text import count_text


def main(words: Sequence[str]) -> int:
    """Do one maintenance action."""
    options = _parse(words)
    options.action(options)
    return 0


def _parse(words: Sequence[str]) -> argparse.Namespace:
    arguments = parser("db", "Care of the database file.")
    verbs = arguments.add_subparsers(required=True, metavar="ACTION")

    backup = verbs.add_parser("backup", help="copy it, also while a search writes to it")
    backup.add_argument("target", metavar="TO", help="a file that does not exist yet")
    backup.set_defaults(action=_backup)

    prune = verbs.add_parser(
        "prune", help="drop raw samples and feedback of a run's unimportant programs"
    )
    prune.add_argument("run", metavar="RUN", help="name of the run; it cannot be undone")
    prune.add_argument(
        "--keep", type=int, metavar="N", help="only those of the N fittest (default: the archive's)"
    )
    prune.set_defaults(action=_prune)

    size = verbs.add_parser("size", help="bytes by kind")
    size.set_defaults(action=_size)

    upgrade = verbs.add_parser("upgrade", help="bring its schema up to date")
    upgrade.set_defaults(action=_upgrade)

    dump = verbs.add_parser("dump", help="a run as JSON lines on standard output")
    add_run(dump)
    dump.add_argument(
        "--canonical", action="store_true", help="without times, costs and paths, for comparing"
    )
    dump.set_defaults(action=_dump)

    copy = verbs.add_parser("copy", help="copy all runs between a file and a PostgreSQL server")
    copy.add_argument("source", metavar="FROM", help="a file, or postgresql://...")
    copy.add_argument("target", metavar="TO", help="a file or server that holds no runs yet")
    copy.set_defaults(action=_copy)

    for verb in (backup, prune, size, upgrade, dump):
        add_store(verb)
    return arguments.parse_args(words)


def _backup(options: argparse.Namespace) -> None:
    with open_store(options.store) as store:
        store.backup(options.target)
    print(options.target)


def _prune(options: argparse.Namespace) -> None:
    if options.keep is not None and options.keep < 0:
        raise UsageError(f"--keep {options.keep}: it must be at least 0, which keeps none of them")
    with open_store(options.store, read_only=False) as store:
        run = store.run(options.run)
        pruned = store.prune(run.id, keep=options.keep)
    print(
        f"{run.name}: samples and feedback of {count_text(pruned.evaluations, 'evaluation')} "
        f"dropped, the file is {_bytes(pruned.bytes)} smaller"
    )


def _size(options: argparse.Namespace) -> None:
    with open_store(options.store) as store:
        sizes = store.size()
    rows = [(kind, _bytes(size)) for kind, size in sizes.items()]
    print(table(("WHAT", "SIZE"), [*rows, ("in all", _bytes(sum(sizes.values())))]))


def _upgrade(options: argparse.Namespace) -> None:
    from evolve.store import Store

    print(Store.upgrade(options.store))


def _copy(options: argparse.Namespace) -> None:
    from evolve.store import Store

    with (
        open_store(options.source) as source,
        Store.open(options.target, create=True) as target,
    ):
        rows = source.copy_to(target)
        print(f"{count_text(len(target.runs()), 'run')}, {count_text(rows, 'row')} copied")


def _dump(options: argparse.Namespace) -> None:
    with open_store(options.store) as store:
        for line in store.dump(store.run(options.run).id, canonical=options.canonical):
            sys.stdout.write(line.rstrip("\n") + "\n")


def _bytes(number: int) -> str:
    size = float(number)
    for unit in ("B", "kB", "MB", "GB"):
        if abs(size) < 1000 or unit == "GB":
            break
        size /= 1000
    return f"{size:.3g} {unit}"
