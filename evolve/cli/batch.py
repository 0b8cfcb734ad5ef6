"""`evolve batch`: a run's next evaluations as a file, for a device that the search cannot reach."""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from evolve.cli.flags import add_run, add_store, open_store, parser
from evolve.core.errors import UsageError
from evolve.core.evaluation import Fidelity
from evolve.core.lineage import OPPONENT, VERIFY
from evolve.report.text import count_text

if TYPE_CHECKING:
    from evolve.core.protocols import Evaluator, Progress, TerminationRule
    from evolve.search.engine import Search
    from evolve.store import Ticket

MAX_FAILURES = 50  # recorded failures in a row: nothing is to be had at present


def main(words: Sequence[str]) -> int:
    """Ask, store, and write the file."""
    options = _parse(words)
    if options.number < 1:
        raise UsageError(f"-n {options.number}: it goes from 1")
    from evolve.cli.sitting import sitting

    with open_store(options.store, read_only=False) as store:
        run = store.run(options.run)
        with sitting(store, run) as search:
            for line in write(search, Path(options.output), options.number, new=options.new):
                print(line)
    return 0


def _parse(words: Sequence[str]) -> argparse.Namespace:
    arguments = parser(
        "batch",
        "Write a run's next evaluations to a file. `python -m evolve.worker batch FILE OUT`, on a "
        "machine with the device, judges them, and `evolve tell RUN OUT` takes the verdicts in.",
    )
    add_run(arguments)
    arguments.add_argument(
        "-n", "--number", type=int, default=16, metavar="N", help="at most (default: %(default)s)"
    )
    arguments.add_argument("-o", "--output", required=True, metavar="FILE", help="JSON lines")
    arguments.add_argument(
        "--new", action="store_true", help="leave out what an earlier file has asked for already"
    )
    add_store(arguments)
    return arguments.parse_args(words)


@dataclass(slots=True)
class Asked:
    """What goes into the file, how many needed no judge, and why there is not more."""

    tickets: "list[Ticket]" = field(default_factory=list)
    known: int = 0
    reason: str = ""


def write(search: "Search", path: Path, number: int, *, new: bool) -> Iterator[str]:
    """Write the file with at most `number` evaluations; says what it holds."""
    from evolve.cli import parts
    from evolve.evaluation.batch import as_batch, audit_request, write_requests
    from evolve.search.verdicts import request_id

    run = search.run
    asked = ask(search, parts.build_termination(run.config), number, new=new)
    if asked.known:
        yield f"{count_text(asked.known, 'verdict')} known to this database already, and told"
    if asked.reason:
        yield f"no more than these: {asked.reason}"
    if not asked.tickets:
        raise UsageError(f"run {run.name} has nothing to judge now: {asked.reason}")
    requests = [as_batch(request_id(run, t), search.request(t)) for t in asked.tickets]
    if run.config.get("audit") is None:  # a run that was created without a judge
        requests.insert(0, audit_request(run.task))
    write_requests(path, requests)
    yield f"{path}: {count_text(len(asked.tickets), 'evaluation')} of {run.name}"


def ask(search: "Search", rule: "TerminationRule", number: int, *, new: bool) -> Asked:
    """Proposals to be judged: those that still wait for a verdict first, unless `new`."""
    from evolve.search.verdicts import waiting_tickets
    from evolve.store import TicketState

    waiting = waiting_tickets(search)
    asked = Asked([*search.opponent_tickets(), *([] if new else waiting)][:number])
    judge, failures = _judge_of(search), 0
    while len(asked.tickets) < number and failures < MAX_FAILURES:
        pending = {ticket.sequence: ticket for ticket in (*waiting, *asked.tickets)}
        asked.reason = rule.check(_as_if_done(search.progress, list(pending.values()))) or ""
        ticket = None if asked.reason else search.ask()
        if ticket is None:
            asked.reason = asked.reason or "nothing is left to propose before verdicts are told"
            break
        failures = failures + 1 if ticket.state is TicketState.TOLD else 0
        if ticket.state is not TicketState.PROPOSED:
            asked.reason = f"{failures} proposals in a row failed, the last: {ticket.failure}"
            continue
        asked.reason = ""
        known = search.known(search.request(ticket), judge) if judge else None
        if known is None:
            asked.tickets.append(ticket)
        else:
            search.tell(ticket, known)
            asked.known += 1
    return asked


def _judge_of(search: "Search") -> "Evaluator | None":
    """Who has judged this run so far; None where nobody has."""
    from evolve.evaluation import ReplayEvaluator

    try:
        return ReplayEvaluator(search.store, search.run.id)
    except UsageError:
        return None


def _as_if_done(progress: "Progress", pending: "Sequence[Ticket]") -> "Progress":
    """The progress as it will be when all that is out has its verdict."""
    fidelities = [
        ticket.proposal.fidelity
        for ticket in pending
        if ticket.proposal and ticket.operator not in (VERIFY, OPPONENT)
    ]
    return replace(
        progress,
        evaluations=progress.evaluations + fidelities.count(Fidelity.SEARCH),
        screens=progress.screens + fidelities.count(Fidelity.SCREEN),
    )
