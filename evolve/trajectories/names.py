"""Things by their pinned names."""

import difflib
from collections.abc import Iterable
from typing import Protocol, TypeVar

from evolve.core.errors import UsageError


class Named(Protocol):
    """Has a name with a version: `kernel_smith@1`."""

    @property
    def name(self) -> str: ...


Thing = TypeVar("Thing", bound=Named)


def find(name: str, things: Iterable[Thing], what: str) -> Thing:
    """The thing of this name.

    Raises:
        UsageError: there is none; the message lists similar and existing ones.
    """
    known = {thing.name: thing for thing in things}
    if name in known:
        return known[name]
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    guess = f", did you mean {close[0]}?" if close else ";"
    raise UsageError(f"there is no {what} {name!r}{guess} there are {', '.join(known)}")
