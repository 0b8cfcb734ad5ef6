"""A user's own baseline that is wrong, or that could not be timed: said with the reason."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from evolve.core.evaluation import Evaluation, Fidelity, Status
from evolve.core.lineage import OPPONENT, Step
from evolve.report.text import baseline_name, count_text, one_line

if TYPE_CHECKING:
    from evolve.core.run_store import RunStore
    from evolve.store import RunRow

MAX_REASON = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Opponent:
    """Stored facts of a run's own baseline.

    `verdict` is on the baseline itself. `untimed` counts full evaluations of correct kernels that
    have times, but none against the baseline; `example` is the latest of them.
    """

    name: str
    verdict: Evaluation | None = None
    untimed: int = 0
    example: Evaluation | None = None

    def troubles(self) -> Iterator[str]:
        """Full sentences for summary and report; none if all is well."""
        name = baseline_name(self.name)
        verdict = self.verdict
        if verdict is not None and verdict.status not in (Status.CORRECT, Status.INFRA):
            failed = next((case.name for case in verdict.cases if not case.passed), None)
            where = f", case {failed}" if failed else ""
            yield (
                f"The baseline {name} fails the check itself ({verdict.status.replace('_', ' ')}"
                f"{where}), so that gains over it mean nothing: {_reason(verdict)}"
            )
        if self.untimed:
            why = f": {_reason(self.example)}" if self.example else "."
            yield (
                f"The baseline {name} dropped out of the timing of "
                f"{count_text(self.untimed, 'correct kernel')}, which have no score for it{why}"
            )


def opponent(store: "RunStore", run: "RunRow", steps: Sequence[Step]) -> Opponent:
    """Read the fate of the run's baseline in its `steps`."""
    own = [step.sequence for step in steps if step.operator == OPPONENT and step.status]
    untimed = [
        step.sequence
        for step in steps
        if step.status is Status.CORRECT
        and step.custom
        and step.fidelity is not Fidelity.SCREEN
        and step.ratios
        and run.baseline not in step.ratios
    ]
    return Opponent(
        name=run.baseline,
        verdict=store.evaluation(run.id, own[-1]) if own else None,
        untimed=len(untimed),
        example=store.evaluation(run.id, untimed[-1]) if untimed else None,
    )


def _reason(verdict: Evaluation) -> str:
    return one_line(verdict.feedback, MAX_REASON) or "the judge gave no reason."
