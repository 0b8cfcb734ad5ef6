"""How long evaluations take, and so how much time has to be kept back before a limit."""

from collections import deque

from evolve.core.evaluation import Evaluation, Fidelity, Status
from evolve.core.lineage import VERIFY
from evolve.search.engine import Search

VERIFICATION = 3.0
"""Device time of a verification in evaluations."""

RECENT = 32
"""Evaluations that are looked at: the longest of them stands for the next."""

_PAIRS, _USUAL_PAIRS = 8, 3  # of processes: a verification's; an evaluation's, where it tells none
_CHECKS = 1.7  # of a verification, in those of an evaluation: it has more inputs, all of them new


class Reserve:
    """Seconds of wall time that evaluations take, measured in this sitting.

    Until one has ended they are not known, and 0: what an evaluation takes is found out by one.
    What a verification takes follows from an evaluation: the checks are `_CHECKS` times as long,
    and its pairs of processes `_PAIRS`. Their sides are two, or three with a runner-up.
    """

    def __init__(self) -> None:
        self._any_s: deque[float] = deque(maxlen=RECENT)
        self._pair_s: deque[float] = deque(maxlen=RECENT)  # of those timed to their end
        self._verified_s: deque[float] = deque(maxlen=RECENT)
        self._checked_s = 0.0  # the longest, of the first: the task's inputs were made for it, too
        self._is_first = True

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
        if evaluation.status is Status.CORRECT:
            timing_s = evaluation.durations_s.get("timing", seconds)
            self._checked_s = max(self._checked_s, seconds - timing_s)
            self._pair_s.append(timing_s / _pairs(evaluation))
        if len(self._any_s) == 1 and self._is_first:
            self._is_first = False
            self._any_s.clear()
        self._any_s.append(seconds)

    @property
    def evaluation_s(self) -> float:
        """The next evaluation."""
        return max(self._any_s, default=0.0)

    @property
    def verification_s(self) -> float:
        """The next verification."""
        expected_s = _CHECKS * self._checked_s + _PAIRS * max(self._pair_s, default=0.0)
        return max(self._verified_s, default=expected_s)


def _pairs(evaluation: Evaluation) -> int:
    """Pairs of processes that were timed."""
    cases = (case.get("overhead_ms", ()) for case in evaluation.samples.values())
    return max(map(len, cases), default=0) or _USUAL_PAIRS
