"""How long evaluations take, and so how much time has to be kept back before a limit."""

from collections import deque

from evolve.core.evaluation import Evaluation, Fidelity, Status
from evolve.core.lineage import VERIFY
from evolve.search.engine import Search

VERIFICATION = 3.0
"""A verification in evaluations, before one has ended: eight pairs of processes, not three."""

RECENT = 32
"""Evaluations that are looked at: the longest of them stands for the next."""


class Reserve:
    """Seconds of wall time that evaluations take, measured in this sitting.

    Until one has ended they are not known, and 0: what an evaluation takes is found out by one.
    """

    def __init__(self) -> None:
        self._any_s: deque[float] = deque(maxlen=RECENT)
        self._whole_s: deque[float] = deque(maxlen=RECENT)  # timed to their end, as the best are
        self._verified_s: deque[float] = deque(maxlen=RECENT)
        self._is_first = True  # the only one of `_whole_s`, so far

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
        is_whole = evaluation.status is Status.CORRECT and not evaluation.cut_short
        if is_whole and len(self._whole_s) == 1 and self._is_first:
            self._is_first = False  # it had the task's inputs and references made, too
            self._any_s.clear()
            self._whole_s.clear()
        self._any_s.append(seconds)
        if is_whole:
            self._whole_s.append(seconds)

    @property
    def evaluation_s(self) -> float:
        """The next evaluation."""
        return max(self._any_s, default=0.0)

    @property
    def verification_s(self) -> float:
        """The next verification."""
        return max(self._verified_s, default=VERIFICATION * max(self._whole_s, default=0.0))
