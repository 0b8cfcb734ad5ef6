"""`evolve ask`: a run's next requests to a model as files, for a person or an agent to answer."""

import argparse
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from evolve.app.database import open_store
from evolve.cli.args import add_run, add_store, parser
from evolve.core.errors import UsageError
from evolve.report.text import count_text, make_folder

if TYPE_CHECKING:
    from evolve.search.engine import Search
    from evolve.store import Ticket

MAX_FAILURES = 50  # operators that fail in a row: nothing is to be had at present


def main(words: Sequence[str]) -> int:
    """Ask, store, and write the files."""
    options = _parse(words)
    if options.number < 1:
        raise UsageError(f"-n {options.number}: it goes from 1")
    from evolve.app.attach import attach
    from evolve.app.manual.files import BY_HAND, ByHand, write_request

    folder = Path(options.out)
    with open_store(options.store, read_only=False) as store:
        run = store.run(options.run)
        with attach(store, run, model=ByHand()) as search:
            make_folder(folder, "--out")
            tickets, reason = _requests(search, options, BY_HAND)
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
        "on another host. `evolve tell RUN DIR` takes the replies in; "
        "`evolve resume` judges what came of them. Asking again writes what is still open, "
        "composed anew where verdicts have come since, and new requests until there are N.",
    )
    add_run(arguments)
    arguments.add_argument(
        "-n", "--number", type=int, default=8, metavar="N", help="at most (default: %(default)s)"
    )
    arguments.add_argument("--out", required=True, metavar="DIR", help="where the files go")
    arguments.add_argument("--operator", metavar="NAME", help="ask this operator only")
    add_store(arguments)
    return arguments.parse_args(words)


def _requests(
    search: "Search", options: argparse.Namespace, model: str
) -> "tuple[list[Ticket], str]":
    """Requests that are open, then new ones; why there are not more."""
    from evolve.app import components
    from evolve.app.manual.files import is_answered
    from evolve.store import TicketState

    operators = wanted_operators(search, options.operator)
    found = [
        ticket if is_answered(Path(options.out), ticket) else search.renewed(ticket)
        for ticket in search.open_tickets()
        if ticket.state is TicketState.ASKED and ticket.model == model
    ]
    rule = components.build_termination(search.run.config)
    reason, failures = "", 0
    while len(found) < options.number and failures < MAX_FAILURES and not reason:
        progress = search.progress
        ahead = len(search.store.open_tickets(search.run.id))
        expected = replace(progress, evaluations=progress.evaluations + ahead)
        if spent := rule.check(expected):
            reason = (
                f"{spent}; a new run with warm_start={search.run.name} and limits of its own "
                "begins with the best programs of this one"
            )
            break
        ticket = search.ask(operators=operators)
        if ticket is None:
            reason = declined_text(search)
        elif ticket.request is None:
            failures += 1
        else:
            failures = 0
            found.append(ticket)
    return found[: options.number], reason


def wanted_operators(search: "Search", name: str | None) -> list[str]:
    """The operators that ask models, or the one of this name.

    Raises:
        UsageError: there is none.
    """
    known = search.model_operators
    if not known:
        raise UsageError(
            f"run {search.run.name} has no operator that asks a model; start one with operators=llm"
        )
    if name is not None and name not in known:
        raise UsageError(
            f"--operator {name}: run {search.run.name} has no such operator that asks a model; "
            f"it has {', '.join(known)}"
        )
    return known if name is None else [name]


def declined_text(search: "Search") -> str:
    """Why no operator had anything to ask."""
    reasons = [f"{name}: {why}" for name, why in search.declined.items()]
    return "; ".join(reasons) or "every operator has declined"
