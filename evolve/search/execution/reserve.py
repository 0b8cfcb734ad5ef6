"""How long evaluations take, and so how much time has to be kept back before a limit."""

import statistics
from collections import deque
from collections.abc import Collection

from evolve.core.evaluation import Evaluation, Fidelity, Status, stages_s
from evolve.core.lineage import VERIFY
from evolve.core.measurement import WIDE
from evolve.search.engine import Search

VERIFICATION = 3.0
"""A verification in evaluations, if nothing else is known of it."""

RECENT = 32
"""Evaluations that are looked at."""

# Pairs of processes of a verification; more on a host if one is not enough for an evaluation, if
# narrow intervals are wanted.
_PAIRS, _MORE_PAIRS = 8, 14
_SIDES = 1.5  # times as many where a runner-up takes part
_CHECKS = 2.0  # inputs of a verification for each of an evaluation, all of them new
_ONCE = ("compile", "speed_of_light")
_WAITS = ("timing_turn", "timing_lock")  # for other evaluations, which a verification has none of


class Reserve:
    """Seconds of wall time that evaluations take, measured in this session.

    Until one has ended they are not known, and 0: the first evaluation shows the time. That of a
    verification follows from the stages of evaluations: its pairs of processes from the usual pair,
    its checks from the longest, when the task's inputs were made. Work that is done
    once, such as a program's build, it finds done.
    """

    def __init__(self) -> None:
        self._any_s: deque[float] = deque(maxlen=RECENT)
        self._pair_s: deque[float] = deque(maxlen=RECENT)
        self._pairs: deque[int] = deque(maxlen=RECENT)
        self._verified_s: deque[float] = deque(maxlen=RECENT)
        self._checked_s = 0.0
        self._other_s = 0.0
        self._is_wide = False

    def recall(self, search: Search) -> None:
        """Read the results of earlier sessions: the best program, and its verification."""
        made = search.store.made_by(search.run.id, VERIFY)[-1:]
        made += [search.leader.sequence] if search.leader else []
        for sequence in made:
            if evaluation := search.store.evaluation(search.run.id, sequence):
                self.judged(stages_s(evaluation.durations_s), evaluation)

    def judged(self, seconds: float, evaluation: Evaluation) -> None:
        """An evaluation has ended."""
        if evaluation.status is Status.INFRA:
            return
        if evaluation.fidelity is Fidelity.VERIFY:
            self._verified_s.append(seconds)
            return
        stages = evaluation.durations_s
        waited_s = sum(stages.get(name, 0.0) for name in _WAITS)
        self._any_s.append(seconds - waited_s)
        if evaluation.status is Status.CORRECT and "timing" in stages:
            others = {k: s for k, s in stages.items() if not k.startswith(("timing", *_ONCE))}
            checked_s = others.pop("correctness", 0.0)
            self._checked_s = max(self._checked_s, checked_s)
            self._other_s = max(self._other_s, sum(others.values()))
            self._is_wide = float(evaluation.environment.get("half_width", 0.0)) >= WIDE
            self._pairs.append(_pairs(evaluation))
            self._pair_s.append((stages["timing"] - waited_s) / self._pairs[-1])

    @property
    def evaluation_s(self) -> float:
        """The next evaluation."""
        return _usual(self._any_s)

    @property
    def verification_s(self) -> float:
        """The next verification."""
        if self._verified_s:
            return max(self._verified_s)
        if not self._pairs:
            return VERIFICATION * self.evaluation_s
        pairs = _PAIRS if self._is_wide or _usual(self._pairs) <= 1 else _MORE_PAIRS
        return pairs * _SIDES * _usual(self._pair_s) + _CHECKS * self._checked_s + self._other_s


def _usual(numbers: Collection[float]) -> float:
    """The first ones take longer: inputs are made, and the reference is measured."""
    return statistics.median_low(numbers) if numbers else 0.0


def _pairs(evaluation: Evaluation) -> int:
    """Pairs of processes that were timed."""
    cases = evaluation.case_samples.values()
    return max((len(case.overhead_ms) for case in cases), default=1)
