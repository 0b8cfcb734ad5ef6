"""The fate of every step of an export: removals by filter and reason."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(slots=True)
class Tally:
    """Counts of one export.

    Attributes:
        steps: that were looked at.
        rows: that were made.
        removed: by filter and reason, in the order in which filters were asked.
    """

    steps: int = 0
    rows: int = 0
    removed: dict[str, Counter[str]] = field(default_factory=dict)

    def remove(self, name: str, reason: str, count: int = 1) -> None:
        """Count steps that a filter left out."""
        self.removed.setdefault(name, Counter())[reason] += count

    def lines(self) -> Iterator[str]:
        """The counts for people, a line each."""
        yield f"{self.steps:,} steps looked at"
        for name, reasons in self.removed.items():
            for reason, count in sorted(reasons.items(), key=lambda pair: (-pair[1], pair[0])):
                yield f"{count:,} left out by {name}: {reason}"
        yield f"{self.rows:,} rows"
