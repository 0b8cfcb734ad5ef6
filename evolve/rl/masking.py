"""Rows without a known reward, which training leaves out, and when to stop."""

from collections.abc import Hashable

from evolve.core.errors import EvolveError

MAX_MASKED = 0.01
"""Share of a step's rows that may be left out because our own side failed."""

MAX_UNSCORED = 0.5
"""Share of a step's rows that may have a verdict and no score: beyond, the reward does not fit."""


class TooManyMasked(EvolveError):
    """More of a step was left out than training should go on with."""


class MaskedRows:
    """Counts the rows of a step that have no score, and stops training if they are too many.

    A row is `infra_masked` if it has no verdict, which is never its own doing. It is `unscored`
    if it has one that the reward cannot tell the worth of: nothing to compare with was measured,
    or being correct means little on its task.

    Args:
        most: share of a step's rows that may be `infra_masked`.
        most_unscored: share of a step's rows that may be `unscored`.
        step_rows: rows that this process has in a step, if it has them in several calls; 0 for
            as many as have been counted. With fewer than 1 / `most` of them a single one that is
            `infra_masked` is too many.
    """

    def __init__(
        self, most: float = MAX_MASKED, most_unscored: float = MAX_UNSCORED, step_rows: int = 0
    ) -> None:
        self._limits = {"infra_masked": most, "unscored": most_unscored}
        self._step_rows = step_rows
        self._step: Hashable = None
        self._rows = 0
        self._counts = dict.fromkeys(self._limits, 0)

    def count(
        self,
        rows: int,
        *,
        infra_masked: int,
        unscored: int,
        step: Hashable = None,
        why: str = "",
    ) -> dict[str, float]:
        """Add rows of a step; returns their shares without a score, by name.

        Args:
            rows: how many were asked for.
            infra_masked: how many of them have no verdict.
            unscored: how many have a verdict and no score.
            step: which one they are of; None for a step of their own.
            why: the fault of the first missing verdict.

        Raises:
            TooManyMasked: the step has too many of either.
        """
        if step is None or step != self._step:
            self._step, self._rows = step, 0
            self._counts = dict.fromkeys(self._limits, 0)
        found = {"infra_masked": infra_masked, "unscored": unscored}
        self._rows += rows
        for name in found:
            self._counts[name] += found[name]
            self._require(name, f" ({why})" if why else "")
        return {name: number / rows if rows else 0.0 for name, number in found.items()}

    def _require(self, name: str, why: str) -> None:
        count, most = self._counts[name], self._limits[name]
        rows = max(self._rows, self._step_rows)
        if count <= most * rows:
            return
        said = f"{name}: {count} of {rows} rows of this step have no"
        if name == "infra_masked":
            raise TooManyMasked(
                f"{said} verdict by an infrastructure fault, more than {most:.0%}{why}; see "
                "`evolve serve` and its GET /health, then go on from the last checkpoint"
            )
        raise TooManyMasked(
            f"{said} score although they have a verdict, more than {most:.0%}: the reward needs "
            "what these tasks or this device do not give (a parent, a profile, a baseline, a "
            "sound task); take another reward, or ask GET /v1/jobs/ID what is missing"
        )
