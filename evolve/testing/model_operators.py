"""The requirements for every operator that asks a model, beyond `OperatorConformance`.

Subclass, give a `make`, and let pytest collect it. No model is asked: replies are made up.
"""

from collections.abc import Iterator

from evolve.core.digest import canonical_json
from evolve.core.model import CallStatus, Exchange, ModelReply, ModelRequest
from evolve.core.protocols import (
    MAX_ROUNDS,
    Context,
    Declined,
    Failed,
    ModelOperator,
    Proposal,
    Reading,
)
from evolve.core.source.tunables import parse
from evolve.testing.operators import RELATIVES, OperatorConformance
from evolve.testing.parts import make_context

CHILD = RELATIVES[0].replace("* UNROLL", "* UNROLL + BLOCK")
REPLIES = (
    f"A few words.\n\n```python\n{CHILD}```\n",
    "",
    "No code at all.",
    "```python\nclass ModelNew:\n    broken = (\n```\n",
    f"```python\n{CHILD}",
    "<<<<<<< SEARCH\nthat is not there\n=======\nx = 1\n>>>>>>> REPLACE\n",
    "<think>never ends",
    "\ud800\0",
)


class ModelOperatorConformance(OperatorConformance):
    """The invariants of `evolve.core.protocols.ModelOperator`."""

    def make(self) -> ModelOperator:
        raise NotImplementedError

    def contexts(self, parents: int | None = None) -> Iterator[Context]:
        """As of any operator, with the whole archive beside the parents."""
        wanted = self.make().parents if parents is None else parents
        for age in (0, 1, 2):
            facts, elites = self._history(age)
            if len(elites) >= wanted:
                yield make_context(facts, elites[:wanted], sequence=50 + age, elites=elites)

    def test_it_has_something_to_propose(self) -> None:
        assert self._requests()

    def test_with_too_few_parents_it_declines(self) -> None:
        """Or does without them: a first version needs none."""
        for given in range(self.make().parents):
            for context in self.contexts(given):
                assert isinstance(self.make().propose(context), (Declined, ModelRequest))

    def test_a_request_can_be_stored_and_says_something(self) -> None:
        for _, request in self._requests():
            assert request.messages[-1].role == "user"
            assert all(message.content.strip() for message in request.messages)
            assert request.samples >= 1
            assert canonical_json(dict(request.memo))

    def test_whatever_the_reply_it_is_read_without_an_exception(self) -> None:
        for context, _, reading in self._readings():
            assert isinstance(reading, Reading)
            assert isinstance(reading.outcome, (Proposal, Failed, ModelRequest))
            if isinstance(reading.outcome, Proposal):
                parse(reading.outcome.program.source)
                for parent in reading.outcome.parents:
                    assert context.facts.source(parent)
            if isinstance(reading.outcome, Failed):
                assert reading.outcome.reason

    def test_reading_again_gives_the_same(self) -> None:
        for context, exchanges, reading in self._readings():
            assert self.make().interpret(context, exchanges) == reading

    def test_an_answer_with_a_program_is_proposed(self) -> None:
        """Where the first thing that it asks for is a program."""
        asked = [request for _, request in self._requests() if request.purpose == "propose"]
        proposed = [r for _, _, r in self._readings() if isinstance(r.outcome, Proposal)]
        assert proposed or not asked

    def test_a_cut_reply_without_a_closed_block_makes_no_program(self) -> None:
        """A known program may be measured again, whatever its verdict."""
        for context, request in self._requests():
            reply = ModelReply(status=CallStatus.TRUNCATED, text=f"```python\n{CHILD}")
            reading = self.make().interpret(context, [Exchange(request, reply)])
            assert not isinstance(reading.outcome, Proposal) or reading.outcome.is_reevaluation

    def _requests(self) -> list[tuple[Context, ModelRequest]]:
        asked = [(context, self.make().propose(context)) for context in self.contexts()]
        return [(context, one) for context, one in asked if isinstance(one, ModelRequest)]

    def _readings(self) -> Iterator[tuple[Context, list[Exchange], Reading]]:
        """Every made-up reply, repeated for as many rounds as the operator asks for."""
        for context, request in self._requests():
            for text in REPLIES:
                asked, exchanges = request, list[Exchange]()
                for _ in range(MAX_ROUNDS):
                    reply = ModelReply(status=CallStatus.COMPLETED, text=text)
                    exchanges = [*exchanges, Exchange(asked, reply)]
                    reading = self.make().interpret(context, exchanges)
                    yield context, exchanges, reading
                    if not isinstance(reading.outcome, ModelRequest):
                        break
                    asked = reading.outcome
