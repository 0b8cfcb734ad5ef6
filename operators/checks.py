"""Validation that the operators share."""

import math
from collections.abc import Mapping, Sequence

from evolve.core.errors import UsageError


def check_whole(field: str, value: object, *, least: int) -> None:
    """Raises UsageError unless the value is a whole number that is no smaller than `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UsageError(f"{field} must be a whole number from {least}, got {value!r}")


def check_choice(field: str, value: object, choices: Sequence[str]) -> None:
    """Raises UsageError unless the value is one of the choices."""
    if value not in choices:
        raise UsageError(f"{field} is {value!r}; choose one of {', '.join(choices)}")


def check_number(field: str, value: object, *, least: float, most: float = math.inf) -> None:
    """Raises UsageError unless the value is a number from `least` to `most`."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not least <= value <= most:  # type: ignore[operator]
        upto = "" if math.isinf(most) else f" to {most:g}"
        raise UsageError(f"{field} must be a number from {least:g}{upto}, got {value!r}")


def check_weights(field: str, weights: Mapping[str, object], names: Sequence[str]) -> None:
    """Raises UsageError unless these are weights of some of the names, and one is above 0."""
    for name, weight in weights.items():
        check_choice(field, name, names)
        check_number(f"{field}.{name}", weight, least=0)
    if not any(weights.values()):
        raise UsageError(f"{field} holds no weight above 0; give one to any of {', '.join(names)}")
