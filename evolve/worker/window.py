"""How one block of calls is timed on a device: what happens before, inside and after the window."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from torch import Tensor

from evolve.core.evaluation import Status
from evolve.worker.faults import CandidateFault
from evolve.worker.slab import span
from evolve.worker.wire import Done, TensorAt

if TYPE_CHECKING:
    from evolve.worker.process import RunnerProcess
    from evolve.worker.warm import WarmCase

SLOWEST_S = 60.0
Layout = tuple[TensorAt, ...]


@dataclass(slots=True)
class Block:
    """One timed block of calls, in seconds.

    `run` is wall time, taken outside; `inside` the same as the process tells it; `samples` outputs
    by call; `apart` what the process used before and after its run, as the device counts it.
    """

    run: float
    inside: float
    number: int
    samples: dict[int, list[Tensor]]
    apart: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedCase:
    """A case to be timed: calls per block, and the layout of each side's outputs.

    `blocks`: of each side in a sitting. `recorded`: its calls are also to be timed as a CUDA graph.
    `unshortened_s`: seconds of calls that a block of the reference would have, were no side too
    slow for that.
    """

    warm: "WarmCase"
    calls: int
    layouts: Mapping[str, Layout]
    blocks: int
    recorded: bool = False
    unshortened_s: float = 0.0


class Window(Protocol):
    """The device's way to time the blocks of one case in one sitting."""

    def warm_up(
        self, process: "RunnerProcess", case: TimedCase, layout: Layout, working_set: int
    ) -> None:
        """Bring a fresh process into the state in which it is timed."""
        ...

    def idle(self, process: "RunnerProcess", case: TimedCase, layout: Layout) -> float:
        """Seconds that a block of no calls takes; `process` runs trusted code."""
        ...

    def run(
        self,
        process: "RunnerProcess",
        case: TimedCase,
        layout: Layout,
        number: int,
        recorded: bool = False,
    ) -> Block:
        """Time block `number`, its calls one by one or (a GPU's only) recorded as a graph.

        Raises:
            CandidateFault: the process fails in it.
        """
        ...

    def charges(self, blocks: list[Block], reference: list[Block]) -> list[float]:
        """Seconds to add to each block for work done outside of its window."""
        ...

    def alone(
        self, side: str, processes: "Mapping[str, RunnerProcess]"
    ) -> AbstractContextManager[None]:
        """Inside, only this side works: the others are watched, or kept from it."""
        ...

    def settle(self) -> None:
        """After the last block: raises where a side worked while it was not its turn."""
        ...


def size_in_bytes(at: TensorAt) -> int:
    """From the first byte of a tensor to its last."""
    return span(at.shape, at.stride) * at.dtype.itemsize


def places_of(done: Done, call: int, calls: int, layout: Layout) -> tuple[int, ...]:
    """The addresses of one call's outputs."""
    width = len(layout)
    if len(done.addresses) != calls * width:
        raise CandidateFault(Status.WRONG_TREE, "a timed block gave another number of outputs")
    return done.addresses[call * width : (call + 1) * width]


def require_distinct(done: Done, calls: int, layout: Layout) -> None:
    """The outputs of different calls have to lie in different places."""
    distinct = [set(places_of(done, call, calls, layout)) for call in range(calls)]
    if all(map(size_in_bytes, layout)) and len(set().union(*distinct)) < sum(map(len, distinct)):
        raise CandidateFault(Status.ALIASED, "outputs of different calls share memory")
