"""The budget of all clients of one MCP server together."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from evolve.core.errors import UsageError

MEANINGS = {
    "verdicts": "verdicts of the judge",
    "wall_time_s": "seconds of searches",
    "usd": "USD of searches for models",
}
ROUNDING = 1e-9


@dataclass(slots=True)
class Budget:
    """Limits by kind (`MEANINGS`), and the amounts spent or reserved; a missing limit is none."""

    limits: Mapping[str, float]
    used: dict[str, float] = field(default_factory=dict)

    def take(self, kind: str, amount: float) -> None:
        """Reserve an amount.

        Raises:
            UsageError: less than that is left.
        """
        left = self.left(kind)
        if left is not None and amount > left + ROUNDING:
            raise UsageError(
                f"{amount:g} {MEANINGS[kind]} are asked for, and {left:g} of the server's "
                f"{self.limits[kind]:g} are left; stop here and report, or have `evolve mcp` "
                f"started with a larger budget.{kind.removesuffix('_s')}"
            )
        self.used[kind] = self.used.get(kind, 0.0) + amount

    def give_back(self, kind: str, amount: float) -> None:
        """Return an amount that was reserved and not used."""
        self.used[kind] = max(0.0, self.used.get(kind, 0.0) - max(0.0, amount))

    def left(self, kind: str) -> float | None:
        """How much is left; None without a limit."""
        limit = self.limits.get(kind)
        return None if limit is None else max(0.0, limit - self.used.get(kind, 0.0))
