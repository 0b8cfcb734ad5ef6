"""A second chance for programs that failed, out of a budget of its own."""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from evolve.core.model import ModelRequest
from evolve.core.protocols import Attempt, Context, Declined
from operators.base import Base
from operators.checks import check_number, check_whole
from operators.prompting.composition import Memory, Prompted
from operators.prompting.inspirations import has_failed, is_repairable
from operators.prompting.prompt_context import attempt_text
from operators.prompting.reply_handling import Answering

_WINDOW = 32  # newest failures that are looked at


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair(Answering):
    """Asks for a failed program to be put right, without making it faster.

    Its population are the run's newest failures, which no archive holds and no selection policy
    sees. Its budget is a share of the run's steps, those under way included, however its weight
    draws it, because rounds of repair raise the share of programs that compile and lower their
    gains (KernelBench-X, arXiv 2605.04956). A step is one ticket, at any cost: corrections of an
    answer within one (`mends`) are part of it, of these as of any operator's.

    Args:
        share: the most of the run's steps that may be repairs.
        attempts: repairs of one failed program.
        depth: repairs in a row, of one that was itself made by a repair.
        failing: repairs only while so many of the newest steps have all failed; 0 at any time.
    """

    share: float = 0.15
    attempts: int = 2
    depth: int = 2
    failing: int = 0

    def __post_init__(self) -> None:
        Prompted.__post_init__(self)
        check_number("operators.*.share", self.share, least=0, most=1)
        check_whole("operators.*.attempts", self.attempts, least=1)
        check_whole("operators.*.depth", self.depth, least=1)
        check_whole("operators.*.failing", self.failing, least=0)

    @property
    def parents(self) -> int:
        return 0

    @property
    def fires_at(self) -> dict[str, int]:
        """When the share allows for a first repair, of so many failures in a row."""
        first = math.ceil(1 / self.share) if self.share else 0
        return {"share": first, "failing": self.failing}

    def propose(self, context: Context) -> ModelRequest | Declined:
        if context.facts.proposals(context.operator) + 1 > self.share * (context.step + 1):
            return Declined("repairs have had their share of the steps")
        if not all(map(has_failed, context.facts.recent(self.failing))):
            return Declined(f"one of the newest {self.failing} steps has not failed")
        found = next(self._repairable(context), None)
        if found is None:
            return Declined("there is no failed program to repair")
        failed, earlier = found
        said = [attempt_text(attempt, context.baseline) for attempt in earlier]
        return self.ask(
            context,
            self.text("repair"),
            base=Base.of([failed]),
            directed=False,
            heading="The program to repair",
            memory=Memory.CLEAN,
            extra=self.listed("failures", 1, said),
        )

    def _repairable(self, context: Context) -> Iterator[tuple[Attempt, list[Attempt]]]:
        """Failed programs that may be repaired, in random order, with the repairs so far."""
        candidates = [
            (attempt.program, attempt)
            for attempt in context.facts.recent(_WINDOW, failed=True)
            if attempt.program is not None and is_repairable(attempt)
        ]
        asked = Counter(program for program, _ in self.asked_about(context))
        for program, attempt in context.rng.sample(candidates, len(candidates)):
            earlier = list(context.facts.children(program, self.attempts))
            line = context.facts.ancestors(program, self.depth)
            deep = sum(each.operator == context.operator for each in line) >= self.depth
            if max(len(earlier), asked[program]) < self.attempts and not deep:
                yield attempt, earlier
