"""Classes of a task's files, in a process that has not loaded these files.

Arguments may be objects of such classes: a configuration, metadata of an attention. A candidate's
process has them by the class of the same name of the candidate, or else by their attributes alone.
"""

import sys
from functools import reduce
from typing import Any

PROGRAM_MODULE = "candidate"


class Attributes:
    """An object of a class that is not known here: its attributes, without methods."""

    def __setstate__(self, state: Any) -> None:
        for part in state if isinstance(state, tuple) else (state,):
            if isinstance(part, dict):
                vars(self).update(part)
            elif part is not None:
                raise _unknown(type(self).__name__)

    def __reduce__(self) -> tuple[Any, ...]:
        """Its class has no module to be found in: a tool's process makes one of its own."""
        return _empty, (type(self).__name__,), vars(self)


def stand_in(name: str) -> Any:
    """The program's class of this name, or one with attributes alone."""
    try:
        return reduce(getattr, name.split("."), sys.modules[PROGRAM_MODULE])
    except (KeyError, AttributeError):
        return type(name, (Attributes,), {"__new__": _made})


def _empty(name: str) -> Any:
    known = stand_in(name)
    return known.__new__(known)


def _made(cls: type, *values: Any) -> Any:
    if values:  # of an enumeration or a named tuple: only its class knows their meaning
        raise _unknown(cls.__name__)
    return object.__new__(cls)


def _unknown(name: str) -> TypeError:
    return TypeError(
        f"an argument is a {name} of the task's files; define the class {name} in the program too"
    )
