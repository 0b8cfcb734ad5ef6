"""Replies that a person or an agent wrote, told to a run."""

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from evolve.app.manual.files import Answer, read_answers
from evolve.core.errors import UsageError
from evolve.report.text import count_text, one_line

if TYPE_CHECKING:
    from evolve.search.engine import Search


def tell_replies(search: "Search", folder: Path) -> Iterator[str]:
    """Store and read every awaited reply of a folder; reports the result of each.

    In any order and any number of times the outcome is the same.

    Raises:
        UsageError: at the end, if a reply was not told.
    """
    from evolve.store import TicketState

    known = proposed = again = refused = 0
    for answer in read_answers(folder):
        if not isinstance(answer, str) and (wrong := misplaced(search, answer)):
            answer = f"{answer.path.name}: {wrong}"
        if isinstance(answer, str):
            refused += 1
            yield f"not told: {answer}"
            continue
        ticket = search.store.ticket(search.run.id, answer.sequence)
        if len(ticket.exchanges) > answer.round:
            known += 1
            continue
        ticket = search.answered(ticket, answer.reply, key=answer.key)
        proposed += ticket.state is TicketState.PROPOSED
        again += ticket.state is TicketState.ASKED
        if ticket.failure:
            yield f"#{ticket.sequence} {ticket.operator}: {one_line(ticket.failure)}"
    seen = f", {known} known already" if known else ""
    yield f"{count_text(proposed, 'program')} proposed{seen}"
    name = shlex.quote(search.run.name)
    if again:
        yield f"{count_text(again, 'request')} of one more round; `evolve ask {name}` writes them"
    yield f"next        evolve resume {name}, or evolve batch {name} -o in.jsonl"
    if refused:
        raise UsageError(
            f"{count_text(refused, 'reply file')} not told, see above; correct them, then: "
            f"evolve tell {name} {shlex.quote(str(folder))}"
        )


def misplaced(search: "Search", answer: Answer) -> str:
    """Why an answer cannot be told to this ticket; empty if it can."""
    if answer.run != search.run.name:
        return f"it is of run {answer.run}, not of {search.run.name}; tell that run"
    if not 0 <= answer.sequence < search.store.next_sequence(search.run.id):
        return f"step {answer.sequence} was never asked for in this database"
    ticket = search.store.ticket(search.run.id, answer.sequence)
    texts = search.store.texts(ticket, answer.round)
    if not texts:
        return f"step {answer.sequence} has asked no round {answer.round}"
    if answer.key not in [text.key for text in texts]:
        name = shlex.quote(search.run.name)
        return (
            f"it answers another request than step {answer.sequence} asks; "
            f"`evolve ask {name} --out DIR` writes that"
        )
    return ""
