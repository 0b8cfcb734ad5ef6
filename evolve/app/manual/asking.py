"""Requests of a run for a person or an agent to answer."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from evolve.app.team.quotas import termination
from evolve.core.errors import UsageError
from evolve.core.model import BY_HAND
from evolve.search.engine import Search
from evolve.store import Ticket, TicketState

MAX_FAILURES = 50  # operators that fail in a row: nothing is to be had at present


def requests(
    search: Search,
    number: int,
    operators: Sequence[str],
    renew: Callable[[Ticket], Ticket] | None = None,
) -> tuple[list[Ticket], str]:
    """Requests that are open, then new ones; why there are not more.

    Args:
        search: of the run.
        number: at most.
        operators: names of those to ask.
        renew: an open request as it is asked now (None: composed anew if verdicts have come).
    """
    renew = renew or search.renewed
    found = [
        renew(ticket)
        for ticket in search.open_tickets()
        if ticket.state is TicketState.ASKED and ticket.model == BY_HAND
    ]
    rule = termination(search.store, search.run, search.run.config)
    reason, failures = "", 0
    while len(found) < number and failures < MAX_FAILURES and not reason:
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
    return found[:number], reason


def wanted_operators(search: Search, name: str | None) -> list[str]:
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


def declined_text(search: Search) -> str:
    """Why no operator had anything to ask."""
    reasons = [f"{name}: {why}" for name, why in search.declined.items()]
    return "; ".join(reasons) or "every operator has declined"
