"""Distances between two programs, from their descriptors."""

import base64
import binascii
import importlib
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from archives.checks import checked_whole
from archives.descriptors import of_text
from evolve.core.errors import UsageError
from evolve.core.protocols import Describe
from evolve.core.source.sketch import BINS, overlap, read_sketch

Row = NDArray[Any]

_BY_MATCHES = np.array([1 - overlap(matches) for matches in range(BINS + 1)])


class Distance(Protocol):
    """A distance between programs, 0 (the same) to 1, without regard to their fitness.

    Every program that it can place has a row of `width` numbers of type `dtype`. The descriptors
    that it needs of texts are in `describes` (`evolve.core.protocols.Archive`).
    """

    @property
    def describes(self) -> Mapping[str, Describe]: ...

    @property
    def width(self) -> int: ...

    @property
    def dtype(self) -> type: ...

    def row(self, descriptors: Mapping[str, float | str]) -> Row | None:
        """The numbers of a program; None if its descriptors do not tell."""
        ...

    def between(self, row: Row, rows: Row) -> Row:
        """The distance of one program to each of others, `rows` of shape (others, width)."""
        ...


class Text:
    """The share of one text's tokens that the other lacks, estimated from their sketches.

    Comments, layout, values of tunables and names of variables do not count; see
    `evolve.core.source.sketch`.
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


class Embedding:
    """One minus the cosine of the vectors that your function returns for two sources, at most 1.

    The function is called once for a new program, in the process of the search; its value is
    recorded with the elite, so that a resume does not call it again. POLCA (arXiv 2603.14769) and
    ShinkaEvolve compare programs by embeddings of a language model.

    Args:
        function: gives `width` numbers for a source; by its dotted name, `package.module.name`.
        width: how many numbers.

    Raises:
        UsageError: there is no such function, or, once it is called, it gives no such numbers.
    """

    dtype = np.float32

    def __init__(self, *, function: str, width: int) -> None:
        self.width = checked_whole("distance.width", width, 1, example=384)
        self._function = lru_cache(maxsize=256)(_imported(function))
        self._name = f"embedding:{function}"
        self.describes: Mapping[str, Describe] = {self._name: self._written}

    def row(self, descriptors: Mapping[str, float | str]) -> Row | None:
        word = descriptors.get(self._name)
        try:
            data = base64.b64decode(word, validate=True) if isinstance(word, str) else b""
        except (binascii.Error, ValueError):
            return None
        if len(data) != self.width * np.dtype(self.dtype).itemsize:
            return None
        row = np.frombuffer(data, self.dtype)
        length = float(np.linalg.norm(row))
        return row / length if np.isfinite(length) and length > 0 else None

    def between(self, row: Row, rows: Row) -> Row:
        distances: Row = np.clip(1 - rows @ row, 0, 1)
        return distances

    def _written(self, source: str) -> str:
        """The numbers of a source as a word, four bytes each."""
        numbers = np.asarray(self._function(source), self.dtype)
        if numbers.shape != (self.width,):
            raise UsageError(
                f"archive.distance.width={self.width}, but {self._name.partition(':')[2]} gave "
                f"numbers of shape {numbers.shape}; set the width that it has"
            )
        return base64.b64encode(numbers.tobytes()).decode()


def _imported(name: str) -> Callable[[str], Sequence[float]]:
    module, _, function = str(name).rpartition(".")
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(
            f"archive.distance.function={name}: {error}; give package.module.name of a function "
            "that can be imported here (PYTHONPATH=. for one of this folder)"
        ) from error
    if not callable(found):
        raise UsageError(f"archive.distance.function={name} is no function")
    called: Callable[[str], Sequence[float]] = found
    return called
