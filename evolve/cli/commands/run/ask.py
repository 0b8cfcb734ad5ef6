"""`evolve ask`: a run's next requests to a model as files, for a person or an agent to answer."""

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path

from evolve.app.database import open_store
from evolve.cli.args import add_count, add_run, add_store, parser
from evolve.core.errors import UsageError
from evolve.report.text import count_text, make_folder


def main(words: Sequence[str]) -> int:
    """Ask, store, and write the files."""
    options = _parse(words)
    from evolve.app.attach import attach
    from evolve.app.manual.asking import requests, wanted_operators
    from evolve.app.manual.files import ByHand, is_answered, write_request

    folder = Path(options.out)
    with open_store(options.store, read_only=False) as store:
        run = store.run(options.run)
        with attach(store, run, model=ByHand()) as search:
            operators = wanted_operators(search, options.operator)
            is_new = not folder.exists()
            make_folder(folder, "--out")
            tickets, reason = requests(
                search,
                options.number,
                operators,
                lambda ticket: ticket if is_answered(folder, ticket) else search.renewed(ticket),
            )
            if is_new and not tickets:
                folder.rmdir()
            for ticket in tickets:
                anew = " (composed anew)" if ticket.revision else ""
                print(f"{write_request(folder, run, ticket)}{anew}")
            is_early = bool(run.task.seeds) and search.leader is None
    if not tickets:
        raise UsageError(f"run {run.name} has nothing to ask now: {reason}")
    if is_early:
        name = shlex.quote(run.name)
        print(f"no program is judged yet; `evolve resume {name}` first gives prompts with verdicts")
    if reason:
        print(f"no more than these: {reason}")
    print(
        f"{count_text(len(tickets), 'request')}; answer each NAME.prompt.md in a NAME.reply.md "
        f"beside it, then: evolve tell {shlex.quote(run.name)} {shlex.quote(options.out)}"
    )
    return 0


def _parse(words: Sequence[str]) -> argparse.Namespace:
    arguments = parser(
        "ask",
        "Write a run's next prompts as files, for a person, a coding agent or a model "
        "on another host. `evolve tell RUN DIR` reads the replies, and `evolve resume` judges the "
        "programs in them. The same command again writes the open requests, with verdicts that "
        "have arrived since, and adds new ones up to N.",
    )
    add_run(arguments)
    add_count(arguments, "-n", "--number", default=8, text="at most")
    arguments.add_argument("--out", required=True, metavar="DIR", help="where the files go")
    arguments.add_argument("--operator", metavar="NAME", help="ask this operator only")
    add_store(arguments)
    return arguments.parse_args(words)
