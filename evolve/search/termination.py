"""Termination rules: when a run ends, and why. Pure functions of recorded progress.

>>> rule = Evaluations(400) | WallTime(3600)
>>> rule.check(Progress(evaluations=400))
'400 of 400 evaluations used'
"""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from evolve.core.errors import UsageError
from evolve.core.protocols import Progress

_DURATION = re.compile(
    r"(?:(?P<d>\d+(?:\.\d+)?)d)?(?:(?P<h>\d+(?:\.\d+)?)h)?"
    r"(?:(?P<m>\d+(?:\.\d+)?)m)?(?:(?P<s>\d+(?:\.\d+)?)s)?"
    r"|(?P<bare>\d+(?:\.\d+)?)"
)
_SECONDS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "bare": 1.0}


def parse_duration(value: str | float) -> float:
    """Seconds in `"2h30m"`, `"90s"` or a number of seconds. Raises UsageError elsewhere.

    >>> parse_duration("2h30m")
    9000.0
    """
    seconds = math.nan
    if isinstance(value, str):
        match = _DURATION.fullmatch(value.strip().replace(" ", ""))
        if match:
            seconds = sum(float(match[unit] or 0) * size for unit, size in _SECONDS.items())
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        seconds = float(value)
    if not 0 < seconds < math.inf:
        raise UsageError(f"{value!r} is not a duration above zero; write e.g. 2h30m, 90s or 90")
    return seconds


def format_duration(seconds: float) -> str:
    """A duration as people write it: `2h30m`, `45s`, `0.5s`."""
    if seconds < 60:
        return f"{seconds:.3g}s"
    days, rest = divmod(round(seconds), 86400)
    hours, rest = divmod(rest, 3600)
    minutes, rest = divmod(rest, 60)
    parts = zip((days, hours, minutes, rest), "dhms", strict=True)
    return "".join(f"{amount}{unit}" for amount, unit in parts if amount)


class Rule(ABC):
    """A termination rule that composes with `|` (any) and `&` (all)."""

    name: ClassVar[str]

    @abstractmethod
    def used(self, progress: Progress) -> float:
        """The share of the limit that is used up: 0 at the start, 1 if the rule fires."""

    @abstractmethod
    def check(self, progress: Progress) -> str | None:
        """The reason to stop now as a phrase, or None to go on."""

    def usage(self, progress: Progress) -> dict[str, float]:
        """The used share of every limit in the rule by name; the largest comes first in time."""
        return {self.name: self.used(progress)}

    def wall_time_left_s(self, progress: Progress) -> float:
        """Seconds until a limit on wall time ends the run; infinite if there is none."""
        return math.inf

    def __or__(self, other: "Rule") -> "AnyOf":
        return AnyOf((self, other))

    def __and__(self, other: "Rule") -> "AllOf":
        return AllOf((self, other))


@dataclass(frozen=True, slots=True)
class AnyOf(Rule):
    """Fires when the first of its rules does, with that rule's reason."""

    rules: tuple[Rule, ...]

    def used(self, progress: Progress) -> float:
        return max((rule.used(progress) for rule in self.rules), default=0.0)

    def check(self, progress: Progress) -> str | None:
        return next((reason for rule in self.rules if (reason := rule.check(progress))), None)

    def usage(self, progress: Progress) -> dict[str, float]:
        return {name: share for rule in self.rules for name, share in rule.usage(progress).items()}

    def wall_time_left_s(self, progress: Progress) -> float:
        return min((rule.wall_time_left_s(progress) for rule in self.rules), default=math.inf)


@dataclass(frozen=True, slots=True)
class AllOf(Rule):
    """Fires when all of its rules do, with all their reasons."""

    rules: tuple[Rule, ...]
    name: ClassVar[str] = "all_of"

    def used(self, progress: Progress) -> float:
        return min((rule.used(progress) for rule in self.rules), default=0.0)

    def check(self, progress: Progress) -> str | None:
        reasons = [rule.check(progress) for rule in self.rules]
        told = [reason for reason in reasons if reason]
        return " and ".join(told) if told and len(told) == len(reasons) else None

    def wall_time_left_s(self, progress: Progress) -> float:
        return max((rule.wall_time_left_s(progress) for rule in self.rules), default=math.inf)


def _checked(name: str, value: object, *, whole: bool) -> None:
    number = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
    if not number or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        kind = "a whole number" if whole else "a number"
        raise UsageError(
            f"termination.{name} must be {kind} above zero, got {value!r}; "
            f"set termination.{name}=null for no limit"
        )


class _Count(Rule):
    """A limit on something that is counted."""

    limit: int

    def __post_init__(self) -> None:
        _checked(self.name, self.limit, whole=True)

    @abstractmethod
    def count(self, progress: Progress) -> int: ...

    def used(self, progress: Progress) -> float:
        return min(self.count(progress) / self.limit, 1.0)

    def check(self, progress: Progress) -> str | None:
        count = self.count(progress)
        return f"{count} of {self.limit} {self.name} used" if count >= self.limit else None


@dataclass(frozen=True, slots=True)
class Evaluations(_Count):
    """At most `limit` full evaluations; screens are not counted."""

    limit: int
    name: ClassVar[str] = "evaluations"

    def count(self, progress: Progress) -> int:
        return progress.evaluations


@dataclass(frozen=True, slots=True)
class Proposals(_Count):
    """At most `limit` proposals, failed ones counted."""

    limit: int
    name: ClassVar[str] = "proposals"

    def count(self, progress: Progress) -> int:
        return progress.proposals


@dataclass(frozen=True, slots=True)
class Tokens(_Count):
    """At most `limit` tokens sent to and received from models."""

    limit: int
    name: ClassVar[str] = "tokens"

    def count(self, progress: Progress) -> int:
        return progress.tokens


@dataclass(frozen=True, slots=True)
class Stagnation(_Count):
    """`limit` full evaluations in a row without a gain by a disjoint interval."""

    limit: int
    name: ClassVar[str] = "stagnation"

    def count(self, progress: Progress) -> int:
        return progress.evaluations - progress.evaluations_at_best

    def check(self, progress: Progress) -> str | None:
        count = self.count(progress)
        return f"{count} evaluations without a clear gain" if count >= self.limit else None


class _Seconds(Rule):
    """A limit on seconds; fires early if less is left than has to be kept back."""

    limit_s: float

    def __post_init__(self) -> None:
        _checked(self.name, self.limit_s, whole=False)

    @abstractmethod
    def seconds(self, progress: Progress) -> float: ...

    @abstractmethod
    def reserved_s(self, progress: Progress) -> float: ...

    def used(self, progress: Progress) -> float:
        return min(self.seconds(progress) / self.limit_s, 1.0)

    def check(self, progress: Progress) -> str | None:
        seconds, reserved_s = self.seconds(progress), self.reserved_s(progress)
        if seconds + reserved_s < self.limit_s:
            return None
        limit, words = format_duration(self.limit_s), self.name.replace("_", " ")
        used = f"{format_duration(seconds)} of {limit} {words} used"
        if seconds >= self.limit_s:
            return used
        return (
            f"{used}, too little is left for another evaluation and a verification "
            f"({format_duration(reserved_s)})"
        )


@dataclass(frozen=True, slots=True)
class WallTime(_Seconds):
    """At most `limit_s` seconds from the start of the command, summed over all resumes."""

    limit_s: float
    name: ClassVar[str] = "wall_time"

    def seconds(self, progress: Progress) -> float:
        return progress.wall_time_s

    def reserved_s(self, progress: Progress) -> float:
        return progress.wall_time_reserved_s

    def wall_time_left_s(self, progress: Progress) -> float:
        return self.limit_s - progress.wall_time_s


@dataclass(frozen=True, slots=True)
class DeviceTime(_Seconds):
    """At most `limit_s` seconds of exclusive device time."""

    limit_s: float
    name: ClassVar[str] = "device_time"

    def seconds(self, progress: Progress) -> float:
        return progress.device_time_s

    def reserved_s(self, progress: Progress) -> float:
        return progress.device_time_reserved_s


@dataclass(frozen=True, slots=True)
class Usd(Rule):
    """At most `limit` US dollars; fires at once if the cost is unknown."""

    limit: float
    name: ClassVar[str] = "usd"

    def __post_init__(self) -> None:
        _checked(self.name, self.limit, whole=False)

    def used(self, progress: Progress) -> float:
        return 1.0 if progress.usd is None else min(progress.usd / self.limit, 1.0)

    def check(self, progress: Progress) -> str | None:
        if progress.usd is None:
            return f"cost unknown: a model has no price, and termination.usd={self.limit:g} is set"
        if progress.usd < self.limit:
            return None
        return f"{progress.usd:.2f} of {self.limit:.2f} USD used"


@dataclass(frozen=True, slots=True)
class TargetSpeedup(Rule):
    """The best program is at least `ratio` times as fast, by the low end of its interval."""

    ratio: float
    name: ClassVar[str] = "target_speedup"

    def __post_init__(self) -> None:
        _checked(self.name, self.ratio, whole=False)

    def used(self, progress: Progress) -> float:
        return min(progress.best.low / self.ratio, 1.0) if progress.best else 0.0

    def check(self, progress: Progress) -> str | None:
        if progress.best is None or progress.best.low < self.ratio:
            return None
        return f"speedup {progress.best.low:.3g} or more reached, target {self.ratio:g}"


@dataclass(frozen=True, slots=True)
class SpeedOfLight(Rule):
    """The best program reaches this share of its device's measured limits."""

    share: float
    name: ClassVar[str] = "speed_of_light"

    def __post_init__(self) -> None:
        _checked(self.name, self.share, whole=False)

    def used(self, progress: Progress) -> float:
        return min((progress.speed_of_light or 0.0) / self.share, 1.0)

    def check(self, progress: Progress) -> str | None:
        reached = progress.speed_of_light
        if reached is None or reached < self.share:
            return None
        return f"{reached:.0%} of the speed of light reached, target {self.share:.0%}"


@dataclass(frozen=True, slots=True)
class StopRequested(Rule):
    """A STOP file was found."""

    name: ClassVar[str] = "stop"

    def used(self, progress: Progress) -> float:
        return float(progress.stop_requested)

    def check(self, progress: Progress) -> str | None:
        return "STOP file found" if progress.stop_requested else None


_DURATIONS: Mapping[str, Callable[[float], Rule]] = {
    "wall_time": WallTime,
    "device_time": DeviceTime,
}
_NUMBERS: Mapping[str, Callable[..., Rule]] = {
    "evaluations": Evaluations,
    "proposals": Proposals,
    "tokens": Tokens,
    "usd": Usd,
    "stagnation": Stagnation,
    "target_speedup": TargetSpeedup,
    "speed_of_light": SpeedOfLight,
}


def from_config(config: Mapping[str, object]) -> AnyOf:
    """The rule of `termination.*`: ends a run at the first limit, or on a STOP file.

    Args:
        config: limits by name, None if there is none; `all_of` holds limits that end the run
            only together, e.g. both 200 evaluations and a speedup of 2.

    Raises:
        UsageError: an unknown name, a bad value, or no limit at all.
    """
    rules = _rules({name: value for name, value in config.items() if name != AllOf.name})
    together = config.get(AllOf.name) or {}
    if not isinstance(together, Mapping):
        raise UsageError(
            f"termination.all_of must hold limits, got {together!r}; "
            "write e.g. termination.all_of.evaluations=200 termination.all_of.target_speedup=2"
        )
    try:
        if all_of := _rules(together):
            rules.append(AllOf(tuple(all_of)))
    except UsageError as error:
        raise UsageError(f"termination.all_of: {error}") from None
    if not rules:
        raise UsageError(
            "termination: no limit is set, and a run needs an end; "
            "set e.g. termination.evaluations=400 or termination.wall_time=2h"
        )
    return AnyOf((*rules, StopRequested()))


def _rules(config: Mapping[str, object]) -> list[Rule]:
    return [_rule(name, value) for name, value in config.items() if value is not None]


def _rule(name: str, value: object) -> Rule:
    if name in _NUMBERS:
        return _NUMBERS[name](value)
    if name not in _DURATIONS:
        known = ", ".join((*_NUMBERS, *_DURATIONS))
        raise UsageError(f"termination.{name} is unknown; it has {known}")
    if not isinstance(value, (str, int, float)):
        raise UsageError(f"termination.{name}: {value!r} is not a duration; write e.g. 2h30m")
    try:
        return _DURATIONS[name](parse_duration(value))
    except UsageError as error:
        raise UsageError(f"termination.{name}: {error}") from None
