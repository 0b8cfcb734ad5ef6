"""A priority queue whose programs are evaluated again and again (POLCA, arXiv 2603.14769)."""

import math
from bisect import bisect_left, insort

from archives.bounded import Bounded
from archives.checks import checked_choice, checked_number
from evolve.core.protocols import Elite, rank

PRIORITIES = ("mean", "ucb", "time")


class Priority(Bounded):
    """Keeps the `capacity` programs of the highest priority, and always the best.

    POLCA's queue has no bound; this one drops the last of the queue. The priority is the pooled
    mean of a program's evaluations (`mean`), its upper bound (`ucb`): mean + exploration * noise *
    sqrt(ln(T + 1) / n), with n evaluations of the program and T of all that are held (OpenTrace,
    `priority_search.py`), or the newest first (`time`). Under `ucb` a program with one unlucky
    measurement outlives one that was measured often and is as slow.

    Args:
        capacity: the most programs held.
        priority: `mean`, `ucb` or `time`.
        exploration: c of the upper bound.
        noise: how far one evaluation may be off, in log speedup; POLCA's is the range of the score.

    Raises:
        UsageError: a setting is out of range.
    """

    def __init__(
        self,
        *,
        capacity: int = 1000,
        priority: str = "mean",
        exploration: float = 1.0,
        noise: float = 0.1,
    ) -> None:
        super().__init__(capacity=capacity)
        self._by_time = checked_choice("priority", priority, PRIORITIES) == "time"
        exploration = checked_number("exploration", exploration, 0, example=1)
        bonus = exploration * checked_number("noise", noise, 0, example=0.1)
        self._bonus = bonus if priority == "ucb" else 0.0
        # By number of evaluations, for among equals of these the order stays when T grows.
        self._queues: dict[int, list[tuple[float, int, str]]] = {}
        self._evaluations = 0

    def _weakest(self, newcomer: Elite) -> Elite | None:
        leader = min(newcomer, self._table.at(0), key=rank)
        last = [self._last(queue, leader) for queue in self._queues.values()]
        log_total = math.log(self._evaluations + newcomer.evaluations + 1)
        held = [elite for elite in last if elite is not None]
        loser = min(held, key=lambda elite: self._priority(elite, log_total), default=None)
        if loser is None or newcomer is leader:
            return loser
        behind = self._priority(newcomer, log_total)[0] <= self._priority(loser, log_total)[0]
        return None if behind else loser

    def _last(self, queue: list[tuple[float, int, str]], leader: Elite) -> Elite | None:
        """The end of a queue, the leader left out."""
        programs = (program for *_, program in reversed(queue) if program != leader.program)
        return self._table.elite(next(programs, ""))

    def _priority(self, elite: Elite, log_total: float) -> tuple[float, float, int, str]:
        """The priority, the lower the sooner it is given up; the rest makes the order total."""
        value = elite.fitness.value + self._bonus * math.sqrt(log_total / elite.evaluations)
        first = float(elite.sequence) if self._by_time else value
        worse, later, program = rank(elite)
        return first, -worse, -later, program

    def _key(self, elite: Elite) -> tuple[float, int, str]:
        return (-elite.sequence, 0, elite.program) if self._by_time else rank(elite)

    def _added(self, elite: Elite) -> None:
        insort(self._queues.setdefault(elite.evaluations, []), self._key(elite))
        self._evaluations += elite.evaluations

    def _removed(self, elite: Elite) -> None:
        queue = self._queues[elite.evaluations]
        del queue[bisect_left(queue, self._key(elite))]
        if not queue:
            del self._queues[elite.evaluations]
        self._evaluations -= elite.evaluations

    def _restored(self) -> None:
        self._queues, self._evaluations = {}, 0
        for elite in self._table.slots().values():
            self._added(elite)
