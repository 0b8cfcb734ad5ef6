"""Validation that the policies share."""

import math

from evolve.core.errors import UsageError


def check_whole(name: str, value: object, *, least: int, example: int) -> None:
    """Raises UsageError unless the setting is a whole number that is no smaller than `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UsageError(
            f"selection.{name} must be a whole number from {least}, got {value!r}; "
            f"set e.g. selection.{name}={example}"
        )


def check_number(
    name: str, value: object, *, least: float, most: float = math.inf, example: float
) -> None:
    """Raises UsageError unless the setting is a finite number from `least` to `most`."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not least <= value <= most or value == math.inf:  # type: ignore[operator]
        upto = "" if math.isinf(most) else f" to {most:g}"
        raise UsageError(
            f"selection.{name} must be a number from {least:g}{upto}, got {value!r}; "
            f"set e.g. selection.{name}={example:g}"
        )


def check_above_0(name: str, value: object, *, example: float) -> None:
    """Raises UsageError unless the setting is a finite number above 0."""
    check_number(name, value, least=0, example=example)
    if value == 0:
        raise UsageError(
            f"selection.{name} must be above 0, got {value!r}; "
            f"set e.g. selection.{name}={example:g}"
        )
