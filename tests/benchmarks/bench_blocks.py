"""Blocks that a round of a comparison on a GPU makes, and how often it takes `task_lock` for them.

    python -m tests.benchmarks.bench_blocks

Counted on the CPU, without processes: the judge's order of blocks and windows, for tasks of
`bench_gpu verdicts` with an H200's memory and tensors at 1/1024 of the size. All else that is kept
takes longer to make, as the expectations of many large tasks do.
"""

import contextlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch

from evolve.worker.base.faults import CANDIDATE, EAGER
from evolve.worker.devices.cpu.device import CpuDevice
from evolve.worker.devices.cuda.device import CudaDevice
from evolve.worker.devices.cuda.window import CALLS, NOTHING, CudaWindow
from evolve.worker.devices.window import Block, Layout, TimedCase
from evolve.worker.session import cache
from evolve.worker.session.prepared_task import PreparedCase, PreparedTasks
from evolve.worker.timing.interleaved_blocks import measure_round
from tests.benchmarks.gpu_verdicts import task_named

SMALLER = 1024
WARM_BYTES = int(17.4 * 2**30) // SMALLER
# Of an H200: the task, calls in a block of its, and scored blocks of a side.
TASKS = (("relu2", 16, 24), ("gelu", 8, 24), ("softmax-long", 4, 24), ("mish-large", 1, 12),
         ("product-small", 48, 24))  # fmt: skip
KEPT = 400  # other things, in all as many bytes as may be kept
EXPECTING_S = 0.01
ROUNDS = 8


class Counting:
    """In the place of `task_lock`, of one thread."""

    def __init__(self) -> None:
        self.taken = self._depth = 0

    def __enter__(self) -> None:
        self.taken += not self._depth
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1


class LikeGpu(CpuDevice):
    """Blocks as on an H200; nothing is run."""

    block_pool, turn_blocks = CudaDevice.block_pool, CudaDevice.turn_blocks
    judged_s, stack_samples = CudaDevice.judged_s, CudaDevice.stack_samples
    gives_calls = CudaDevice.gives_calls

    def __init__(self) -> None:
        super().__init__()
        self.warm_bytes = WARM_BYTES
        self.seen: Counter[str] = Counter()

    def window(self) -> CudaWindow:
        return Unmeasured(self)  # type: ignore[arg-type]


class Unmeasured(CudaWindow):
    """Asks for the blocks of its windows, and that is all."""

    _device: Any

    def _block(
        self, process: Any, case: TimedCase, layout: Layout, number: int, kind: str,
        is_trusted: bool, pause_s: float = 0.0,
    ) -> Block:  # fmt: skip
        if kind == CALLS:
            self._device.seen["calls"] += case.calls
        case.warm.block(number, case.calls)
        if pause_s and case.warm.late_calls(number, case.calls):
            case.warm.block(case.warm.decoys, case.calls)
        return Block(0.1 if kind == NOTHING else 1.0, 1.0, number, {})

    @contextlib.contextmanager
    def alone(self, side: str, processes: Mapping[str, Any]) -> Iterator[None]:
        self._device.seen["turns"] += 1
        yield


def main() -> None:
    torch.set_num_threads(1)
    device, lock = LikeGpu(), Counting()
    make = PreparedCase._make_block

    def noted(case: PreparedCase, number: int, calls: int) -> Any:
        device.seen["made"] += 1
        return make(case, number, calls)

    PreparedCase._make_block = noted  # type: ignore[method-assign]
    cache.task_lock = lock  # type: ignore[assignment]
    for name, calls, blocks in TASKS:
        case = prepared(name, device)
        timed = TimedCase(warm=case, calls=calls, layouts={CANDIDATE: (), EAGER: ()}, blocks=blocks)
        before: Counter[str] = Counter()
        within: Counter[str] = Counter()
        for number in range(ROUNDS + 1):
            for found, work in ((before, prepare), (within, measure)):
                device.seen.clear()
                lock.taken = 0
                work(device, timed)
                if number:  # the first begins with nothing
                    found.update(device.seen, taken=lock.taken)
        told = [f"{within[key] / ROUNDS:.1f} {key}" for key in ("taken", "made", "turns", "calls")]
        print(f"{name}: {', '.join(told)}; before it {before['made'] / ROUNDS:.1f} made")


def prepare(device: LikeGpu, timed: TimedCase) -> None:
    timed.warm.prepare_blocks(timed.calls)


def measure(device: LikeGpu, timed: TimedCase) -> None:
    measure_round(device, {CANDIDATE: None, EAGER: None}, [timed])  # type: ignore[dict-item]


def prepared(name: str, device: LikeGpu) -> PreparedCase:
    tasks, task = PreparedTasks(device), task_named(name)
    smaller = re.sub(r"\b\d{4,}\b", lambda size: str(int(size[0]) // 32), task.source)
    (case,) = tasks.get(replace(task, source=smaller)).cases
    case._expecting_s = EXPECTING_S
    for number in range(KEPT):
        tasks._store.get(("other", number), object, lambda _: WARM_BYTES // KEPT)
    for held in tasks._store._held.values():
        held.seconds = 1.0
    return case


if __name__ == "__main__":
    main()
