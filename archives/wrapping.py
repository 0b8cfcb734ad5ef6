"""Archives that other archives are made of."""

from collections.abc import Callable, Mapping

from archives.checks import checked_capacity
from evolve.core.errors import UsageError
from evolve.core.protocols import Archive


def make_inner(of: Callable[..., Archive], capacity: int) -> Archive:
    """An empty archive of at most `capacity` programs, each of which it holds at one place.

    Args:
        of: makes it; a `capacity` that is set for it and not None holds if it is the lower one.
        capacity: the outer archive's share for it.

    Raises:
        UsageError: `of` makes no archive, or one that holds copies.
    """
    if not callable(of):
        raise UsageError(
            f"archive.of is {of!r}, a finished archive; set archive.of._partial_=true, for its "
            "capacity is decided later"
        )
    set_for_it: Mapping[str, object] = getattr(of, "keywords", {})
    own = set_for_it.get("capacity")
    archive = of(capacity=capacity if own is None else min(checked_capacity(own), capacity))
    if "islands" in getattr(archive, "offers", ()):
        raise UsageError(
            "archive.of: islands hold a program at several places; put them outside, e.g. "
            "archive=islands archive@archive.of=novelty"
        )
    return archive
