"""Verdicts that were given elsewhere, told to a search.

Each is told whole or not at all; in any order and any number of times the outcome is the same.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from evolve.core.errors import UsageError
from evolve.evaluation.batch import Verdict, Verdicts
from evolve.search.engine import Search
from evolve.store import RunRow, Ticket, TicketState


@dataclass(slots=True)
class Import:
    """The result of telling.

    Attributes:
        told: steps that have their verdict now.
        added: of these, programs that the archive took.
        known: verdicts on steps that had one already.
        waiting: steps whose verdict is still to come.
        problems: a sentence per verdict that was not told.
    """

    told: int = 0
    added: int = 0
    known: int = 0
    waiting: int = 0
    problems: list[str] = field(default_factory=list)


def request_id(run: RunRow, ticket: Ticket) -> str:
    """The name of a ticket's request outside the database: RUN:SEQ."""
    return f"{run.name}:{ticket.sequence}"


def waiting_tickets(search: Search) -> list[Ticket]:
    """Proposals without a verdict, in order.

    Judged tickets that were not told are told now, and replies are read; requests that a model has
    not answered are left as they are.
    """
    waiting = []
    for ticket in map(search.read, search.store.open_tickets(search.run.id)):
        if ticket.state is TicketState.PROPOSED:
            waiting.append(ticket)
        elif ticket.evaluation is not None:
            search.tell(ticket, ticket.evaluation)
    return waiting


def tell_verdicts(search: Search, found: Verdicts) -> Import:
    """Tell the search the verdicts for its waiting tickets, in the order of asking."""
    outcome = Import(problems=list(found.problems))
    mine: dict[int, list[Verdict]] = defaultdict(list)
    strangers: Counter[str] = Counter()
    for verdict in found.verdicts:
        run, _, number = verdict.id.rpartition(":")
        if run == search.run.name and number.isdigit():
            mine[int(number)].append(verdict)
        else:
            strangers[run or verdict.id] += 1
    for name, count in strangers.items():
        outcome.problems.append(f"{count} of run {name}, not of {search.run.name}; tell that run")
    asked = search.store.next_sequence(search.run.id)
    waiting = {ticket.sequence: ticket for ticket in waiting_tickets(search)}
    for sequence in sorted(mine):
        if sequence in waiting:
            _tell(search, waiting[sequence], mine[sequence], outcome)
        elif sequence < asked:
            outcome.known += 1
        else:
            outcome.problems.append(f"{search.run.name}:{sequence} was never asked for")
    outcome.waiting = len(waiting) - outcome.told
    return outcome


def _tell(search: Search, ticket: Ticket, verdicts: Sequence[Verdict], outcome: Import) -> None:
    """Tell the first verdict that fits the ticket; describes the errors if none does."""
    request = search.request(ticket)
    for verdict in verdicts:
        if not (unfit := verdict.differs_from(request) or _other_device(search, verdict)):
            outcome.told += 1
            outcome.added += bool(search.tell(ticket, verdict.evaluation))
            return
    outcome.problems.append(f"{verdicts[-1].id} ({verdicts[-1].answer.where}) is about {unfit}")


def _other_device(search: Search, verdict: Verdict) -> str:
    """The device of the verdict if the run is judged on another one: its fitness is another."""
    try:
        judged_on, _ = search.store.judge(search.run.id)
    except UsageError:  # nothing is judged yet
        return ""
    given_on = verdict.evaluation.device_class
    return "" if given_on == judged_on else f"{given_on}, and this run is judged on {judged_on}"
