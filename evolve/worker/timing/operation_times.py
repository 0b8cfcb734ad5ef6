"""The time that each operation of a reference takes, alone on the device: an estimate for prompts.

Operations are those that PyTorch dispatches below autograd, each timed by itself. On a GPU by
events in the stream, all of them queued behind a pause: otherwise operations shorter than the
host needs to launch them would be charged with the wait for it.
"""

import time
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from evolve.core.reference import OperationCost
from evolve.worker.base.dispatch import DispatchMode
from evolve.worker.base.operation_cost import products_of
from evolve.worker.ipc.pytree import dense_parts, map_tensors
from evolve.worker.reference.seeding import seeded
from evolve.worker.reference.task_module import task_code

MAX_ROWS = 8
_REPEATS = 3
_ENOUGH_S = 1.0  # of repeats
_PAUSE_CYCLES = 20_000_000  # of a GPU: some 10 ms, in which the host queues the calls


@torch.no_grad()
def operation_times(task: str, model: nn.Module, inputs: list[Any]) -> list[OperationCost]:
    """The operations of a call, those that took longest first; of a few calls the shortest.

    The first one loads and compiles, and counts on a CPU only, if it takes that long anyway.

    Raises:
        UsageError: the task's code fails.
    """
    place = next((tensor.device for tensor in dense_parts(inputs)), torch.device("cpu"))
    found: list[OperationCost] = []
    began, least_ms = time.monotonic(), float("inf")
    for number in range(1 + _REPEATS):
        rows = _one_call(task, model, inputs, place)
        total_ms = sum(row.time_ms for row in rows)
        is_long = time.monotonic() - began > _ENOUGH_S
        counts = number > 0 or (is_long and place.type == "cpu")
        if counts and total_ms < least_ms:
            found, least_ms = rows, total_ms
        if counts and is_long:
            break
    return sorted(found, key=lambda row: -row.time_ms)


def _one_call(
    task: str, model: nn.Module, inputs: list[Any], place: torch.device
) -> list[OperationCost]:
    own = map_tensors(Tensor.clone, inputs)
    with task_code(task, "Model.forward"), seeded(0):
        if place.type == "cuda":
            torch.cuda.synchronize(place)
            torch.cuda._sleep(_PAUSE_CYCLES)
        with _Times(place) as times:
            model(*own)
    return times.rows()


class _Times(DispatchMode):
    """While active: what each operation works on, between two marks in time."""

    def __init__(self, place: torch.device) -> None:
        super().__init__()
        self._place = place
        self._seen: list[tuple[str, tuple[tuple[int, ...], ...], int, int, Any, Any]] = []

    def run(self, operation: Any, arguments: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
        if operation.is_view:
            return operation(*arguments, **options)
        before = self._mark()
        outcome = operation(*arguments, **options)
        after = self._mark()
        operands = dense_parts([*arguments, *options.values()])
        name = operation.overloadpacket.__name__
        flops = products_of(operation, arguments, options, outcome)
        moved = sum(t.numel() * t.element_size() for t in (*operands, *dense_parts([outcome])))
        self._seen.append((name, _largest(operands), moved, flops, before, after))
        return outcome

    def _mark(self) -> Any:
        if self._place.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _ms(self, before: Any, after: Any) -> float:
        if self._place.type != "cuda":
            return float(1e3 * (after - before))
        return float(before.elapsed_time(after))

    def rows(self) -> list[OperationCost]:
        """One for each operation and its operands' shapes."""
        if self._place.type == "cuda":
            torch.cuda.synchronize(self._place)
        found: dict[tuple[str, tuple[tuple[int, ...], ...]], OperationCost] = {}
        for name, shapes, moved, flops, before, after in self._seen:
            known = found.get((name, shapes))
            found[name, shapes] = OperationCost(
                name=name,
                shapes=shapes,
                calls=1 + (known.calls if known else 0),
                time_ms=self._ms(before, after) + (known.time_ms if known else 0.0),
                moved_bytes=moved + (known.moved_bytes if known else 0),
                flops=flops + (known.flops if known else 0),
            )
        return list(found.values())


def _largest(operands: list[Tensor]) -> tuple[tuple[int, ...], ...]:
    """Shapes of the two largest operands, in the order of the arguments."""
    ranked = sorted(range(len(operands)), key=lambda at: -operands[at].numel())[:2]
    return tuple(tuple(operands[at].shape) for at in sorted(ranked))
