"""The value of a user's name, as text: an import of an installed module, or a constant."""

import math
import site
import sys
import sysconfig
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from evolve.core.source.parsing import literal_value
from evolve.worker.sandbox.packages import package_folders

_PLAIN = (bool, int, float, str, bytes, type(None), tuple, list, dict, set)
_CONTAINERS = (tuple, list, dict, set)
_MAX_NESTED = 50  # containers in containers: Python reads no text with 200
_HOMES = ("torch", "torch.nn.functional")  # of functions that do not know their module


def import_of_module(name: str, module: ModuleType) -> str | None:
    """The statement that binds an installed module to a name; None for one of the user's own."""
    if not is_installed(module.__name__):
        return None
    return f"import {module.__name__}" + ("" if name == module.__name__ else f" as {name}")


def import_of(name: str, value: Any) -> str | None:
    """The statement that takes a value from an installed module; None if there is none."""
    own = getattr(value, "__module__", None)
    names = (getattr(value, "__qualname__", None), getattr(value, "__name__", None), name)
    for home in (own, *_HOMES):
        if not isinstance(home, str) or not is_installed(home):
            continue
        for each in names:
            if isinstance(each, str) and vars(sys.modules[home]).get(each, home) is value:
                return f"from {home} import {each}" + ("" if each == name else f" as {name}")
    return None


def literal(value: Any) -> str | None:
    """An expression that gives an equal value; None if no literal does.

    >>> literal([1, "a"]), literal(float("inf")), literal(object())
    ("[1, 'a']", "float('inf')", None)
    """
    if isinstance(value, float) and not math.isfinite(value):
        return f"float({str(value)!r})"
    if (type(value).__module__, type(value).__name__) == ("torch", "dtype"):
        return repr(value)
    if type(value) not in _PLAIN or nesting_fault(value):
        return None
    try:
        literal_value(repr(value))
    except (ValueError, SyntaxError):
        return None
    return repr(value)


def nesting_fault(value: Any) -> str:
    """Why a container cannot be written as text: it holds itself or is nested too deeply.

    Empty if it can be written.

    >>> ring = []; ring.append(ring); nesting_fault(ring), nesting_fault([1])
    ('a list that holds itself', '')
    """
    return _nesting_fault(value, {}, set())


def _nesting_fault(value: Any, around: dict[int, Any], known: set[int]) -> str:
    if type(value) not in _CONTAINERS or id(value) in known:
        return ""
    if id(value) in around or len(around) == _MAX_NESTED:
        how = "holds itself" if id(value) in around else "is nested too deeply"
        outer = next(iter(around.values())) if id(value) not in around else value
        return f"a {type(outer).__name__} that {how}"
    around[id(value)] = value
    inner = (*value.keys(), *value.values()) if isinstance(value, dict) else value
    said = next(filter(None, (_nesting_fault(one, around, known) for one in inner)), "")
    del around[id(value)]
    known.add(id(value))
    return said


def is_installed(module: str) -> bool:
    """Whether the judge's process can import it too: the standard library, or a package."""
    top = sys.modules.get(module.partition(".")[0])
    spec = getattr(top, "__spec__", None)
    if module not in sys.modules or spec is None or top is sys.modules["__main__"]:
        return False
    if spec.origin in ("built-in", "frozen"):
        return True
    places = [spec.origin] if spec.origin else list(spec.submodule_search_locations or ())
    folders = _folders(tuple(sys.path))
    return any(Path(place).is_relative_to(folder) for place in places for folder in folders)


@cache
def _folders(path: tuple[str, ...]) -> tuple[str, ...]:
    """The folders that the judge's process gets too, if `path` is `sys.path` of this process."""
    paths = sysconfig.get_paths()
    standard = [paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    usual = (*standard, *site.getsitepackages(), site.getusersitepackages())
    return (*usual, *package_folders(path))
