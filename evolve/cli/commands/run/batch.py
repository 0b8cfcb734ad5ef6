"""`evolve batch`: a run's next evaluations as a file, for a device that the search cannot reach."""

import argparse
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from evolve.app.database import open_store
from evolve.cli import signals
from evolve.cli.args import add_count, add_run, add_store, parser
from evolve.core.errors import UsageError
from evolve.core.evaluation import Fidelity
from evolve.core.lineage import NO_PROPOSALS, VERIFY
from evolve.report.text import count_text

if TYPE_CHECKING:
    from evolve.core.protocols import Progress, TerminationRule
    from evolve.search.engine import Search
    from evolve.search.execution.verification import RunAlone
    from evolve.store import Judge, RunRow, Ticket
    from evolve.worker.service.batch_files import BatchRequest

MAX_FAILURES = 50  # recorded failures in a row: nothing is to be had at present


def main(words: Sequence[str]) -> int:
    """Ask, store, and write the file."""
    options = _parse(words)
    from evolve.app.attach import attach

    with open_store(options.store, read_only=False) as store:
        run = store.run(options.run)
        with attach(store, run) as search:
            asked = verification(search) if options.verify else ask(search, options)
            for line in write(search, Path(options.output), asked):
                print(line)
    return 0


def _parse(words: Sequence[str]) -> argparse.Namespace:
    arguments = parser(
        "batch",
        "Write a run's next evaluations to a file. `python -m evolve.worker batch FILE OUT`, on a "
        "machine with the device, judges them, and `evolve tell RUN OUT` takes the verdicts in.",
    )
    add_run(arguments)
    add_count(arguments, "-n", "--number", default=16, text="at most")
    arguments.add_argument("-o", "--output", required=True, metavar="FILE", help="JSON lines")
    arguments.add_argument(
        "--new",
        action="store_true",
        help="leave out programs that wait for a verdict: those of earlier files, and of replies",
    )
    arguments.add_argument(
        "--verify", action="store_true", help="only the verification of the best program so far"
    )
    add_store(arguments)
    return arguments.parse_args(words)


@dataclass(slots=True)
class Asked:
    """The contents of the file, with opponents besides the run's own; why there are no more.

    `hint` says how to have more from models.
    """

    tickets: "list[tuple[Ticket, Mapping[str, str]]]" = field(default_factory=list)
    judge: "Judge | None" = None
    known: int = 0
    reason: str = ""
    hint: str = ""
    verifies: bool = False

    def answers(self, search: "Search", ticket: "Ticket") -> bool:
        """Tell the ticket the verdict of the database, if there is one."""
        known = search.known(search.request(ticket), self.judge) if self.judge else None
        if known is not None:
            search.tell(ticket, known)
            self.known += 1
        return known is not None


def write(search: "Search", path: Path, asked: Asked) -> Iterator[str]:
    """Write the file; reports its contents."""
    from evolve.evaluation.batch import as_batch, write_requests
    from evolve.search.verdicts import request_id

    run = search.run
    first = _about_the_task(run) if run.config.get("audit") is None else []
    if asked.known and asked.judge:
        yield (
            f"{count_text(asked.known, 'verdict')} of {asked.judge.device_class} known to this "
            "database already, and told"
        )
    is_start = len(first) > 1 and not asked.verifies  # an audit alone gives nothing to start from
    if not asked.tickets and not is_start:
        raise UsageError(f"run {run.name} has nothing to judge now: {asked.reason}{asked.hint}")
    if asked.reason and is_start:
        again = "run `evolve tell`, then `evolve batch` again"
        yield f"this file requests compiled references: {again}{asked.hint}"
    elif asked.reason:
        yield f"no more than these: {asked.reason}{asked.hint}"
    requests = [
        as_batch(request_id(run, ticket), search.request(ticket, opponents))
        for ticket, opponents in asked.tickets
    ]
    write_requests(path, [*first, *requests])
    yield f"{path}: {count_text(len(asked.tickets), 'evaluation')} of {run.name}"
    if width := run.config["device"].get("half_width"):
        yield f"judge them with --half-width {width:g}, which the run asks for"


def _about_the_task(run: "RunRow") -> "list[BatchRequest]":
    """Facts that a run created without a judge lacks: its task's audit, costs, compiler seeds."""
    from evolve.app.compiler_seeds import variants
    from evolve.app.estimate.reference import wants_reference
    from evolve.evaluation.batch import audit_request, compiled_request, reference_request

    costs = [reference_request(run.task)] if wants_reference(run.config) else []
    wanted = () if run.task.compiled else variants(run.task, run.config)
    compiled = [compiled_request(run.task, wanted)] if wanted else []
    return [audit_request(run.task), *costs, *compiled]


def ask(search: "Search", options: argparse.Namespace) -> Asked:
    """Proposals to judge: the user's baseline, waiting ones (unless `new`), new ones.

    Of waiting ones those by models come first: their replies cost the most.
    """
    from evolve.app.team import quotas
    from evolve.search.execution.verification import judge_opponents
    from evolve.search.verdicts import waiting_tickets

    asked = Asked(judge=_judge_of(search))
    waiting = [each for each in waiting_tickets(search) if not asked.answers(search, each)]
    signals.run(judge_opponents(search, _into(asked)))
    waiting.sort(key=lambda ticket: ticket.operator not in search.model_operators)
    if not options.new:
        asked.tickets += [(ticket, {}) for ticket in waiting if ticket.operator != VERIFY]
    del asked.tickets[options.number :]
    rule = quotas.termination(search.store, search.run, search.run.config)
    _ask_new(search, rule, waiting, asked, options.number)
    return asked


def verification(search: "Search") -> Asked:
    """The verification of the archive's best, with the opponents that it has to beat."""
    from evolve.search.execution.verification import verify_champion
    from evolve.search.verdicts import waiting_tickets

    why = "there is no program to verify, or the best one is verified"
    asked = Asked(reason=why, verifies=True)
    waiting = [ticket for ticket in waiting_tickets(search) if ticket.operator == VERIFY]
    signals.run(verify_champion(search, _into(asked), lambda: bool(asked.tickets), waiting))
    asked.reason = "" if asked.tickets else asked.reason
    return asked


def _into(asked: Asked) -> "RunAlone":
    """Accepts a ticket like a judge, but writes it down instead."""

    async def take(ticket: "Ticket", opponents: Mapping[str, str]) -> None:
        asked.tickets.append((ticket, opponents))

    return take


def _ask_new(
    search: "Search",
    rule: "TerminationRule",
    waiting: "Sequence[Ticket]",
    asked: Asked,
    number: int,
) -> None:
    """Fill up with new proposals, as far as the budget and the operators go."""
    from evolve.search.execution.nothing_left import nothing_left
    from evolve.store import TicketState

    pending, failures = list(waiting), 0
    while len(asked.tickets) < number and failures < MAX_FAILURES:
        asked.reason = rule.check(_as_if_done(search.progress, pending)) or ""
        ticket = None if asked.reason else search.ask(models=())
        if ticket is None:
            until = " before verdicts are told" if pending else ""
            by_hand = f"; `evolve ask {shlex.quote(search.run.name)}` writes prompts"
            hint = by_hand if search.model_operators else ""
            asked.hint = hint
            asked.reason = asked.reason or f"{nothing_left(search)}{until}"
            return
        if ticket.state is not TicketState.PROPOSED:
            failures += 1
            asked.reason = f"{failures} proposals in a row failed, the last: {ticket.failure}"
            continue
        failures, asked.reason = 0, ""
        if not asked.answers(search, ticket):
            pending.append(ticket)
            asked.tickets.append((ticket, {}))


def _judge_of(search: "Search") -> "Judge | None":
    """The judges of this run so far, or else all that the database knows for its task.

    None if there is none, or several of which no one is chosen.
    """
    from evolve.app.inputs import judge_of

    run, store = search.run, search.store
    if store.environment(run.id):
        return store.judge(run.id)
    others = (other for other in store.runs() if other.task.revision == run.task.revision)
    found = {judge_of(store, other, run.config) for other in others} - {None}
    return found.pop() if len(found) == 1 else None


def _as_if_done(progress: "Progress", pending: "Sequence[Ticket]") -> "Progress":
    """The progress as it will be when all that is out has its verdict."""
    fidelities = [
        ticket.proposal.fidelity
        for ticket in pending
        if ticket.proposal and ticket.operator not in NO_PROPOSALS
    ]
    return replace(
        progress,
        evaluations=progress.evaluations + fidelities.count(Fidelity.SEARCH),
        screens=progress.screens + fidelities.count(Fidelity.SCREEN),
    )
