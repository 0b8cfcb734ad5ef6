"""Which operator is asked next, and of which model."""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from evolve.core.errors import UsageError
from evolve.core.model import ModelCard
from evolve.core.protocols import ModelOperator, Operator
from evolve.store import Arm

Draws = Callable[[str], random.Random]
"""The generator of a named choice: each has its own, so that none depends on what others exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduled:
    """An operator with its share of the asks; an infinite weight is asked before all others."""

    operator: Operator
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not self.weight > 0:
            raise UsageError(
                f"operators.*.weight must be above 0, got {self.weight}; "
                "set the operator to null to leave it out"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """An operator with the model that would answer it (`""`: it asks none)."""

    operator: str
    model: str = ""
    weight: float = 1.0

    @property
    def stream(self) -> str:
        """Name of the random stream that this choice is drawn with."""
        return f"{self.operator}/{self.model}" if self.model else self.operator


class Schedule(Protocol):
    """The order in which choices are tried, until one has something to propose."""

    def order(
        self, choices: Sequence[Choice], arms: Callable[[], Sequence[Arm]], draws: Draws
    ) -> list[Choice]:
        """All choices in the order of asking.

        Pure in what it is given; `arms` reads what each choice has cost and brought so far.
        """
        ...


def choices(operators: Mapping[str, Scheduled], cards: Sequence[ModelCard]) -> list[Choice]:
    """Every operator, those that ask models once per model, which share the operator's weight.

    Without cards there are no operators that ask models. A model of weight 0 is not chosen.
    """
    total = sum(card.weight for card in cards)
    found = []
    for name, scheduled in operators.items():
        if not isinstance(scheduled.operator, ModelOperator):
            found.append(Choice(operator=name, weight=scheduled.weight))
            continue
        found += [
            Choice(operator=name, model=card.name, weight=scheduled.weight * card.weight / total)
            for card in cards
            if card.weight > 0
        ]
    return found


@dataclass(frozen=True, slots=True)
class Shares:
    """Fixed weights: a weighted draw without replacement.

    Exponential clocks (Efraimidis and Spirakis 2006): the choice with the smallest clock is first
    with probability proportional to its weight.
    """

    def order(
        self, choices: Sequence[Choice], arms: Callable[[], Sequence[Arm]], draws: Draws
    ) -> list[Choice]:
        def clock(choice: Choice) -> float:
            draw = draws(choice.stream).random()
            return -1.0 if math.isinf(choice.weight) else -math.log1p(-draw) / choice.weight

        return sorted(sorted(choices, key=lambda choice: choice.stream), key=clock)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bandit:
    """What has brought the most verified improvement per dollar is asked more often.

    Thompson sampling of a Gamma posterior: improvements arrive in a choice at some rate per dollar,
    `step` of log speedup each; rates are drawn and the highest goes first. The prior is that of
    `prior_usd` spent at the average rate, shared out by weight. With probability `explore` the
    weights alone decide, and an infinite weight always goes first.

    Args:
        step: log speedup that counts as one improvement.
        prior_usd: dollars of evidence that the prior is worth.
        explore: share of asks that weights decide.
        usd_per_device_hour: what an hour of the device costs; makes built-in operators comparable.
        usd_per_million_tokens: stands in for the price of a model that has none.

    Raises:
        UsageError: a setting is out of range.
    """

    step: float = 0.05
    prior_usd: float = 0.25
    explore: float = 0.1
    usd_per_device_hour: float = 2.0
    usd_per_million_tokens: float = 1.0

    def __post_init__(self) -> None:
        for name in ("step", "prior_usd", "usd_per_device_hour", "usd_per_million_tokens"):
            if not getattr(self, name) > 0:
                raise UsageError(f"schedule.{name} must be above 0, got {getattr(self, name)}")
        if not 0 <= self.explore <= 1:
            raise UsageError(f"schedule.explore must be from 0 to 1, got {self.explore}")

    def order(
        self, choices: Sequence[Choice], arms: Callable[[], Sequence[Arm]], draws: Draws
    ) -> list[Choice]:
        by_weight = Shares().order(choices, arms, draws)
        if draws("bandit").random() < self.explore:
            return by_weight
        known = {(arm.operator, arm.model): arm for arm in arms()}
        total = sum(choice.weight for choice in choices if math.isfinite(choice.weight))
        spent = sum(self.usd(arm) for arm in known.values())
        average = (1.0 + sum(arm.gain for arm in known.values()) / self.step) / (
            self.prior_usd + spent
        )

        def rate(choice: Choice) -> float:
            if math.isinf(choice.weight):
                return math.inf
            arm = known.get((choice.operator, choice.model))
            share = len(choices) * choice.weight / total
            improvements = average * self.prior_usd * share + (arm.gain / self.step if arm else 0.0)
            usd = self.prior_usd + (self.usd(arm) if arm else 0.0)
            return draws(f"bandit/{choice.stream}").gammavariate(improvements, 1.0 / usd)

        rates = {choice: rate(choice) for choice in by_weight}
        return sorted(by_weight, key=lambda choice: -rates[choice])

    def usd(self, arm: Arm) -> float:
        """What an arm has cost: calls and device, with a stand-in where a price is unknown."""
        tokens = arm.unpriced_tokens * self.usd_per_million_tokens / 1e6
        return arm.usd + tokens + arm.device_time_s * self.usd_per_device_hour / 3600
