"""Validation that the operators share."""

from evolve.core.errors import UsageError


def check_whole(field: str, value: object, *, least: int) -> None:
    """Raises UsageError unless the value is a whole number that is no smaller than `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UsageError(f"{field} must be a whole number from {least}, got {value!r}")
