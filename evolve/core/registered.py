"""Parts that other packages register by entry points."""

from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

from evolve.core.errors import FAILURES_OF_A_FUNCTION, UsageError

T = TypeVar("T")
_FAILURES = (*FAILURES_OF_A_FUNCTION, OSError, SyntaxError)  # of the import of a package


def loaded(group: str, made: Callable[[Any], T], name: str | None = None) -> list[T]:
    """The objects that other packages register in a group.

    Args:
        group: of entry points.
        made: what is wanted, of the object that an entry point names; TypeError refuses it.
        name: of one entry point; None for all.

    Raises:
        UsageError: one cannot be loaded; it names the package.
    """
    points = entry_points(group=group)
    return [_load(point, made) for point in points if name in (None, point.name)]


def instance_of(kind: type[T]) -> Callable[[Any], T]:
    """For `loaded`: the object itself, which has to be of a class."""

    def checked(found: Any) -> T:
        if not isinstance(found, kind):
            raise TypeError(f"it is no {kind.__name__}, but {type(found).__name__}")
        return found

    return checked


def _load(point: EntryPoint, made: Callable[[Any], T]) -> T:
    try:
        return made(point.load())
    except _FAILURES as error:
        package = point.dist.name if point.dist else "another package"
        raise UsageError(
            f"{point.group}: {point.name} ({point.value} of {package}) cannot be loaded "
            f"({type(error).__name__}: {error}). Mend or uninstall that package."
        ) from error
