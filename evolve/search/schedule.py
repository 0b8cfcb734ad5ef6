"""Which operator is asked next, and of which model."""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from evolve.core.errors import UsageError
from evolve.core.model import ModelCard
from evolve.core.protocols import ModelOperator, Operator, Progress
from evolve.search.termination import Rule
from evolve.store import Arm

Key = TypeVar("Key")

MONEY = ("usd", "tokens")
RESOURCES = (*MONEY, "evaluations", "proposals", "device_time", "wall_time")
"""Limits on spending, by name; other rules end a run when its goal is reached."""

Draws = Callable[[str], random.Random]
"""The generator of a named choice: each has its own, so that none depends on the others."""


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

    @property
    def is_first(self) -> bool:
        """Whether it is asked before all others."""
        return math.isinf(self.weight)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """An operator with the model that would answer it (`""`: it asks none), for a method."""

    operator: str
    model: str = ""
    method: str = ""
    weight: float = 1.0

    @property
    def is_first(self) -> bool:
        """Whether it is asked before all others."""
        return math.isinf(self.weight)

    @property
    def stream(self) -> str:
        """Name of the random stream that this choice is drawn with."""
        named = f"{self.operator}/{self.model}" if self.model else self.operator
        return f"{self.method}:{named}" if self.method else named


class Schedule(Protocol):
    """The order in which choices are tried, until one has something to propose.

    Attributes:
        batch: answers that models are asked for at once; the next ones are asked for when all steps
            of the run are judged, so that their prompts contain the results. None for as many as
            keep the judge busy, all the time.
    """

    @property
    def batch(self) -> int | None: ...

    def order(
        self, choices: Sequence[Choice], arms: Callable[[], Sequence[Arm]], draws: Draws
    ) -> list[Choice]:
        """All choices in the order of asking.

        A pure function of its arguments; `arms` reads the cost and gain of each choice so far.
        """
        ...


def choices(
    operators: Mapping[str, Scheduled], cards: Sequence[ModelCard], method: str = ""
) -> list[Choice]:
    """Every operator, those that ask models once per model, which share the operator's weight.

    Weights are shares of steps: one ask of an operator with several samples is as many of them.
    Without cards there are no operators that ask models. A model of weight 0 is not chosen.
    """
    total = sum(card.weight for card in cards)
    found = []
    for name, scheduled in operators.items():
        if not isinstance(scheduled.operator, ModelOperator):
            found.append(Choice(operator=name, method=method, weight=scheduled.weight))
            continue
        samples: int = getattr(scheduled.operator, "samples", 1)
        found += [
            Choice(
                operator=name,
                model=card.name,
                method=method,
                weight=scheduled.weight * card.weight / total / samples,
            )
            for card in cards
            if card.weight > 0
        ]
    return found


def _check_batch(batch: int | None) -> None:
    if batch is not None and (isinstance(batch, bool) or not isinstance(batch, int) or batch < 1):
        raise UsageError(f"schedule.batch must be a whole number from 1, or null, got {batch!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """Fixed weights: a weighted draw without replacement.

    Exponential clocks (Efraimidis and Spirakis 2006): the choice with the smallest clock is first
    with probability proportional to its weight.

    Args:
        batch: see `Schedule`.

    Raises:
        UsageError: it is none.
    """

    batch: int | None = None

    def __post_init__(self) -> None:
        _check_batch(self.batch)

    def order(
        self, choices: Sequence[Choice], arms: Callable[[], Sequence[Arm]], draws: Draws
    ) -> list[Choice]:
        def clock(choice: Choice) -> float:
            draw = draws(choice.stream).random()
            return -1.0 if choice.is_first else -math.log1p(-draw) / choice.weight

        return sorted(sorted(choices, key=lambda choice: choice.stream), key=clock)


@dataclass(frozen=True, slots=True)
class Brought:
    """Improvement in natural log as far as the intervals allow, its cost, and asks."""

    gain: float = 0.0
    cost: float = 0.0
    asks: int = 0

    def __add__(self, other: "Brought") -> "Brought":
        return Brought(self.gain + other.gain, self.cost + other.cost, self.asks + other.asks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bandit:
    """Arms with more improvement for their cost are asked more often.

    An improvement is counted as far as the intervals of both measurements allow
    (`evolve.search.credit`): nothing waits for a verification, but later measurements,
    verifications and refutations count once known. Sums are over the whole run; nothing decays.

    Cost is the run's scarcest resource. If more has been used of a limit on money (dollars, tokens)
    than of any other, that is dollars. Elsewhere it is asks and the judge's time in equal parts: a
    reply without a program takes the place of another, a screen takes little time.

    Thompson sampling of a Gamma posterior: improvements arrive in a choice at some rate per cost,
    `step` of log speedup each; rates are drawn and the highest goes first. The prior is that of
    `prior_asks` asks of average cost and average rate, shared out by weight: in asks, so that it is
    worth as much beside calls that cost cents as beside built-in operators that cost next to
    nothing. With probability `explore` the weights alone decide, and an infinite weight always goes
    first.

    If the run has several methods, the method is drawn first, by how far its children rose above
    the leader of their moment: a rise above a parent that was chosen to be weak says nothing for a
    method. Its operators are then drawn by how far children rose above their parents.

    Args:
        step: log speedup that counts as one improvement.
        prior_asks: how many asks of evidence, for each choice, the prior is worth.
        explore: share of asks that weights decide.
        usd_per_device_hour: the price of an hour of the device; makes built-in operators comparable
            in dollars.
        usd_per_million_tokens: stands in for the price of a model that has none.
        batch: see `Schedule`.
        limit: on money; None if there is none.

    Raises:
        UsageError: a setting is out of range.
    """

    step: float = 0.05
    prior_asks: float = 2.0
    explore: float = 0.1
    usd_per_device_hour: float = 2.0
    usd_per_million_tokens: float = 1.0
    batch: int | None = None
    limit: Rule | None = None

    def __post_init__(self) -> None:
        _check_batch(self.batch)
        for name in ("step", "prior_asks", "usd_per_device_hour", "usd_per_million_tokens"):
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
        spent = arms()
        cost = self._cost(spent)
        first = [choice for choice in by_weight if choice.is_first]
        methods: dict[str, list[Choice]] = {}
        for choice in by_weight[len(first) :]:
            methods.setdefault(choice.method, []).append(choice)
        weights = {name: sum(choice.weight for choice in of) for name, of in methods.items()}
        brought = {name: Brought() for name in methods}
        for arm in spent:
            if arm.method in brought:
                brought[arm.method] += Brought(arm.lead, cost(arm), arm.told)
        names = self._drawn(weights, brought, lambda name: draws(f"bandit/method/{name}"))
        return first + [
            choice
            for name in names
            for choice in self._operators(methods[name], spent, cost, draws)
        ]

    def _operators(
        self,
        choices: Sequence[Choice],
        arms: Sequence[Arm],
        cost: Callable[[Arm], float],
        draws: Draws,
    ) -> list[Choice]:
        """The choices of one method."""
        known = {
            (arm.method, arm.operator, arm.model): Brought(arm.gain, cost(arm), arm.told)
            for arm in arms
        }
        brought = {
            choice: known.get((choice.method, choice.operator, choice.model), Brought())
            for choice in choices
        }
        weights = {choice: choice.weight for choice in choices}
        return self._drawn(weights, brought, lambda choice: draws(f"bandit/{choice.stream}"))

    def _drawn(
        self,
        weights: Mapping[Key, float],
        brought: Mapping[Key, Brought],
        stream: Callable[[Key], random.Random],
    ) -> list[Key]:
        """The keys by a rate drawn for each, the highest first."""
        total = sum(weights.values())
        all_of_it = sum(brought.values(), Brought())
        ask_cost = all_of_it.cost / max(all_of_it.asks, 1) or 1.0  # 1: nothing has cost anything
        prior_cost = self.prior_asks * ask_cost
        average = (1.0 + all_of_it.gain / self.step) / (prior_cost + all_of_it.cost)

        def rate(key: Key) -> float:
            share = len(weights) * weights[key] / total
            improvements = average * prior_cost * share + brought[key].gain / self.step
            cost = prior_cost + brought[key].cost
            return stream(key).gammavariate(improvements, 1.0 / cost)

        rates = {key: rate(key) for key in weights}
        return sorted(weights, key=lambda key: -rates[key])

    def _cost(self, arms: Sequence[Arm]) -> Callable[[Arm], float]:
        """The cost of an arm, counted in the run's scarcest resource."""
        asks, seconds = sum(arm.told for arm in arms), sum(arm.device_time_s for arm in arms)
        spent = Progress(
            proposals=asks,
            evaluations=asks,
            tokens=sum(arm.tokens for arm in arms),
            usd=sum(arm.usd for arm in arms),
            device_time_s=seconds,
            wall_time_s=seconds,
        )
        used = self.limit.usage(spent) if self.limit else {}
        money = max(used.get(name, 0.0) for name in MONEY)
        if money and money >= max(used.get(name, 0.0) for name in RESOURCES):
            return self.usd
        asks_per_second = asks / seconds if seconds else 0.0
        return lambda arm: arm.told + arm.device_time_s * asks_per_second

    def usd(self, arm: Arm) -> float:
        """The cost of an arm: calls and device, with a stand-in for unknown prices."""
        tokens = arm.unpriced_tokens * self.usd_per_million_tokens / 1e6
        return arm.usd + tokens + arm.device_time_s * self.usd_per_device_hour / 3600
