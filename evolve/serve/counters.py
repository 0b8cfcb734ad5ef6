"""The server's work since it started: for `GET /metrics`, and to say when to come back."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

_SMOOTHING = 0.1  # of the running mean: the newest of about ten
_PREFIX = "evolve_serve"


@dataclass(slots=True)
class Counters:
    """Counts; `judged_s` is a running mean of the seconds that a candidate is with the judge.

    It is 0 until the first one has been.
    """

    submitted: int = 0
    refused: int = 0
    retried: int = 0
    cached: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    judged_s: float = 0.0

    def judged(self, seconds: float) -> None:
        share = _SMOOTHING if self.judged_s else 1.0
        self.judged_s += share * (seconds - self.judged_s)

    def lines(self, gauges: dict[str, float]) -> Iterator[str]:
        """Lines in the Prometheus text format, with further values that are read now."""
        counts = {
            "submitted": self.submitted,
            "refused": self.refused,
            "retried": self.retried,
            "cached": self.cached,
        }
        for name, value in counts.items():
            yield f"# TYPE {_PREFIX}_{name}_total counter"
            yield f"{_PREFIX}_{name}_total {value}"
        for name, label, counter in (
            ("verdicts", "status", self.verdicts),
            ("faults", "fault", self.faults),
        ):
            yield f"# TYPE {_PREFIX}_{name}_total counter"
            for key, value in sorted(counter.items()):
                yield f'{_PREFIX}_{name}_total{{{label}="{key}"}} {value}'
        for name, gauge in {**gauges, "judged_seconds": self.judged_s}.items():
            yield f"# TYPE {_PREFIX}_{name} gauge"
            yield f"{_PREFIX}_{name} {gauge:g}"
