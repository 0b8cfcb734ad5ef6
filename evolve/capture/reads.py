"""Which attributes of a task's objects are read while its model is made and called."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from evolve.testing.suite_tasks import captured

ALL = "__dict__"
"""Every name: which ones are read is unknown."""


@contextmanager
def attribute_reads(objects: Sequence[Any]) -> Iterator[dict[int, set[str]]]:
    """Within this block a task's objects note the names that are read.

    Args:
        objects: that the task's text makes by `with_attributes`, in order.

    Yields:
        Names by the identity of the object; `ALL` among them if all may have been read.
    """
    found: dict[int, set[str]] = {id(one): set() for one in objects}
    original, coming = captured.with_attributes, iter(objects)

    def with_attributes(kind: type, attributes: dict[str, Any]) -> Any:
        names = found.setdefault(id(next(coming, None)), set())
        noting = _noting(kind, names)
        thing = original(noting, attributes)
        if noting is not kind:
            names.clear()  # to make it is no read
        return thing

    captured.with_attributes = with_attributes
    try:
        yield found
    finally:
        captured.with_attributes = original


def _noting(kind: type, names: set[str]) -> type:
    """A subclass of `kind` whose objects add each name that is read to `names`."""

    def read(own: Any, name: str) -> Any:
        names.add(name)
        plain: Any = kind.__getattribute__
        return plain(own, name)

    try:
        return type(kind)(kind.__name__, (kind,), {"__getattribute__": read})
    except TypeError:  # it allows no class below it
        names.add(ALL)
        return kind
