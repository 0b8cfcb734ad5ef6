"""The current state of an evaluation."""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from evolve.core.evaluation import Evaluation, Label, Stage
from evolve.worker.base.feedback import KernelFacts, plain
from evolve.worker.correctness.compare import worst
from evolve.worker.evidence.tools import Findings
from evolve.worker.session.candidate_session import Candidate
from evolve.worker.timing.results import Timing

_EVIDENCE = 200


@dataclass(slots=True)
class Progress:
    """Filled stage by stage; if a stage fails, earlier entries are reported."""

    stage: Stage = Stage.NONE
    candidate: Candidate | None = None
    custom: bool | None = None
    suite: bool | None = None
    labels: list[Label] = field(default_factory=list)
    timing: Timing = field(default_factory=Timing)
    facts: tuple[KernelFacts, ...] = ()
    measured: dict[str, float | str] = field(default_factory=dict)  # descriptors
    scratch_bytes: int | None = None
    durations_s: dict[str, float] = field(default_factory=dict)
    tools: Findings | None = None  # at a verification on a GPU

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Add the time inside to the duration of a stage."""
        start = time.monotonic()
        try:
            yield
        finally:
            before = self.durations_s.get(name, 0.0)
            self.durations_s[name] = round(before + time.monotonic() - start, 4)

    @property
    def all_durations_s(self) -> dict[str, float]:
        """Of the stages, and under `timing_...` the parts of that stage's time."""
        parts = {f"timing_{name}": seconds for name, seconds in self.timing.spent_s.items()}
        return self.durations_s | parts

    def descriptors(self, correct: bool) -> dict[str, float | str]:
        """Those that the text alone does not show; unknown ones are left out."""
        if not correct:
            return self.measured
        found = dict(self.measured)
        margin = worst(self.candidate.margin if self.candidate else None, self.timing.margin)
        if margin is not None:
            found["error"] = float(f"{margin:.4g}")
        if self.candidate and self.candidate.terms:
            found["longest_sum"] = float(self.candidate.terms)
        if self.scratch_bytes is not None:
            found["memory_bytes"] = float(self.scratch_bytes)
        return found


def judged_twice(first: Evaluation, again: Evaluation) -> Evaluation:
    """The second verdict, with the costs of both."""
    spent_s = Counter(first.durations_s)
    spent_s.update(again.durations_s)
    return replace(
        again,
        labels=(*again.labels, Label("judged_again", plain(first.feedback, _EVIDENCE))),
        durations_s={name: round(seconds, 4) for name, seconds in spent_s.items()},
        device_time_s=first.device_time_s + again.device_time_s,
    )
