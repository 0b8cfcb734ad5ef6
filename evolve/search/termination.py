"""Termination rules: when a run ends, and why. Pure functions of recorded progress.

>>> rule = Limit("evaluations", 400) | Limit("wall_time", 3600)
>>> rule.check(Progress(evaluations=400))
'400 of 400 evaluations used'
"""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from evolve.core.errors import UsageError
from evolve.core.protocols import Progress

_DURATION = re.compile(
    r"(?:(?P<d>\d+(?:\.\d+)?)d)?(?:(?P<h>\d+(?:\.\d+)?)h)?"
    r"(?:(?P<m>\d+(?:\.\d+)?)m)?(?:(?P<s>\d+(?:\.\d+)?)s)?"
    r"|(?P<bare>\d+(?:\.\d+)?)"
)
ALL_OF = "all_of"  # limits that end a run only together
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

    name: str

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
    name: str = ALL_OF

    def used(self, progress: Progress) -> float:
        return min((rule.used(progress) for rule in self.rules), default=0.0)

    def check(self, progress: Progress) -> str | None:
        reasons = [rule.check(progress) for rule in self.rules]
        told = [reason for reason in reasons if reason]
        return " and ".join(told) if told and len(told) == len(reasons) else None

    def wall_time_left_s(self, progress: Progress) -> float:
        return max((rule.wall_time_left_s(progress) for rule in self.rules), default=math.inf)


@dataclass(frozen=True, slots=True)
class _Kind:
    """A row of `LIMITS`.

    Attributes:
        reached: what is compared with the limit; infinite if it is not known.
        reason: why the run ends, a format of `reached` and `limit`.
        is_whole: whether the limit is a whole number.
        reserved_s: of a limit in seconds: how much of it is kept back.
    """

    reached: Callable[[Progress], float]
    reason: str
    is_whole: bool = False
    reserved_s: Callable[[Progress], float] | None = None


LIMITS: Mapping[str, _Kind] = {
    "evaluations": _Kind(
        lambda progress: progress.evaluations, "{reached} of {limit} evaluations used", True
    ),
    "proposals": _Kind(
        lambda progress: progress.proposals, "{reached} of {limit} proposals used", True
    ),
    "tokens": _Kind(lambda progress: progress.tokens, "{reached} of {limit} tokens used", True),
    "usd": _Kind(
        lambda progress: math.inf if progress.usd is None else progress.usd,
        "{reached:.2f} of {limit:.2f} USD used",
    ),
    "stagnation": _Kind(
        lambda progress: progress.evaluations - progress.evaluations_at_best,
        "{reached} evaluations without a clear gain",
        True,
    ),
    "target_speedup": _Kind(
        lambda progress: progress.best.low if progress.best else 0.0,
        "speedup {reached:.3g} or more reached, target {limit:g}",
    ),
    "speed_of_light": _Kind(
        lambda progress: progress.speed_of_light or 0.0,
        "{reached:.0%} of the speed of light reached, target {limit:.0%}",
    ),
    "wall_time": _Kind(
        lambda progress: progress.wall_time_s,
        "{reached} of {limit} wall time used",
        reserved_s=lambda progress: progress.wall_time_reserved_s,
    ),
    "device_time": _Kind(
        lambda progress: progress.device_time_s,
        "{reached} of {limit} device time used",
        reserved_s=lambda progress: progress.device_time_reserved_s,
    ),
}
"""The limits of `termination.*`; each counts what `Progress` records."""

_TIME_USED = re.compile(r"(?:.+ and )?[\d.dhms]+ of [\d.dhms]+ (wall time|device time) used\b")
_EVALUATIONS_USED = re.compile(r"(?:.+ and )?\d+ of \d+ (evaluations) used\b")


def limit_of(reason: str) -> str:
    """The limit in seconds, else that on evaluations, that ended a run by the stored reason.

    Empty if neither did.

    >>> limit_of("60 of 60 evaluations used and 2m of 2m wall time used")
    'wall_time'
    """
    found = _TIME_USED.match(reason) or _EVALUATIONS_USED.match(reason)
    return found[1].replace(" ", "_") if found else ""


@dataclass(frozen=True, slots=True)
class Limit(Rule):
    """Ends a run when a row of `LIMITS` reaches `limit`, a number or seconds.

    `evaluations` counts full evaluations, no screens, and `stagnation` those in a row without a
    gain by a disjoint interval. An unknown cost ends a run that has a limit on it. `target_speedup`
    is compared with the low end of the best interval. A limit in seconds ends the run early if less
    is left than has to be kept back for a verification.
    """

    name: str
    limit: float

    def __post_init__(self) -> None:
        is_whole = LIMITS[self.name].is_whole
        number = isinstance(self.limit, int if is_whole else (int, float))
        if not number or isinstance(self.limit, bool) or not 0 < self.limit < math.inf:
            kind = "a whole number" if is_whole else "a number"
            raise UsageError(
                f"termination.{self.name} must be {kind} above zero, got {self.limit!r}; "
                f"set termination.{self.name}=null for no limit"
            )

    def used(self, progress: Progress) -> float:
        return min(LIMITS[self.name].reached(progress) / self.limit, 1.0)

    def check(self, progress: Progress) -> str | None:
        kind = LIMITS[self.name]
        reached = kind.reached(progress)
        if kind.reserved_s is not None:
            return self._check_seconds(reached, kind.reserved_s(progress))
        if math.isinf(reached):
            return f"cost unknown: a model has no price, and termination.usd={self.limit:g} is set"
        reason = kind.reason.format(reached=reached, limit=self.limit)
        return reason if reached >= self.limit else None

    def wall_time_left_s(self, progress: Progress) -> float:
        return self.limit - progress.wall_time_s if self.name == "wall_time" else math.inf

    def _check_seconds(self, seconds: float, reserved_s: float) -> str | None:
        if seconds + reserved_s < self.limit:
            return None
        used = LIMITS[self.name].reason.format(
            reached=format_duration(seconds), limit=format_duration(self.limit)
        )
        if seconds >= self.limit:
            return used
        return (
            f"{used}, too little is left for another evaluation and a verification "
            f"({format_duration(reserved_s)})"
        )


@dataclass(frozen=True, slots=True)
class StopRequested(Rule):
    """A person has asked for the end, by a STOP file or by steering."""

    name: str = "stop"

    def used(self, progress: Progress) -> float:
        return float(bool(progress.stop_requested))

    def check(self, progress: Progress) -> str | None:
        return progress.stop_requested or None


class Raisable(Rule):
    """A rule whose limits a person may raise while the run is under way.

    Args:
        limits: `termination.*` by name.
        make: the rule of such limits.

    Attributes:
        limits: as they are now; changed in place, so that displays show them.
    """

    name = "raisable"

    def __init__(
        self, limits: Mapping[str, Any], make: Callable[[Mapping[str, Any]], Rule]
    ) -> None:
        self.limits = dict(limits)
        self._make = make
        self._rule = make(self.limits)

    def raise_limit(self, added: str) -> None:
        """Add an amount to a limit, as `evaluations=100` or `wall_time=30m`."""
        limits = raised(self.limits, added)
        self._rule = self._make(self.limits | limits)
        self.limits.update(limits)

    def used(self, progress: Progress) -> float:
        return self._rule.used(progress)

    def check(self, progress: Progress) -> str | None:
        return self._rule.check(progress)

    def usage(self, progress: Progress) -> dict[str, float]:
        return self._rule.usage(progress)

    def wall_time_left_s(self, progress: Progress) -> float:
        return self._rule.wall_time_left_s(progress)


BUDGETS = ("evaluations", "proposals", "tokens", "usd", "wall_time", "device_time")
"""The limits that count what a run spends."""

MOST_ADDED = 100
"""How many times a limit may be added to it at once."""

MOST_SECONDS, MOST = 1e9, 1e15
"""What a raised limit may be, in seconds and in all else."""


def raised(limits: Mapping[str, Any], added: str) -> dict[str, Any]:
    """The limit that is changed by an amount that is added to it, as `evaluations=100`.

    Raises:
        UsageError: no amount, one that cannot be meant, or no limit to add to.
    """
    name, _, text = added.partition("=")
    set_ones = [each for each in BUDGETS if limits.get(each) is not None]
    if name not in set_ones:
        raise UsageError(
            f"budget {added!r} names no limit of the run; it has {', '.join(set_ones) or 'none'}, "
            "and takes e.g. evaluations=100, usd=5 or wall_time=30m"
        )
    in_seconds = LIMITS[name].reserved_s is not None
    old = parse_duration(limits[name]) if in_seconds else limits[name]
    more = _amount(text, in_seconds=in_seconds, is_whole=LIMITS[name].is_whole)
    if not 0 < more <= MOST_ADDED * old:
        raise UsageError(
            f"budget {added!r}: the amount must be above zero and at most {MOST_ADDED} times the "
            f"limit, termination.{name}={limits[name]}"
        )
    most = MOST_SECONDS if in_seconds else MOST
    if old + more > most:
        raise UsageError(
            f"budget {added!r}: a raised limit may be at most {most:.0e}, and this is "
            f"termination.{name}={str(limits[name])[:40]}; add less"
        )
    return {name: format_duration(old + more) if in_seconds else old + more}


def _amount(text: str, *, in_seconds: bool, is_whole: bool) -> float:
    """The number in a text; not a number if there is none."""
    try:
        if in_seconds:
            return parse_duration(text)
        return int(text) if is_whole else float(text)
    except (UsageError, ValueError):
        return math.nan


def from_config(config: Mapping[str, object]) -> AnyOf:
    """The rule of `termination.*`: ends a run at the first limit, or if a person asks for it.

    Args:
        config: limits by name, None if there is none; `all_of` holds limits that end the run
            only together, e.g. both 200 evaluations and a speedup of 2.

    Raises:
        UsageError: an unknown name, a bad value, or no limit at all.
    """
    rules = _rules({name: value for name, value in config.items() if name != ALL_OF})
    together = config.get(ALL_OF) or {}
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


def _rules(config: Mapping[str, Any]) -> list[Rule]:
    return [_rule(name, value) for name, value in config.items() if value is not None]


def _rule(name: str, value: Any) -> Limit:
    if name not in LIMITS:
        raise UsageError(f"termination.{name} is unknown; it has {', '.join(LIMITS)}")
    if LIMITS[name].reserved_s is None:
        return Limit(name, value)
    try:
        return Limit(name, parse_duration(value))
    except UsageError as error:
        raise UsageError(f"termination.{name}: {error}") from None
