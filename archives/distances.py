"""How far apart two programs are, by what their descriptors say of them."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from archives.descriptors import of_text
from evolve.core.errors import UsageError
from evolve.core.protocols import Describe
from evolve.core.sketch import BINS, overlap, read_sketch

Row = NDArray[Any]

_BY_MATCHES = np.array([1 - overlap(matches) for matches in range(BINS + 1)])


class Distance(Protocol):
    """A distance between programs, 0 (the same) to 1, without regard to their fitness.

    Every program that it can tell has a row of `width` numbers of type `dtype`. What it has to know
    of texts is in `describes` (`evolve.core.protocols.Archive`).
    """

    @property
    def describes(self) -> Mapping[str, Describe]: ...

    @property
    def width(self) -> int: ...

    @property
    def dtype(self) -> type: ...

    def row(self, descriptors: Mapping[str, float | str]) -> Row | None:
        """The numbers of a program; None where its descriptors do not tell."""
        ...

    def between(self, row: Row, rows: Row) -> Row:
        """The distance of one program to each of others, `rows` of shape (others, width)."""
        ...


class Text:
    """The share of what one of two texts has and not the other, estimated from their sketches.

    Comments, layout, values of tunables and names of variables do not count; see
    `evolve.core.sketch`.
    """

    describes = of_text(["sketch"])
    width = BINS
    dtype = np.uint8

    def row(self, descriptors: Mapping[str, float | str]) -> Row | None:
        found = read_sketch(descriptors.get("sketch"))
        return None if found is None else np.frombuffer(found, self.dtype)

    def between(self, row: Row, rows: Row) -> Row:
        matches = (rows == row).sum(1, dtype=np.uint8)  # up to 128: no more is needed
        distances: Row = _BY_MATCHES[matches]
        return distances


class Numbers:
    """The mean relative difference of descriptors that are no less than 0.

    Args:
        descriptors: which; a program that lacks one of them is near no other.

    Raises:
        UsageError: no descriptor is named.
    """

    dtype = np.float64

    def __init__(self, *, descriptors: Sequence[str]) -> None:
        if isinstance(descriptors, str) or not descriptors:
            raise UsageError(
                f"archive.distance.descriptors must be a list, got {descriptors!r}; "
                "write e.g. [registers, shared_bytes]"
            )
        self._descriptors = tuple(descriptors)
        self.describes = of_text(descriptors)
        self.width = len(self._descriptors)

    def row(self, descriptors: Mapping[str, float | str]) -> Row | None:
        found = [descriptors.get(name) for name in self._descriptors]
        row = np.array([value for value in found if isinstance(value, (int, float))], self.dtype)
        usable = len(row) == self.width and np.isfinite(row).all() and (row >= 0).all()
        return row if usable else None

    def between(self, row: Row, rows: Row) -> Row:
        larger = np.maximum(row, rows)
        apart = np.divide(np.abs(row - rows), larger, out=np.zeros_like(rows), where=larger > 0)
        distances: Row = apart.mean(1)
        return distances
