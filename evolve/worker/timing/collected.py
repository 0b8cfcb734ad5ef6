"""The rounds of a comparison so far."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from evolve.worker.timing.graph_timing import GraphTimes, Measured
from evolve.worker.timing.interleaved_blocks import MeasurementRound
from evolve.worker.timing.results import may_be_a_library


@dataclass(slots=True)
class Collected:
    """The results of the rounds of a comparison; `seen` by case (`stack_sampling`)."""

    pairs: list[Measured] = field(default_factory=list)
    mismatches: list[str] = field(default_factory=list)
    seen: dict[str, list[str]] = field(default_factory=dict)

    def add(self, round_: MeasurementRound, recorded: GraphTimes) -> None:
        self.pairs.append(Measured(round_.pair, recorded))
        self.mismatches += round_.mismatches
        self.look(round_)

    def look(self, round_: MeasurementRound) -> None:
        """Take the observations, and no times."""
        for name, stack_samples in round_.seen.items():
            self.seen.setdefault(name, []).extend(stack_samples)

    def is_undecided(self, names: Sequence[str]) -> bool:
        """Whether a library may be at work in the candidate's place, in one of these cases."""
        plain = [measured.pair for measured in self.pairs]
        return any(may_be_a_library(plain, name, self.seen) for name in names)

    def forget_times(self) -> None:
        """Whether none of them is known to be worth taking."""
        self.pairs.clear()
        self.mismatches.clear()
