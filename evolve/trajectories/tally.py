"""The fate of every step of an export: removals by filter and reason."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class Tally:
    """Counts of one export.

    Attributes:
        steps: that were looked at.
        rows: that were made.
        removed: by filter and reason, in the order in which filters were asked.
        outcomes: rows by the kind of their programs: a gain, a first correct version, a repair.
    """

    steps: int = 0
    rows: int = 0
    removed: dict[str, Counter[str]] = field(default_factory=dict)
    outcomes: Counter[str] = field(default_factory=Counter)

    def remove(self, name: str, reason: str, count: int = 1) -> None:
        """Count steps that a filter left out."""
        self.removed.setdefault(name, Counter())[reason] += count
