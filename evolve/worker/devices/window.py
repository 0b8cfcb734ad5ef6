"""How one block of calls is timed on a device: before, inside and after the window."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from torch import Tensor

from evolve.core.evaluation import Status
from evolve.worker.base.faults import CandidateFault
from evolve.worker.ipc.messages import Done, TensorAt
from evolve.worker.ipc.tensor_buffer import span

if TYPE_CHECKING:
    from evolve.worker.processes.runner_process import RunnerProcess
    from evolve.worker.session.prepared_task import PreparedCase

SLOWEST_S = 60.0
Layout = tuple[TensorAt, ...]


@dataclass(slots=True)
class Block:
    """One timed block of calls, in seconds.

    `run` is wall time, taken outside; `inside` the same as the process tells it; `samples` outputs
    by call; `late` processor time used after the run, if the device does not exclude that; `seen`
    the code at work, if its stack was sampled (`stack_sampling`); `idle` the times of as many
    blocks without calls right after it as requested.
    """

    run: float
    inside: float
    number: int
    samples: dict[int, list[Tensor]]
    late: float = 0.0
    seen: str = ""
    idle: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedCase:
    """A case to be timed: calls per block, and the layout of each side's outputs.

    `blocks`: of each side in a round, and of no calls. `recorded`: its calls are also to be timed
    as a CUDA graph. `wanted`: calls that a block would have, were no side too slow for that;
    `unshortened_s` the reference's time for them, in seconds. `drawn`: a block and a call of it
    that are judged in this round, and maybe in no other. `stack_samples`: blocks of a round that
    show whose code the candidate's process executes (`stack_sampling`). `one_by_one`: calls of a
    block are so short that they are given to the process one by one. `limit_s`: for a block.
    `on_host`: outputs that are judged wait there, page-locked: beside opponents a GPU may have no
    room for such large ones.
    """

    warm: "PreparedCase"
    calls: int
    layouts: Mapping[str, Layout]
    blocks: int
    recorded: bool = False
    wanted: int = 0
    unshortened_s: float = 0.0
    drawn: tuple[int, int] | None = None
    stack_samples: int = 0
    one_by_one: bool = False
    limit_s: float = SLOWEST_S
    on_host: bool = False

    def sampled(self, number: int) -> tuple[int, ...]:
        """The calls of a block whose outputs are looked at; the first of them may be judged."""
        usual = self.warm.usually_sampled(number, self.calls)
        if self.drawn is None or number != self.drawn[0]:
            return usual
        call = self.drawn[1]
        return (call, *(other for other in usual if other != call))[: len(usual)]

    def judged(self, number: int) -> tuple[int, ...]:
        """Those that are judged."""
        if self.drawn is not None and number == self.drawn[0]:
            return (self.drawn[1],)
        return self.warm.usually_judged(number, self.calls)


class Window(Protocol):
    """The device's way to time the blocks of one case in one round.

    Attributes:
        holds_back: Whether it can hold inputs back (`pause_s`).
    """

    holds_back: bool

    def warm_up(
        self, process: "RunnerProcess", case: TimedCase, layout: Layout, working_set: int
    ) -> None:
        """Bring a fresh process into the state in which it is timed."""
        ...

    def run(
        self,
        process: "RunnerProcess",
        case: TimedCase,
        layout: Layout,
        number: int,
        recorded: bool = False,
        sample_after_s: float = 0.0,
        idles: int = 0,
        is_trusted: bool = False,
        pause_s: float = 0.0,
    ) -> Block:
        """Time block `number`, its calls one by one or (a GPU's only) recorded as a graph.

        With `sample_after_s` (the CPU's only) it is stopped once after so long: a stack sample. So
        many `idles` follow, blocks of no calls. `is_trusted`: `process` runs the judge's code, so
        no outputs need be taken; only there may be any `idles`. With `pause_s` calls that are
        judged get their inputs after a pause of so long, in which the call before has to be done.

        Raises:
            CandidateFault: the process fails in it.
        """
        ...

    def rouse(self, process: "RunnerProcess", case: TimedCase, layout: Layout) -> None:
        """At the beginning of a side's turn: bring its process back to where it is timed."""
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
        """After the last block: raises if a side worked while it was not its turn."""
        ...


def require_no_company(process: "RunnerProcess") -> None:
    """CandidateFault if something else of the candidate's is alive."""
    if process.has_other_processes():
        raise CandidateFault(
            Status.TIMING_UNBOUNDED,
            "processes that the candidate has started are alive while it is timed",
        )


def size_in_bytes(at: TensorAt) -> int:
    """From the first byte of a tensor to its last."""
    return span(at.shape, at.stride) * at.dtype.itemsize


def places_of(done: Done, call: int, calls: int, layout: Layout) -> tuple[int, ...]:
    """The addresses of one call's outputs."""
    width = len(layout)
    if len(done.addresses) != calls * width:
        raise CandidateFault(Status.WRONG_TREE, "a timed block gave another number of outputs")
    return done.addresses[call * width : (call + 1) * width]


def require_distinct(done: Done, calls: int, layout: Layout, kept: Sequence[int] = ()) -> None:
    """The outputs of different calls have to lie in different places, except those `kept`."""
    own = [at for at in range(len(layout)) if at not in kept]
    distinct = [
        {places[at] for at in own}
        for places in (places_of(done, call, calls, layout) for call in range(calls))
    ]
    filled = all(size_in_bytes(layout[at]) for at in own)
    if filled and len(set().union(*distinct)) < sum(map(len, distinct)):
        raise CandidateFault(Status.ALIASED, "outputs of different calls share memory")


def fault_of_change(
    done: Done, output: int, width: int, kept: Sequence[int], changed: str
) -> CandidateFault:
    """The fault of an output that changed after its call was said to be done.

    Args:
        done: Of the block.
        output: Place of the output among those of a call.
        width: Addresses of each call.
        kept: Places of outputs that may lie in memory which all calls share.
        changed: What is said unless all calls gave such memory, and wrote to it.
    """
    if output in kept and len(set(done.addresses[output::width])) == 1:
        return CandidateFault(
            Status.ALIASED,
            f"all calls return output {output} in one memory, and write to it: return the shared "
            "memory unchanged, or a new tensor in each call",
        )
    return CandidateFault(Status.WRONG_VALUE, changed)
