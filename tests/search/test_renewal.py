"""An open request that verdicts have overtaken, as answers by hand meet it.

Invariants:
1. It is asked as it would be asked now, at the turn of its own ticket; a reply to it is taken.
2. It stays as it was where no verdict has come since, or an answer is there.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from evolve.core.model import Message, ModelRequest
from evolve.core.protocols import Context, Elite, Population
from evolve.core.records import Ticket, TicketState
from evolve.core.source.tunables import render
from evolve.search.engine import Search
from evolve.search.schedule import Scheduled
from evolve.testing.synthetic import OPTIMUM, SEED_SOURCE, SyntheticEvaluator
from operators import Seed, Tune
from tests.search.conftest import make_search
from tests.search.models import ScriptedModel, Writer, answer


@dataclass(frozen=True)
class Improver(Writer):
    """Asks for a better program than the best, which it names."""

    parents: int = 1

    def propose(self, context: Context) -> ModelRequest:
        [best] = context.parents
        message = Message("user", f"Improve {best.program} with {dict(best.assignment)}.")
        return ModelRequest(messages=(message,), memo={"sequence": context.sequence})


@dataclass
class Best:
    """Selects the best program, and notes the turns at which it was asked."""

    turns: list[int] = field(default_factory=list)

    def select(self, population: Population, count: int, rng: object) -> Sequence[Elite]:
        self.turns.append(population.turn)
        return tuple(population.ranked[:count])


def begun(store, run) -> tuple[Search, Best]:
    """A search with a judged seed and two tunings of it."""
    operators = {
        "seed": Scheduled(operator=Seed(), weight=float("inf")),
        "tune": Scheduled(operator=Tune()),
        "improve": Scheduled(operator=Improver()),
    }
    best = Best()
    search = make_search(store, run, operators=operators, selection=best, model=ScriptedModel())
    for name in ("seed", "tune", "tune"):
        judge(search, search.ask(operators=[name]))
    return search, best


def judge(search: Search, ticket: Ticket) -> None:
    search.tell(ticket, SyntheticEvaluator().judge(search.request(ticket)))


def text(ticket: Ticket) -> str:
    return ticket.request.messages[0].content


def test_an_overtaken_request_is_asked_for_what_is_best_now(store, run):
    search, _ = begun(store, run)
    ticket = search.ask(operators=["improve"])
    better = search.offer(render(SEED_SOURCE, OPTIMUM))
    judge(search, better)
    renewed = search.renewed(ticket)
    assert text(renewed) != text(ticket)
    assert better.proposal.program.digest in text(renewed)
    assert renewed.parents == (better.proposal.program.digest,)
    assert (renewed.sequence, renewed.operator) == (ticket.sequence, "improve")
    done = search.answered(renewed, answer(f"{SEED_SOURCE}\n\nBY_HAND = 1\n"))
    assert done.state is TicketState.PROPOSED


def test_a_request_is_renewed_at_the_turn_of_its_own_ticket(store, run):
    search, best = begun(store, run)
    ticket = search.ask(operators=["improve"])
    turn = best.turns[-1]
    assert turn == ticket.sequence - 2  # which counts no tunings
    judge(search, search.ask(operators=["tune"]))
    search.renewed(ticket)
    assert best.turns[-1] == turn


def test_a_request_that_nothing_has_overtaken_stays(store, run):
    search, best = begun(store, run)
    ticket = search.ask(operators=["improve"])
    asked = len(best.turns)
    assert search.renewed(ticket) == ticket
    assert len(best.turns) == asked


def test_an_answered_request_is_not_renewed(store, run):
    search, _ = begun(store, run)
    ticket = search.answered(
        search.ask(operators=["improve"]), answer(f"{SEED_SOURCE}\n\nBY_HAND = 1\n")
    )
    judge(search, search.offer(render(SEED_SOURCE, OPTIMUM)))
    assert search.renewed(ticket) == ticket
