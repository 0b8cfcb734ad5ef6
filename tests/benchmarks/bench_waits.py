"""Operations, answers and time of what a judge works out under the lock of all its evaluations.

    python -m tests.benchmarks.bench_waits

Counted on the CPU, for three tasks of `bench_gpu verdicts` with small tensors. On a GPU each
operation but a view is a launch, or one for each 64 tensors that are copied together, and for each
answer the GPU is waited for.
"""

import time
from collections.abc import Callable
from dataclasses import replace

import torch

from evolve.worker.devices.cpu.device import CpuDevice
from evolve.worker.session.prepared_task import PreparedCase, PreparedTasks
from tests.benchmarks.gpu_verdicts import task_named
from tests.worker.asking import asked

NAMES = ("relu2", "product-small", "scaled-rows")
SIZES = ("16384", "8192", "4096", "1024")  # of tensors, which become 64
CALLS = 48
REPEATS = 20


def main() -> None:
    torch.set_num_threads(1)
    tasks = PreparedTasks(CpuDevice())
    for name in NAMES:
        task = task_named(name)
        source = task.source
        for size in SIZES:
            source = source.replace(size, "64")
        (case,) = tasks.get(replace(task, source=source)).cases
        print(name)
        for what, step in steps(case, tasks).items():
            tell(what, step)


def steps(case: PreparedCase, tasks: PreparedTasks) -> dict[str, Callable[[int], object]]:
    """What is asked for most, each with a number that it was not asked for with before."""
    family, drawn = case.families[-1], case.check("task", 0)

    def block(number: int) -> object:
        tasks.let_go()
        return case.block(number % 20, CALLS)

    def sample(number: int) -> object:
        tasks.let_go()
        return case.block_check(number % 20, 5, CALLS)

    return {
        "inputs of the task's own": lambda number: case.inputs("task", number),
        f"inputs of {family}": lambda number: case.inputs(family, number),
        "expected": lambda _: case.case.expected(case._model, drawn.tree()),
        f"a block of {CALLS} calls": block,
        "a call of such a block, expected": sample,
    }


def tell(what: str, step: Callable[[int], object]) -> None:
    step(1)
    with torch.no_grad(), asked() as found:
        step(2)
    taken = []
    for number in range(3, 3 + REPEATS):
        start = time.perf_counter()
        step(number)
        taken.append(time.perf_counter() - start)
    print(f"  {what}: {found.names.total()} operations, {found.answers} answers, "
          f"{1e3 * min(taken):.2f} ms")  # fmt: skip


if __name__ == "__main__":
    main()
