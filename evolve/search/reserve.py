"""How long evaluations take, and so how much time has to be kept back before a limit."""

import statistics
from collections import deque
from collections.abc import Collection

from evolve.core.evaluation import Evaluation, Fidelity, Status
from evolve.core.lineage import VERIFY
from evolve.search.engine import Search

VERIFICATION = 3.0
"""Device time of a verification in evaluations."""

RECENT = 32
"""Evaluations that are looked at."""

_PAIRS, _USUAL_PAIRS = 8, 3  # of processes: a verification's; an evaluation's, where it tells none
_SIDES = 1.5  # times as many where a runner-up takes part
_CHECKS = 1.7  # inputs of a verification for each of an evaluation, all of them new
_WAITS = ("timing_turn", "timing_lock")  # for other evaluations, which a verification has none of


class Reserve:
    """Seconds of wall time that evaluations take, measured in this sitting.

    Until one has ended they are not known, and 0: what an evaluation takes is found out by one.
    What a verification takes follows from the stages of evaluations: its pairs of processes from
    the usual pair, its checks from the longest, when the task's inputs were made. Where an
    evaluation tells no stages, all of it counts as timing.
    """

    def __init__(self) -> None:
        self._any_s: deque[float] = deque(maxlen=RECENT)
        self._pair_s: deque[float] = deque(maxlen=RECENT)  # of those timed to their end
        self._verified_s: deque[float] = deque(maxlen=RECENT)
        self._checked_s = 0.0
        self._other_s = 0.0

    def recall(self, search: Search) -> None:
        """Take what earlier sittings have stored: the best program, and its verification."""
        made = search.store.made_by(search.run.id, VERIFY)[-1:]
        made += [search.leader.sequence] if search.leader else []
        for sequence in made:
            if evaluation := search.store.evaluation(search.run.id, sequence):
                stages = evaluation.durations_s.items()
                seconds = sum(s for name, s in stages if not name.startswith("timing_"))
                self.judged(seconds, evaluation)

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
        if evaluation.status is Status.CORRECT:
            timing_s = stages.get("timing", seconds)
            others = {k: s for k, s in stages.items() if not k.startswith("timing")}
            checked_s = others.pop("correctness", 0.0)
            self._pair_s.append((timing_s - waited_s) / _pairs(evaluation))
            self._checked_s = max(self._checked_s, checked_s)
            self._other_s = max(self._other_s, sum(others.values()))

    @property
    def evaluation_s(self) -> float:
        """The next evaluation."""
        return _usual(self._any_s)

    @property
    def verification_s(self) -> float:
        """The next verification."""
        pairs_s = _PAIRS * _SIDES * _usual(self._pair_s)
        expected_s = pairs_s + _CHECKS * self._checked_s + self._other_s
        return max(self._verified_s, default=expected_s)


def _usual(seconds: Collection[float]) -> float:
    """The first ones take longer: a task's inputs are made, and what its reference takes is."""
    return statistics.median_low(seconds) if seconds else 0.0


def _pairs(evaluation: Evaluation) -> int:
    """Pairs of processes that were timed."""
    cases = (case.get("overhead_ms", ()) for case in evaluation.samples.values())
    return max(map(len, cases), default=0) or _USUAL_PAIRS
