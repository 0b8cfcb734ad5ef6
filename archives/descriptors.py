"""Axes of behaviour: a descriptor's value falls into one of a fixed list of bins.

Bins are fixed so that a cell means the same on the first day and the last, on every machine.
"""

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeGuard

from evolve.core.errors import UsageError
from evolve.core.protocols import Describe
from evolve.core.source.normalise import normalised_length
from evolve.core.source.sketch import sketch
from evolve.languages.descriptors import COMPUTE_PATTERN, MEMORY_ACCESS, PARALLELISM

OTHER = "other"
MISSING = "none"

Bins = Sequence[float] | Sequence[str]

TEXT: Mapping[str, Describe] = {"length": normalised_length, "sketch": sketch}
"""Descriptors that are made of the source, for archives that read them."""

KERNEL_AXES: Mapping[str, Bins] = {
    "memory_access": MEMORY_ACCESS,
    "parallelism": PARALLELISM,
    "compute_pattern": COMPUTE_PATTERN,
}
"""The default axes of kernels: 210 cells."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One descriptor with its bins: the values of a word, or the edges between numbers.

    Edges e0 < e1 < ... make the bins [e0, e1), [e1, e2), ..., the last one closed. A value that
    belongs to no bin falls into `other`, a missing one into `none`.
    """

    name: str
    bins: tuple[float, ...] | tuple[str, ...]

    @classmethod
    def of(cls, name: str, bins: Bins) -> "Axis":
        """An axis from configured bins. Raises UsageError if they make none."""
        where = f"archive.axes.{name}"
        if isinstance(bins, str) or not isinstance(bins, Sequence):
            raise UsageError(f"{where} must be a list, got {bins!r}; list words or rising edges")
        words = tuple(value for value in bins if isinstance(value, str))
        edges = tuple(float(value) for value in bins if _is_number(value))
        if len(bins) not in (len(words), len(edges)):
            raise UsageError(f"{where} mixes words and numbers in {list(bins)}; use one kind")
        if words:
            if len(set(words)) < len(words) or {OTHER, MISSING} & set(words):
                raise UsageError(
                    f"{where} repeats a word or uses {OTHER!r} or {MISSING!r}, which every axis "
                    f"has, in {list(words)}; list every word once"
                )
            return cls(name, words)
        if len(edges) < 2 or any(low >= high for low, high in pairwise(edges)):
            raise UsageError(
                f"{where} needs at least two rising edges, got {list(edges)}; "
                "write e.g. [0, 64, 256]"
            )
        return cls(name, edges)

    @property
    def size(self) -> int:
        """How many cells the axis has, `other` and `none` included."""
        return len(self.bins) + (2 if isinstance(self.bins[0], str) else 1)

    def bin(self, descriptors: Mapping[str, float | str]) -> str:
        """The label of the bin that the descriptors fall into."""
        value = descriptors.get(self.name)
        if value is None:
            return MISSING
        if isinstance(value, str):
            return value if value in self.bins else OTHER
        return self._numeric_bin(value)

    def _numeric_bin(self, value: float) -> str:
        edges = [edge for edge in self.bins if not isinstance(edge, str)]
        if not edges or not _is_number(value) or not edges[0] <= value <= edges[-1]:
            return OTHER
        upper = min(bisect_right(edges, value), len(edges) - 1)
        return f"{edges[upper - 1]:g}..{edges[upper]:g}"


def of_text(names: Iterable[str]) -> dict[str, Describe]:
    """The function of texts that an archive with these descriptors needs."""
    return {name: TEXT[name] for name in names if name in TEXT}


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and not math.isnan(value)
