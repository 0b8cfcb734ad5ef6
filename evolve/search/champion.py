"""Who won: the verified program where there is one, else the archive's best."""

from dataclasses import dataclass

from evolve.core.evaluation import Evaluation, Fidelity
from evolve.core.measurement import Ratio
from evolve.core.program import Assignment
from evolve.store import RunRow, Store

VERIFY = "verify"  # the operator name of verification tickets


@dataclass(frozen=True, slots=True, kw_only=True)
class Champion:
    """The best program of a run with the evaluation that its headline rests on."""

    sequence: int
    program: str
    assignment: Assignment
    ratio: Ratio
    evaluation: Evaluation

    @property
    def verified(self) -> bool:
        return self.evaluation.fidelity is Fidelity.VERIFY


def champion(store: Store, run: RunRow) -> Champion | None:
    """The winner of a run, or None while no strictly correct program has been timed.

    A verified program beats every unverified one: its number was taken again, in fresh processes
    and with fresh seeds, after it had been chosen, so the luck that chose it is not in it.
    """
    baseline = str(run.config.get("baseline", "eager"))
    verified = [
        found
        for sequence in store.made_by(run.id, VERIFY)
        if (found := _at(store, run, sequence, baseline))
    ]
    if verified:
        return max(verified, key=lambda found: found.ratio.value)
    elites = sorted(store.slots(run.id).values(), key=lambda elite: -elite.fitness.value)
    return _at(store, run, elites[0].sequence, baseline) if elites else None


def _at(store: Store, run: RunRow, sequence: int, baseline: str) -> Champion | None:
    evaluation = store.evaluation(run.id, sequence)
    if evaluation is None or not evaluation.strict or baseline not in evaluation.ratios:
        return None
    step = store.step(run.id, sequence)
    if step.program is None:
        return None
    return Champion(
        sequence=sequence,
        program=step.program,
        assignment=step.assignment,
        ratio=evaluation.ratios[baseline],
        evaluation=evaluation,
    )
