"""Reading `cases.yaml`: the shapes that a task is judged and timed at.

A list of cases, for example::

    [
        {name: main},  # constants of the size that was asked for
        {name: long, constants: {TOKENS: 8192}, weight: 2.0},
        {name: odd, constants: {TOKENS: 37, FEATURES: 1003}, timed: false},  # checked only
    ]
"""

import difflib
import math
from pathlib import Path
from typing import Any

from evolve.core.errors import UsageError
from evolve.core.task import Case

_KEYS = ("name", "constants", "weight", "timed")


def parse_cases(text: str, path: Path) -> tuple[Case, ...]:
    """The cases that a YAML text describes; `path` is for messages only.

    Raises:
        UsageError: the text is no YAML, or not a list of cases; the message names file and line.
    """
    import yaml  # brought by OmegaConf; imported here to keep `import evolve` cheap

    try:
        entries = yaml.safe_load(text)
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise _error(path, line, f"not valid YAML ({error.problem})", "Correct it.") from error
    except yaml.YAMLError as error:
        raise _error(path, 1, f"not valid YAML ({error})", "Correct it.") from error
    if not isinstance(entries, list) or not entries:
        raise _error(path, 1, "not a list of cases", "Start each case with `- name: ...`.")
    lines = [node.start_mark.line + 1 for node in root.value]
    cases: dict[str, Case] = {}
    for entry, line in zip(entries, lines, strict=True):
        case = _case(entry, path, line)
        if case.name in cases:
            raise _error(path, line, f"a second case named {case.name!r}", "Rename one of them.")
        cases[case.name] = case
    if not any(case.timed for case in cases.values()):
        raise _error(path, 1, "no case is timed", "Leave `timed: false` out of one at least.")
    return tuple(cases.values())


def _case(entry: Any, path: Path, line: int) -> Case:
    if not isinstance(entry, dict):
        raise _error(path, line, f"a case is a mapping, not {entry!r}", "Write `- name: ...`.")
    for key in entry:
        if key not in _KEYS:
            close = difflib.get_close_matches(str(key), _KEYS, 1)
            hint = f"Did you mean {close[0]}?" if close else f"Keys are {', '.join(_KEYS)}."
            raise _error(path, line, f"unknown key {key!r}", hint)
    name, weight, timed = entry.get("name"), entry.get("weight", 1.0), entry.get("timed", True)
    if not isinstance(name, str) or not name:
        raise _error(path, line, f"name is {name!r}", "Give the case a name (a number in quotes).")
    if not _is_number(weight) or not 0 < weight < math.inf:
        raise _error(path, line, f"weight is {weight!r}", "Use a positive number.")
    if not isinstance(timed, bool):
        raise _error(path, line, f"timed is {timed!r}", "Use true or false.")
    constants = _constants(entry.get("constants", {}), path, line)
    return Case(name=name, constants=constants, weight=float(weight), timed=timed)


def _constants(value: Any, path: Path, line: int) -> dict[str, int | float | str]:
    if not isinstance(value, dict):
        raise _error(path, line, f"constants is {value!r}", "Write it as {NAME: value, ...}.")
    for name, constant in value.items():
        if not isinstance(name, str) or not name.isidentifier():
            raise _error(path, line, f"{name!r} is no name of a constant", "Use a Python name.")
        if not isinstance(constant, int | float | str):
            raise _error(path, line, f"{name} is {constant!r}", "Use a number or a string.")
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _error(path: Path, line: int, fact: str, remedy: str) -> UsageError:
    return UsageError(f"{path}, line {line}: {fact}. {remedy}")
