"""Rows that training leaves out because our own side failed, and when that is too many."""

from evolve.core.errors import EvolveError

MOST = 0.01
"""Share of a step's rows that may be masked."""


class TooManyMasked(EvolveError):
    """More of a step was masked than training should go on with."""


class MaskedRows:
    """Counts masked rows, and stops training where a step has too many.

    Args:
        most: share of a step's rows that may be masked.

    Attributes:
        masked: rows masked so far.
        rows: all of them.
    """

    def __init__(self, most: float = MOST) -> None:
        self.most = most
        self.masked = 0
        self.rows = 0

    def count(self, masked: int, rows: int, why: str = "") -> float:
        """Add one step; returns the share of it that is masked.

        Raises:
            TooManyMasked: it is above `most`.
        """
        self.masked += masked
        self.rows += rows
        share = masked / rows if rows else 0.0
        if share > self.most:
            raise TooManyMasked(
                f"infra_masked: {masked} of {rows} rows of this step have no verdict through no "
                f"fault of theirs, more than {self.most:.0%}{f' ({why})' if why else ''}; see "
                "`evolve serve` and its GET /health, then go on from the last checkpoint"
            )
        return share
