"""The winner: decided by the stored verifications, in the order in which they were made.

The winner of many noisy measurements is partly lucky, so the search's own numbers decide on no
winner. A contender becomes champion by a verification: measured again after it was chosen, in fresh
processes and with fresh seeds. If two could have won, they are timed in one interleaved run (a
direct duel): `RUNNER_UP` beside the contender, or the reigning `CHAMPION` beside a challenger. A
challenger has to win by a whole interval. Without a duel the higher ratio wins.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from evolve.core.evaluation import Evaluation, Fidelity, Status
from evolve.core.lineage import VERIFY, Step
from evolve.core.measurement import Ratio
from evolve.core.program import Assignment, instance_digest
from evolve.core.protocols import Elite
from evolve.core.records import RunRow
from evolve.core.run_store import RunStore

RUNNER_UP = "runner_up"
CHAMPION = "champion"


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

    @property
    def instance(self) -> str:
        return instance_digest(self.program, self.assignment)


def champion(store: RunStore, run: RunRow, held: Iterable[Elite] | None = None) -> Champion | None:
    """The winner of a run; unverified where nothing has been verified yet.

    None while no strictly correct program has been timed, or where verification refuted all.

    Args:
        store: that holds the run.
        run: the run.
        held: the elites of the run's archive, if the caller has read them; else they are read if
            nothing is verified.
    """
    refuted: set[str] = set()
    reigning: Champion | None = None
    beaten: Champion | None = None  # correct, but lost its duel
    for instance, found in _verifications(store, run):
        if found is None:
            refuted.add(instance)
            reigning = None if reigning and reigning.instance == instance else reigning
        elif _is_crowned(found, reigning):
            reigning = found
        else:
            beaten = found
    if reigning or beaten:
        return reigning or beaten
    elites = store.slots(run.id).values() if held is None else held
    return _unverified(store, run, elites, refuted)


def best_path(store: RunStore, run: RunRow) -> list[int]:
    """The steps that made a run's champion and its main ancestors, in order; empty without one."""
    winner = champion(store, run)
    return [] if winner is None else store.line_to(run.id, winner.program)


def refuted_instances(store: RunStore, run: RunRow) -> set[str]:
    """Instances (digests) that a verification found wrong, or not custom, or could not time."""
    return {instance for instance, found in _verifications(store, run) if found is None}


def verified_instances(store: RunStore, run: RunRow) -> set[str]:
    """Instances (digests) that have stood a verification, or been refuted by one."""
    return {instance for instance, _ in _verifications(store, run)}


def _verifications(store: RunStore, run: RunRow) -> list[tuple[str, Champion | None]]:
    """Every verification that says something, in order: the instance, None if it is refuted."""
    found = []
    for sequence in store.made_by(run.id, VERIFY):
        evaluation = store.evaluation(run.id, sequence)
        if evaluation is None or evaluation.status is Status.INFRA:
            continue
        step = store.step(run.id, sequence)
        instance = instance_digest(step.program or "", step.assignment)
        found.append((instance, _of(run, step, evaluation)))
    return found


def _is_crowned(found: Champion, reigning: Champion | None) -> bool:
    duels = found.evaluation.ratios
    if reigning is not None and CHAMPION in duels:
        return duels[CHAMPION].is_gain
    if reigning is not None and reigning.instance != found.instance:
        return found.ratio.value > reigning.ratio.value
    return not (RUNNER_UP in duels and duels[RUNNER_UP].high < 1.0)


def _unverified(
    store: RunStore, run: RunRow, held: Iterable[Elite], refuted: set[str]
) -> Champion | None:
    for elite in sorted(held, key=lambda elite: -elite.fitness.value):
        if instance_digest(elite.program, elite.assignment) in refuted:
            continue
        evaluation = store.evaluation(run.id, elite.sequence)
        found = _of(run, store.step(run.id, elite.sequence), evaluation)
        return None if found is None else replace(found, ratio=Ratio.exp(elite.fitness))
    return None


def _of(run: RunRow, step: Step, evaluation: Evaluation | None) -> Champion | None:
    if evaluation is None or not evaluation.strict or run.baseline not in evaluation.ratios:
        return None
    if step.program is None:
        return None
    return Champion(
        sequence=step.sequence,
        program=step.program,
        assignment=step.assignment,
        ratio=evaluation.ratios[run.baseline],
        evaluation=evaluation,
    )
