"""Classes of a task's file, as a process knows them that has not loaded the file.

Arguments may be objects of such classes: a configuration, metadata of an attention. A candidate's
process has them by the class of the same name of the candidate, or else by their attributes alone.
"""

import sys
from functools import reduce
from typing import Any

TASK_MODULES = "evolve_task_"
"""How names of modules begin in which tasks' files are executed."""
PROGRAM_MODULE = "candidate"


class Attributes:
    """An object of a class that is not known here: its attributes, without methods."""

    def __setstate__(self, state: Any) -> None:
        for part in state if isinstance(state, tuple) else (state,):
            if isinstance(part, dict):
                vars(self).update(part)
            elif part is not None:
                raise _unknown(type(self).__name__)


def find_class(module: str, name: str) -> Any | None:
    """The class that stands for one of a task's file; None for other classes."""
    if not module.startswith(TASK_MODULES) or module in sys.modules:
        return None
    try:
        return reduce(getattr, name.split("."), sys.modules[PROGRAM_MODULE])
    except (KeyError, AttributeError):
        return type(name, (Attributes,), {"__new__": _made})


def _made(cls: type, *values: Any) -> Any:
    if values:  # of an enumeration or a named tuple: only its class knows their meaning
        raise _unknown(cls.__name__)
    return object.__new__(cls)


def _unknown(name: str) -> TypeError:
    return TypeError(
        f"an argument is a {name} of the task's file; define the class {name} in the program too"
    )
