"""The requirements for every operator. Subclass, give a `make`, and let pytest collect it."""

from collections.abc import Iterator

from evolve.core.evaluation import Fidelity
from evolve.core.model import ModelRequest
from evolve.core.program import Program
from evolve.core.protocols import Context, Declined, Elite, Failed, Operator, Proposal
from evolve.core.source.tunables import parse, render
from evolve.testing.parts import MemoryFacts, make_context
from evolve.testing.synthetic import SEED_SOURCE

RELATIVES = (
    SEED_SOURCE,
    SEED_SOURCE.replace("x[:BLOCK]", "x[: BLOCK * STAGES]").replace("tile(x) *", "tile(x) +"),
    SEED_SOURCE.replace("16, 32, 64, 128, 256", "16, 48, 96").replace("tile(x) *", "x *"),
)


class OperatorConformance:
    """The invariants of `evolve.core.protocols.Operator`, over archives of none to three elites."""

    def make(self) -> Operator:
        raise NotImplementedError

    def sources(self) -> tuple[str, ...]:
        """Programs for the archive; override if the operator needs others to have work."""
        return RELATIVES

    def contexts(self, parents: int | None = None) -> Iterator[Context]:
        """Contexts of several ages, each made afresh, with the whole archive beside the parents.

        `parents` overrides how many there are.
        """
        wanted = self.make().parents if parents is None else parents
        for age in (0, 1, 3):
            for sequence in range(2):
                facts, elites = self._history(age)
                if len(elites) >= wanted:
                    yield make_context(facts, elites[:wanted], sequence=sequence, elites=elites)

    def _history(self, age: int) -> tuple[MemoryFacts, list[Elite]]:
        """A run's facts after some evaluations, the last screen still pending."""
        facts = MemoryFacts()
        programs = [Program(source) for source in self.sources()[: age + 1]]
        elites = [elite for program in programs if (elite := facts.judge(program))]
        for program in programs:
            choices = list(parse(program.source).assignments())
            for assignment in choices[: 4 * age]:
                facts.judge(program, assignment, fidelity=Fidelity.SCREEN)
            if age and len(choices) > 4 * age:
                facts.pend(program, choices[4 * age], Fidelity.SCREEN)
        return facts, elites

    def test_the_same_context_twice_gives_the_same_answer(self) -> None:
        used = self.make()
        answers = [used.propose(context) for context in self.contexts()]
        assert answers == [used.propose(context) for context in self.contexts()]
        assert answers == [self.make().propose(context) for context in self.contexts()]

    def test_it_has_something_to_propose(self) -> None:
        answers = [self.make().propose(context) for context in self.contexts()]
        assert any(isinstance(answer, Proposal) for answer in answers)

    def test_with_too_few_parents_it_declines(self) -> None:
        for given in range(self.make().parents):
            for context in self.contexts(given):
                assert isinstance(self.make().propose(context), Declined)

    def test_a_proposal_renders_and_parses(self) -> None:
        for proposal in self._proposals():
            source = render(proposal.program.source, proposal.assignment)
            defaults = parse(source).defaults
            assert all(defaults[name] == value for name, value in proposal.assignment.items())

    def test_a_proposal_names_parents_that_the_archive_holds(self) -> None:
        for context in self.contexts():
            answer = self.make().propose(context)
            if isinstance(answer, Proposal):
                assert {*answer.parents} <= {elite.program for elite in context.elites}

    def test_a_proposal_is_no_instance_that_the_run_holds_at_that_fidelity(self) -> None:
        for context in self.contexts():
            answer = self.make().propose(context)
            if isinstance(answer, Proposal) and not answer.is_reevaluation:
                trials = context.facts.trials(answer.program.digest)
                held = [trial.assignment for trial in trials if trial.fidelity is answer.fidelity]
                assert answer.assignment not in held

    def test_a_refusal_says_why(self) -> None:
        for context in self.contexts():
            answer = self.make().propose(context)
            assert isinstance(answer, (Proposal, Declined, Failed, ModelRequest))
            assert isinstance(answer, (Proposal, ModelRequest)) or answer.reason

    def test_the_context_is_left_alone(self) -> None:
        for context in self.contexts():
            elites = list(context.elites)
            self.make().propose(context)
            assert list(context.elites) == elites

    def _proposals(self) -> list[Proposal]:
        answers = [self.make().propose(context) for context in self.contexts()]
        return [answer for answer in answers if isinstance(answer, Proposal)]
