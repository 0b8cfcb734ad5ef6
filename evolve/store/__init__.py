"""The database of searches.

`Store` is imported when it is first used, because SQLAlchemy is not cheap to import.
"""

from typing import TYPE_CHECKING, Any

from evolve.core.records import Arm, Cost, Judge, Pruned, RunRow, Ticket, TicketState

if TYPE_CHECKING:
    from evolve.store.store import Store

__all__ = ["Arm", "Cost", "Judge", "Pruned", "RunRow", "Store", "Ticket", "TicketState"]


def __getattr__(name: str) -> Any:
    if name == "Store":
        from evolve.store.store import Store

        return Store
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
