"""Several ways to search on one store and one archive: a portfolio's arms."""

from collections.abc import Mapping
from dataclasses import dataclass

from evolve.core.errors import UsageError
from evolve.core.protocols import SelectionPolicy
from evolve.search.schedule import Scheduled


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """A selection policy, and the operators that make children, each with its share.

    Args:
        selection: the method's own policy.
        weights: shares of operators by name; those that the run leaves out count for nothing.
        weight: the method's share of the asks, or a bandit's prior.

    Raises:
        UsageError: a weight is not above 0.
    """

    selection: SelectionPolicy
    weights: Mapping[str, float]
    weight: float = 1.0

    def __post_init__(self) -> None:
        for name, weight in {"weight": self.weight, **self.weights}.items():
            if not weight > 0:
                raise UsageError(f"methods.*.{name} must be above 0, got {weight}; leave it out")


def shared_out(
    methods: Mapping[str, Method], operators: Mapping[str, Scheduled], selection: SelectionPolicy
) -> dict[str, tuple[SelectionPolicy, dict[str, Scheduled]]]:
    """The policy and the operators of every method, weights being shares of all asks.

    Without methods there is one, `""`, of the run's policy and its operators. With them, operators
    of infinite weight (seeds, re-measurements) belong to no method: they are asked as `""`, before
    all others.

    Raises:
        UsageError: a method names an operator that is not configured, or there is one that no
            method names and that would never be asked.
    """
    if not methods:
        return {"": (selection, dict(operators))}
    found = {"": (selection, {n: each for n, each in operators.items() if each.is_first})}
    for name, method in methods.items():
        if missing := sorted(method.weights.keys() - operators.keys()):
            raise UsageError(
                f"methods.{name}.operators names {', '.join(missing)}, which operators lacks; "
                f"configure operators.{missing[0]}, or leave it out"
            )
        total = sum(method.weights.values())
        found[name] = (
            method.selection,
            {
                operator: Scheduled(
                    operator=operators[operator].operator, weight=method.weight * weight / total
                )
                for operator, weight in method.weights.items()
            },
        )
    named = {operator for _, scheduled in found.values() for operator in scheduled}
    if idle := sorted(operators.keys() - named):
        raise UsageError(
            f"operators.{idle[0]} is in no method and would never be asked; "
            f"name it in methods.*.operators, or set operators.{idle[0]}=null"
        )
    return found
