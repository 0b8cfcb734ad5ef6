"""Torch's share of a task's work in a candidate's call, by the candidate's own account.

The account comes out of the candidate's process: it speaks against a candidate, and other evidence
covers omissions. The share is relative to the minimal work of the reference: the bytes of its
inputs, parameters and outputs, each once, and its arithmetic operations. Not of all that the
reference moves: one operation of torch may do the whole work of a reference that goes through
memory ten times.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from evolve.core.evaluation import Label
from evolve.worker.base.operation_cost import Work
from evolve.worker.timing.reference_cost import Cost

MAIN_WORK = "aten_compute"
SMALL_SHARE = "torch_share"
_SMALL = 0.1
_NAMED = 3
_MAX_COUNT = 1 << 62
_MAX_ROWS = 64
_OPERATION = re.compile(r"\w{1,40}::\w{1,80}")

Account = Mapping[str, Work | None]
"""The work by operation; None if that cannot be counted."""


@dataclass(frozen=True, slots=True)
class Share:
    """Torch's share of bytes and operations, and the operations that do most of it.

    `uncounted` names one whose work cannot be counted.
    """

    nbytes: float
    operations: float
    names: tuple[str, ...]
    uncounted: str | None = None

    @property
    def is_small(self) -> bool:
        """Whether it is not the main work."""
        return self.uncounted is None and max(self.nbytes, self.operations) < _SMALL

    def label(self, case: str) -> Label | None:
        """The numbers; None if torch computes nothing."""
        if self.uncounted is not None:
            evidence = f"{self.uncounted} was called in forward, whose work cannot be counted"
            return Label(MAIN_WORK, f"case {case}: {evidence}")
        if not self.names:
            return None
        evidence = (
            f"case {case}: torch does {_percent(self.nbytes)} of the bytes, "
            f"{_percent(self.operations)} of the operations: {', '.join(self.names)}"
        )
        return Label(SMALL_SHARE if self.is_small else MAIN_WORK, evidence[:200])


NOTHING = Share(0.0, 0.0, ())
UNREADABLE = Share(0.0, 0.0, (), "an operation of torch")


def read(text: str) -> Account | None:
    """A runner's report on torch's work (`probes.Account`); None if it is malformed."""
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(rows, list) or len(rows) > _MAX_ROWS:
        return None
    found: dict[str, Work | None] = {}
    for row in rows:
        match row:
            case [str(name), None, None] if _OPERATION.fullmatch(name):
                found[name] = None
            case [str(name), nbytes, operations] if (
                _OPERATION.fullmatch(name) and _is_count(nbytes) and _is_count(operations)
            ):
                found[name] = Work(nbytes, operations)
            case _:
                return None
    return found


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MAX_COUNT


def share_of(account: Account, cost: Cost) -> Share:
    """Torch's share of the reference's cost."""
    counted = {name: work for name, work in account.items() if work is not None}
    total = sum(counted.values(), start=Work())
    return Share(
        nbytes=total.nbytes / max(1, cost.moved_bytes),
        operations=total.operations / max(1, cost.operations),
        names=tuple(sorted(counted, key=lambda name: counted[name], reverse=True)[:_NAMED]),
        uncounted=next((name for name, work in account.items() if work is None), None),
    )


def _percent(share: float) -> str:
    percent = 100 * share
    return f"{percent:.0f} %" if percent >= 10 else f"{percent:.2g} %"
