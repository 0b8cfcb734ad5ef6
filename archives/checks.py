"""Validation of settings that the archives share."""

import math
from collections.abc import Sequence

from evolve.core.errors import UsageError

MAX_CAPACITY = 10_000


def checked_capacity(capacity: object) -> int:
    """The capacity of an archive. Raises UsageError unless it is 1 to `MAX_CAPACITY`."""
    return checked_whole("capacity", capacity, 1, MAX_CAPACITY, example=1000)


def checked_whole(
    name: str, value: object, least: int, most: float = math.inf, *, example: int
) -> int:
    """The setting. Raises UsageError unless it is a whole number from `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        upto = "" if math.isinf(most) else f" to {most:g}"
        raise UsageError(
            f"archive.{name} must be a whole number from {least}{upto}, got {value!r}; "
            f"set e.g. archive.{name}={example}"
        )
    return value


def checked_number(
    name: str, value: object, least: float, most: float = math.inf, *, example: float
) -> float:
    """The setting. Raises UsageError unless it is a finite number from `least` to `most`."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not least <= value <= most or math.isinf(value):  # type: ignore[operator, arg-type]
        upto = "" if math.isinf(most) else f" to {most:g}"
        raise UsageError(
            f"archive.{name} must be a number from {least:g}{upto}, got {value!r}; "
            f"set e.g. archive.{name}={example:g}"
        )
    return float(value)  # type: ignore[arg-type]


def checked_choice(name: str, value: object, choices: Sequence[str]) -> str:
    """The setting. Raises UsageError unless it is one of the choices."""
    if value not in choices:
        raise UsageError(f"archive.{name} is {value!r}; choose one of {', '.join(choices)}")
    return str(value)
