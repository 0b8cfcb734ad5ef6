"""Evaluations from files that may have been changed by hand."""

from collections.abc import Callable, Mapping
from typing import Any

from evolve.core.digest import canonical_json
from evolve.core.evaluation import Evaluation

_Check = Callable[[Any], bool]


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _flag_or_none(value: Any) -> bool:
    return value is None or _flag(value)


def _amount(value: Any) -> bool:
    return _number(value) and 0 <= value < 1e18


def _interval(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 3 and all(map(_amount, value))


def _ratio(value: Any) -> bool:
    return _interval(value) and min(value) > 0


def _values(check: _Check) -> _Check:
    return lambda value: isinstance(value, dict) and all(map(check, value.values()))


def _items(check: _Check) -> _Check:
    return lambda value: isinstance(value, list) and all(map(check, value))


def _fields(checks: Mapping[str, _Check]) -> _Check:
    return lambda value: isinstance(value, dict) and not _wrong(value, checks)


def _wrong(data: Mapping[str, Any], checks: Mapping[str, _Check]) -> str:
    """The first field that is missing or of the wrong kind."""
    return next((name for name in checks if name not in data or not checks[name](data[name])), "")


_CASE = {
    "name": _text,
    "weight": _amount,
    "timed": _flag,
    "passed": _flag,
    "times_ms": _values(_interval),
    "ratios": _values(_ratio),
}
_EVALUATION = {
    "status": _text,
    "stage": _whole,
    "fidelity": _text,
    "task_revision": _text,
    "device_class": _text,
    "evaluator_version": _text,
    "ratios": _values(_ratio),
    "cases": _items(_fields(_CASE)),
    "custom": _flag_or_none,
    "suite": _flag_or_none,
    "labels": _items(lambda value: _items(_text)(value) and len(value) == 2),
    "feedback": _text,
    "descriptors": _values(lambda value: _text(value) or _number(value)),
    "environment": _values(_text),
    "samples": _values(lambda _: True),
    "durations_s": _values(_number),
    "device_time_s": _amount,
}


def read_evaluation(data: Any) -> Evaluation:
    """The evaluation that plain data holds, with every field of the kind that it has to be.

    Raises:
        ValueError: it holds none; the message names a field.
    """
    if not isinstance(data, dict):
        raise ValueError("it is no object")
    if wrong := _wrong(data, _EVALUATION):
        raise ValueError(f"{wrong} is missing or malformed")
    try:
        evaluation = Evaluation.from_json(data)
    except TypeError as error:
        raise ValueError(f"it has a field that is not known here ({error})") from error
    canonical_json(evaluation.to_json())  # what the store will write
    return evaluation
