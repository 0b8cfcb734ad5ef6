"""Measures known programs again if that may change which one leads."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist

from evolve.core.evaluation import Fidelity
from evolve.core.measurement import Z95
from evolve.core.protocols import Context, Declined, Elite, Proposal, Trial
from operators.base import measured_again
from operators.checks import check_number, check_whole

_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True, kw_only=True)
class Remeasure:
    """Evaluates an elite's best instance once more: the one that is worth most per device second.

    The best of many noisy measurements is partly lucky. So a new leader is confirmed first. Beyond
    that, the value of another evaluation is the knowledge gradient (Frazier, Powell and Dayanik
    2008): by how much the best posterior mean is expected to rise, in log speedup, when normal
    posteriors are as wide as the elites' intervals and another evaluation is as noisy as the
    earlier ones were.

    Asked before all others but seeds (an infinite weight), it declines while nothing is worth it.

    Args:
        confirm: evaluations that a leader has at least.
        least: expected gain (log speedup) from which an evaluation is worth it.
        share: of the run's steps that go into it; confirmations count, but are made beyond it too.
        most: evaluations of one instance.
        breadth: how many of the best programs are considered.

    Raises:
        UsageError: a setting is out of range.
    """

    confirm: int = 2
    least: float = 0.002
    share: float = 0.1
    most: int = 6
    breadth: int = 16

    def __post_init__(self) -> None:
        check_whole("operators.*.confirm", self.confirm, least=1)
        check_number("operators.*.least", self.least, least=0)
        check_number("operators.*.share", self.share, least=0, most=1)
        check_whole("operators.*.most", self.most, least=2)
        check_whole("operators.*.breadth", self.breadth, least=2)

    @property
    def parents(self) -> int:
        return 0

    def propose(self, context: Context) -> Proposal | Declined:
        elites = context.elites[: self.breadth]
        if not elites:
            return Declined("nothing is measured yet")
        leader = elites[0]
        if leader.evaluations < self.confirm and self._is_open(context, leader):
            return measured_again(context, leader, "again: confirms the leader")
        if context.facts.proposals(context.operator) >= self.share * context.step:
            return Declined(f"{self.share:.0%} of the steps went into it already")
        worth = dict(self._worth(context, elites))
        if not worth:
            return Declined("no other measurement would change who leads")
        best = max(worth, key=lambda index: worth[index])
        gain = worth_of(elites, best)
        return measured_again(context, elites[best], f"again: expected gain {math.expm1(gain):.2%}")

    def _worth(self, context: Context, elites: Sequence[Elite]) -> Iterator[tuple[int, float]]:
        """Programs worth measuring again, by index, with expected gain per device second."""
        for index, elite in enumerate(elites):
            gain = worth_of(elites, index)
            if gain >= self.least and self._is_open(context, elite):
                judged = context.facts.evaluation(elite.program)
                seconds = judged.device_time_s if judged else 0.0
                yield index, gain / (seconds or 1.0)

    def _is_open(self, context: Context, elite: Elite) -> bool:
        """Whether the instance may be measured again: not now, and not too often.

        Counted by trials, for an evaluation that failed by our own fault leaves the elite as it is.
        """
        full = _measurements(context, elite)
        return len(full) < self.most and not _is_pending(full)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemeasureHead:
    """Re-evaluates the program that the selection policy is about to develop, whatever its promise.

    POLCA (arXiv 2603.14769, algorithm 1) does so in each step with the head of its queue. Here the
    parents that the policy gives are the head, in its order: by mean, or by upper bound.

    Args:
        candidates: length of the head, k in the paper.
        share: of the run's steps that go into it; half, if each step of the paper measures as many
            programs again as it makes new ones (n = 1).

    Raises:
        UsageError: a setting is out of range.
    """

    candidates: int = 5
    share: float = 0.5

    def __post_init__(self) -> None:
        check_whole("operators.*.candidates", self.candidates, least=1)
        check_number("operators.*.share", self.share, least=0, most=1)

    @property
    def parents(self) -> int:
        return self.candidates

    def propose(self, context: Context) -> Proposal | Declined:
        if context.facts.proposals(context.operator) >= self.share * context.step:
            return Declined(f"{self.share:.0%} of the steps went into it already")
        for elite in context.parents:
            if not _is_pending(_measurements(context, elite)):
                return measured_again(context, elite, "again: it is in the head of the queue")
        return Declined("all of the head is being measured")


def _measurements(context: Context, elite: Elite) -> list[Trial]:
    """The full evaluations of an elite's best instance, pending ones too."""
    return [
        trial
        for trial in context.facts.trials(elite.program)
        if trial.fidelity is Fidelity.SEARCH and dict(trial.assignment) == dict(elite.assignment)
    ]


def _is_pending(trials: Sequence[Trial]) -> bool:
    return any(trial.status is None for trial in trials)


def worth_of(elites: Sequence[Elite], index: int) -> float:
    """The knowledge gradient of another evaluation of one of some elites, best first.

    >>> worth_of([], 0)
    0.0
    """
    if len(elites) < 2:
        return 0.0
    elite = elites[index]
    rival = elites[1 if index == 0 else 0]
    deviation = (elite.fitness.high - elite.fitness.low) / (2 * Z95)
    if not deviation:
        return 0.0
    # One evaluation has the variance of the mean times their number.
    shift = deviation / math.sqrt(1 + elite.evaluations)
    gap = -abs(elite.fitness.value - rival.fitness.value) / shift
    return shift * (gap * _NORMAL.cdf(gap) + _NORMAL.pdf(gap))
