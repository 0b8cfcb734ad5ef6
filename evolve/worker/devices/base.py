"""The judge's interface to the device under test; the rest of the worker is the same for every one.

A device class knows how inputs get into a runner, how outputs get out of it, and how a block of
calls is timed from outside. Numbers are in seconds and bytes.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

import torch

from evolve.core.devices import CPU, CUDA, DeviceKind, device_kind
from evolve.core.errors import UsageError
from evolve.worker.devices.platforms import torch_platform
from evolve.worker.ipc.tensor_buffer import Shared, TensorBuffer
from evolve.worker.sandbox.mappings import Mapping

if TYPE_CHECKING:
    from evolve.worker.devices.window import Window
    from evolve.worker.processes.runner_process import RunnerProcess


class IncompleteDevice(UsageError):
    """A device lacks members of the protocol `Device`, as one for another release may."""


class Device(Protocol):
    """One device.

    Attributes:
        name: Of the lock that processes of the host share.
        place: Of the judge's tensors.
        half_width: Relative half-width of an interval at which timing may stop.
        spread: Standard deviation of a process pair's log ratio where nothing differs but the
            processes, by tests of programs against themselves.
        block_s: How long a block is to last.
        calls: Fewest and most calls in a block.
        blocks: Timed blocks of each side in one round.
        turn_blocks: Of them, one after the other in a turn; a side may have two in a row.
        block_pool: How many different ones there are for a round to draw from.
        judged_s: To compute the expected outputs of blocks whose outputs are all judged.
        has_profiler: Whether a runner can say which kernels of the device ran (`profiling`).
        has_memory_mark: Whether the kernel marks the most memory that a runner's tensors have taken
            (`scratch`).
        timing_slots: Evaluations that may be timed in turns, from the first round to the last.
        rounds: That each of them makes ready together, to be timed in one turn: who wants to have
            the device alone waits for all that others do there. Their processes hold memory.
        preforked: Processes to have ready ahead of time.
        ends_alone: Whether the end of a process disturbs timing.
        references: Processes of references to keep for other comparisons.
        compiles_aside: Whether work on the CPU's cores leaves times as they are.
        gives_calls: Whether calls of a block that are launch-bound are given to a process one by
            one, so that none can be merged.
        stack_samples: Blocks of a round that show whose code the candidate's process executes; none
            if that code only starts kernels of the device.
        memory: That a runner's processes may hold on the host.
        limit_address_space: Whether a limit on address space can hold a runner.
        nodes: Paths below /dev that runners need.
        other_nodes: Paths below /dev of the host's other devices, if the device's runtime fails
            when it sees a node that it cannot open (ROCm's does); else empty. A runner with a file
            system of its own does not have these paths; any other runner may open them.
        readable: Further paths that they have to see.
        warm_bytes: For inputs and expectations that stay from candidate to candidate, and as much
            for references that do.
        block_bytes: For the inputs of a block, and for its outputs.
        few_blocks: Instead of `blocks`, if each is long: the window's cost is negligible then, and
            processes differ by more.
        reward_bytes: Instead of `block_bytes`, for a reward.
        pool_bytes: For the tensors of a runner, unless it asks for more.
        process_bytes: That a process takes beside its tensors.
        expecting_bytes: For the computation of expected outputs, one at a time.
        room: Bytes that evaluations under way may take together (`memory_model`), beside warm
            tasks; 0 for no limit.
        total_bytes: Memory of the device that was free when the judge began; 0 if tasks are not
            refused for it.
        variables: Set in every process that runs candidates.
        capability: Of a GPU, 90 for 9.0; else 0.
    """

    name: str
    place: torch.device
    half_width: float
    spread: float
    block_s: float
    calls: tuple[int, int]
    blocks: int
    turn_blocks: int
    few_blocks: int
    block_pool: int
    judged_s: float
    has_profiler: bool
    has_memory_mark: bool
    timing_slots: int
    rounds: int
    preforked: int
    ends_alone: bool
    references: int
    compiles_aside: bool
    gives_calls: bool
    stack_samples: int
    memory: int
    limit_address_space: bool
    nodes: tuple[str, ...]
    other_nodes: tuple[str, ...]
    readable: tuple[str, ...]
    warm_bytes: int
    block_bytes: int
    reward_bytes: int
    pool_bytes: int
    process_bytes: int
    expecting_bytes: int
    room: int
    total_bytes: int
    variables: dict[str, str]
    capability: int

    @property
    def cores(self) -> int: ...

    @property
    def device_class(self) -> str:
        """Times of one class are comparable."""
        ...

    @property
    def kind(self) -> DeviceKind:
        """The kind that the class is of."""
        ...

    @property
    def slots(self) -> int:
        """Evaluations under way at once."""
        ...

    def describe(self) -> dict[str, str]:
        """Facts of the hardware that a measurement depends on."""
        ...

    def make_buffer(self, trees: list[Any]) -> TensorBuffer:
        """The trees' tensors, taken out of the list, in one piece of memory of this process."""
        ...

    def lock_pages(self, sizes: list[int]) -> bool:
        """Have memory of the host at hand for outputs of so many bytes; whether there is any."""
        ...

    def share(
        self, process: "RunnerProcess", buffer: TensorBuffer
    ) -> AbstractContextManager[Shared]:
        """The buffer for one runner, which is connected; valid inside."""
        ...

    def prepare(self, process: "RunnerProcess", all_queues: bool = False) -> None:
        """Slow preparations of a fresh runner that need no candidate.

        Args:
            process: The runner.
            all_queues: Whether it opens all queues of the device, or one (`hw_queues`).
        """
        ...

    def connect(self, process: "RunnerProcess", tensors: int = 0) -> None:
        """Give a prepared runner its arguments, and check that its memory can be read.

        Args:
            process: The runner.
            tensors: Bytes that its tensors may take at once, if that is more than usual.

        Raises:
            OSError: it cannot.
        """
        ...

    def read(
        self,
        process: "RunnerProcess",
        addresses: Sequence[int],
        into: Sequence[torch.Tensor],
        aliased: Sequence[int] = (),
    ) -> None:
        """Copy bytes of a runner's outputs into `into`, from each address as many as it is to fill.

        Those with a number in `aliased` may lie in its inputs.

        Raises:
            OSError: there is no such memory.
        """
        ...

    def inputs_in(self, process: "RunnerProcess", shared: Shared) -> list[Mapping]:
        """Where the runner has its inputs."""
        ...

    def inputs_changed(self, process: "RunnerProcess", shared: Shared, address: int) -> bool:
        """Whether the runner has written to its inputs, which it says are at `address`."""
        ...

    def inputs_now(self, process: "RunnerProcess", shared: Shared, address: int) -> torch.Tensor:
        """A copy of the bytes of a runner's inputs as they are now; it says they are at `address`.

        Raises:
            CandidateFault: they are not there.
        """
        ...

    def require_modest(self, process: "RunnerProcess") -> None:
        """CandidateFault if it uses far more memory of the device than it was given."""
        ...

    def window(self) -> "Window":
        """How blocks are timed."""
        ...

    def require_health(self) -> None:
        """Ask the device for a known answer, after a candidate has ended badly.

        Raises:
            EvaluatorUnavailable: it gives another one, or none.
        """
        ...

    def release(self) -> None:
        """Give memory back to the driver that is kept for runners to come."""
        ...

    def close(self) -> None:
        """Leave nothing behind."""
        ...

    def is_idle(self) -> bool:
        """Whether nothing runs on it, work of processes that are stopped included."""
        ...

    def others(self) -> frozenset[int]:
        """Process ids that the device works for, as far as it tells; a new one is a stranger."""
        ...


def open_device(kind: str) -> Device:
    """The device of a kind (`evolve.core.devices`), or `auto` (NVIDIA's GPU if torch sees one).

    Raises:
        UsageError: there is no such device; the message lists torch's devices.
        IncompleteDevice: its class lacks members of `Device`.
        EvaluatorUnavailable: something that its service needs is missing.
    """
    if kind == "auto":
        is_nvidias = torch_platform() == CUDA.name and torch.cuda.is_available()
        kind = CUDA.name if is_nvidias else CPU.name
    module, _, name = device_kind(kind).factory.partition(":")
    device: Device = getattr(import_module(module), name)()
    _require_complete(kind, device)
    return device


def _require_complete(kind: str, device: Device) -> None:
    members = [name for name in vars(Device) if not name.startswith("_")]
    missing = [name for name in (*Device.__annotations__, *members) if not hasattr(device, name)]
    if not missing:
        return
    if "close" not in missing:
        device.close()
    raise IncompleteDevice(
        f"device={kind}: {type(device).__module__}.{type(device).__name__} lacks "
        f"{', '.join(missing)}. Update its package to the protocol Device of "
        "evolve/worker/devices/base.py, or use device=cpu."
    )
