"""Rows of numbers by program, in one array, so that one is compared with all at once."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


class Rows:
    """A growing array of rows, in no order; adding and dropping a row costs the row.

    Columns are contiguous in memory: comparing them is many times faster than rows.

    Args:
        width: numbers in a row.
        dtype: their type.
    """

    def __init__(self, width: int, dtype: type = np.float64) -> None:
        self._array: NDArray[Any] = np.empty((16, width), dtype, order="F")
        self._place_of: dict[str, int] = {}
        self.programs: list[str] = []

    def __len__(self) -> int:
        return len(self.programs)

    @property
    def values(self) -> NDArray[Any]:
        """The rows of `programs`, a view that may be written to."""
        return self._array[: len(self.programs)]

    def add(self, program: str, row: NDArray[Any]) -> None:
        """A row for a program that has none."""
        place = len(self.programs)
        if place == len(self._array):
            larger = np.empty((2 * place, self._array.shape[1]), self._array.dtype, order="F")
            larger[:place] = self._array
            self._array = larger
        self._array[place] = row
        self._place_of[program] = place
        self.programs.append(program)

    def place(self, program: str) -> int:
        """The number of a program's row among `values`."""
        return self._place_of[program]

    def drop(self, program: str) -> None:
        """Forget the row if there is one; the last row moves to its place."""
        place = self._place_of.pop(program, None)
        if place is None:
            return
        last = self.programs.pop()
        if last != program:
            self._array[place] = self._array[len(self.programs)]
            self.programs[place] = last
            self._place_of[last] = place
