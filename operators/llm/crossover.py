"""One child of several parents, from the strengths of each."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from evolve.core.model import ModelRequest
from evolve.core.protocols import Context, Declined, Elite
from evolve.core.task import case_text
from operators.base import Base
from operators.checks import check_choice, check_whole
from operators.llm.mates import case_times, complementary, faster_kernels, has_to_give
from operators.prompting.composition import Prompted
from operators.prompting.prompt_context import Exhibit, exhibit, time_text
from operators.prompting.reply_handling import Answering


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossover(Answering):
    """Asks for a program that joins the measured strengths of its parents.

    Parents that have nothing which the fastest one lacks (`operators.llm.mates.has_to_give`) are
    left out; it declines if no other is left.

    Args:
        count: how many parents, from 2.
        mates: the other parents: `selected` by the selection policy, or `different` for programs
            that win where the main parent does not (`operators.llm.mates`).
    """

    count: int = 2
    mates: str = "selected"

    def __post_init__(self) -> None:
        Prompted.__post_init__(self)
        check_whole("operators.*.count", self.count, least=2)
        check_choice("operators.*.mates", self.mates, ("selected", "different"))

    @property
    def parents(self) -> int:
        return self.count

    def propose(self, context: Context) -> ModelRequest | Declined:
        chosen = {parent.program: parent for parent in self._chosen(context)}
        if len(chosen) < 2:
            return Declined("needs two parents")
        best = max(chosen.values(), key=lambda parent: parent.fitness.value)
        useful = [
            parent
            for parent in chosen.values()
            if parent is best or has_to_give(context, parent, best)
        ]
        if len(useful) < 2:
            return Declined(
                "no other parent has a part, a case or a kernel that the best one lacks"
            )
        base = Base.of(useful)
        shown = [exhibit(context, *program) for program in base.programs]
        job = self.text("crossover", strengths=list(strengths(shown)))
        return self.ask(context, job, base=base, heading="The parents", directed=False)

    def _chosen(self, context: Context) -> Sequence[Elite]:
        if self.mates == "selected" or not context.parents:
            return context.parents
        found = complementary(context, context.parents[0], self.count - 1)
        return (context.parents[0], *found) if found else context.parents


def strengths(shown: Sequence[Exhibit]) -> Iterator[str]:
    """The aspects in which one of the programs measurably beats all others, in words."""
    for one in shown:
        rivals = [other for other in shown if other is not one]
        if one.speedup and all(r.speedup and one.speedup.low > r.speedup.high for r in rivals):
            yield f"{one.name} is the fastest over all cases"
        times = case_times(one.evaluation)
        for name, time in times.items() if len(times) > 1 else ():
            others = [case_times(rival.evaluation).get(name) for rival in rivals]
            if all(other is not None and time.high < other.low for other in others):
                yield f"{one.name} is the fastest in {case_text(name)}: {time_text(time)}"
        yield from _kernels(one, rivals)


def _kernels(one: Exhibit, rivals: Sequence[Exhibit]) -> Iterator[str]:
    """Its kernels that are faster than those of the same name in all others."""
    wins = [faster_kernels(one.evaluation, rival.evaluation) for rival in rivals]
    for name in wins[0] if wins else ():
        if all(name in each for each in wins):
            own, least = wins[0][name][0], min(each[name][1] for each in wins)
            yield f"{one.name} has the fastest kernel {name}: {own:.3g} ms against {least:.3g} ms"
