"""Requests to the process of a script, in words that need no torch."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

TIME, RECORD, APPLY = "time", "record", "apply"


class Part(NamedTuple):
    """The calls of one task have these in common.

    Attributes:
        name: of the class or function, with its module.
        constructor: the call that makes the module; empty for a function.
        dtype: of its parameters, `none` without any; empty for a function.
        training: whether the module is in training mode.
        positional: number of positional arguments.
        named: names of the others, sorted.
    """

    name: str
    constructor: str
    dtype: str
    training: bool
    positional: int
    named: tuple[str, ...]

    @property
    def title(self) -> str:
        """The class or function, without its module."""
        return self.name.rpartition(".")[2]


def part_from(fields: list[Any]) -> Part:
    """A part that JSON has made a list."""
    return Part._make([*fields[:-1], tuple(fields[-1])])


@dataclass(kw_only=True)
class Tally:
    """The calls of a winner's part in one run of the script.

    Attributes:
        made: calls that the winner made.
        agreed: of those, the compared calls with the original's outcome.
        fallbacks: number of calls that the original made, by reason.
        differences: number of the winner's other compared calls, by how they differ.
    """

    made: int = 0
    agreed: int = 0
    fallbacks: dict[str, int] = field(default_factory=Counter)
    differences: dict[str, int] = field(default_factory=Counter)

    def add(self, other: "Tally") -> None:
        """Add the calls of another run."""
        self.made += other.made
        self.agreed += other.agreed
        for reason, number in other.fallbacks.items():
            self.fallbacks[reason] = self.fallbacks.get(reason, 0) + number
        for said, number in other.differences.items():
            self.differences[said] = self.differences.get(said, 0) + number

    def count(self, said: str) -> None:
        """Add a compared call; `said` is how it differs, empty if it agrees."""
        if said:
            self.differences[said] = self.differences.get(said, 0) + 1
        else:
            self.agreed += 1
