"""Three states of a run, to look at prompts by: rmsnorm on a CPU, two tasks on an H100.

The programs are ones that the project makes or ships; times and the judge's words are like those of
real verdicts on such devices.
"""

from dataclasses import replace

from evolve.core.evaluation import CaseResult, Evaluation, Fidelity, Label, Stage, Status
from evolve.core.measurement import Interval, Ratio
from evolve.core.program import Program
from evolve.core.task import ONLY_CASE, Task
from evolve.tasks.registry import find_task
from operators.local.template_seed import TemplateSeed
from tests.operators import proposing
from tests.operators.history import History
from tests.operators.output_code import compiled, matrix, relu, room

H100 = {
    "device_class": "cuda: NVIDIA H100 80GB HBM3",
    "device": "NVIDIA H100 80GB HBM3",
    "capability": "9.0",
    "multiprocessors": "132",
    "shared_memory_bytes": "232448",
    "warp_size": "32",
    "memory_bytes": "85017493504",
    "eager_convolutions": "tf32",
    "cuda": "13.0",
    "driver": "580.159.04",
    "cores": "16",
    "clock_waits": "by spinning",
    "python": "3.12.3",
    "torch": "2.11.0",
    "triton": "3.6.0",
    "compiler": "g++ 13.3.0",
    "os": "Linux-6.18",
    "timing": "calls",
    "half_width": "0.01",
}
CPU = {
    "device_class": "cpu: Intel Xeon, 2 cores",
    "cpu": "Intel Xeon",
    "cores": "2",
    "compiler": "g++ 12.2.0",
    "python": "3.11.7",
    "torch": "2.13.0",
    "half_width": "0.03",
}

MATMUL_RELU = """\
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.gemm = nn.Linear(in_features, out_features, bias=False)

    def forward(self, x):
        return torch.relu(self.gemm(x))


batch_size = 1024
in_features = 8192
out_features = 8192


def get_inputs():
    return [torch.rand(batch_size, in_features)]


def get_init_inputs():
    return [in_features, out_features]
"""

SOFTMAX = """\
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return torch.softmax(x, dim=1)


batch_size = 4096
dim = 16384


def get_inputs():
    return [torch.rand(batch_size, dim)]


def get_init_inputs():
    return []
"""

SOFTMAX_KERNEL = '''\
"""Softmax over rows: one program for each row, read twice."""

import torch
import triton
import triton.language as tl
from torch import nn

BLOCK = 2048
WARPS = 8
TUNABLE = {"BLOCK": (1024, 2048, 4096), "WARPS": (4, 8, 16)}


@triton.jit
def softmax_rows(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * n
    columns = tl.arange(0, BLOCK)
    top = tl.full((BLOCK,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        inside = start + columns < n
        x = tl.load(x_ptr + row + start + columns, mask=inside, other=float("-inf"))
        higher = tl.maximum(top, x)
        total = total * tl.exp(top - higher) + tl.exp(x - higher)
        top = higher
    highest = tl.max(top, 0)
    whole = tl.sum(total * tl.exp(top - highest), 0)
    for start in range(0, n, BLOCK):
        inside = start + columns < n
        x = tl.load(x_ptr + row + start + columns, mask=inside, other=0.0)
        tl.store(y_ptr + row + start + columns, tl.exp(x - highest) / whole, mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        softmax_rows[(x.shape[0],)](x, y, x.shape[1], BLOCK=BLOCK, num_warps=WARPS)
        return y
'''


def verdict(
    time_ms: float,
    eager_ms: float,
    share: float,
    bound: str,
    words: str,
    *,
    custom: bool = True,
    case: str = ONLY_CASE,
    labels: tuple[Label, ...] = (),
    **descriptors: float | str,
) -> Evaluation:
    """A correct program's verdict as the judge gives it."""
    times = {"candidate": _around(time_ms), "eager": _around(eager_ms)}
    ratio = Ratio(eager_ms / time_ms, 0.99 * eager_ms / time_ms, 1.01 * eager_ms / time_ms)
    row = CaseResult(
        name=case, weight=1.0, timed=True, passed=True, times_ms=times, ratios={"eager": ratio},
        speed_of_light=share, bound=bound,
    )  # fmt: skip
    head = (
        f"case {case}: {ratio.value:.3f} times as fast as eager [{ratio.low:.3f}, "
        f"{ratio.high:.3f}], {time_ms:.4g} ms [{0.99 * time_ms:.4g}, {1.01 * time_ms:.4g}] against "
        f"{eager_ms:.4g} ms; {share:.0%} of speed of light ({bound})"
    )
    return Evaluation(
        status=Status.CORRECT, stage=Stage.TIMING, fidelity=Fidelity.SEARCH,
        task_revision="0" * 64, device_class="", evaluator_version="29",
        ratios={"eager": ratio}, cases=(row,), custom=custom, labels=labels,
        feedback=f"{head}\n{words}", descriptors={"descriptor_version": 1.0, **descriptors},
    )  # fmt: skip


def _around(value: float) -> Interval:
    return Interval(value, 0.99 * value, 1.01 * value)


def history_of(task: Task) -> History:
    """An empty run of the task."""
    history = History()
    history.task = task
    return history


def rmsnorm_cpu() -> History:
    """The seeds that ship, judged on two cores; an edit that was no faster, one that was wrong."""
    history = history_of(find_task("rmsnorm", size="cpu"))
    words = (
        "  memory-bound: 71% of this device's memory rate (17.8 GB/s); at that ceiling a call "
        "would take 1.33 ms instead of 1.88 ms\nkernel 'rmsnorm': 100% of the time"
    )
    for number, source in enumerate(history.task.seeds):
        found = verdict(
            1.88 + 0.4 * number, 9.1, 0.71 / (1 + number), "memory", words, case="timed",
            language="cpp", parallelism="threads+simd", error=0.21,
        )  # fmt: skip
        plant(history, source, found, note=f"seed {number + 1}")
    _tried(history, history.task.seeds[0])
    return history


def matmul_relu_h100() -> History:
    """Two template seeds and a failure."""
    n, relu_at = 8, "extern_kernels.mm(a, b, out=buf0)"
    lines = [
        "with torch.cuda._DeviceGuard(0):",
        "    " + room("buf0", matrix(n, 9)),
        f"    {relu_at}",
    ]
    made = compiled({"a": matrix(n, 7), "b": matrix(7, 9)}, lines, "buf0")
    (case,) = made.cases
    code = case.code.replace(
        "out=buf0)", "out=buf0)\n        triton_poi_fused_relu_0.run(buf0, 72, stream=s)"
    )
    made = replace(made, cases=(replace(case, code=relu(72) + code),))
    task = Task(name="2_99_matmul_relu", source=MATMUL_RELU, size="gpu", compiled=(made,),
                category="level2")  # fmt: skip
    history = history_of(task)
    programs = [
        proposal.program.source
        for proposal in proposing.proposals(TemplateSeed(), task, **H100)
        if hasattr(proposal, "program")
    ]
    words = (
        "  neither memory- nor compute-bound (latency, launches, or too little parallel work): 4% "
        "of this device's memory rate (113 GB/s) and 41% of its arithmetic (98.6 TFLOP/s); at that "
        "ceiling a call would take 0.571 ms instead of 1.39 ms\n"
        "kernel 'matmul_kernel': grid 1024, 52% of the time, 723 us, operands of 1.68 GB "
        "(2324 GB/s), 168 registers, 98304 bytes of shared memory, occupancy 25%, 8 warps, "
        "3 stages\n"
        "kernel 'pack': grid 4096, 31% of the time, 431 us, operands of 0.9 GB (2088 GB/s), "
        "32 registers, 0 bytes of shared memory, occupancy 88%, 4 warps, 3 stages\n"
        "kernel 'pack': grid 4096, 15% of the time, 209 us, operands of 0.5 GB (2392 GB/s), "
        "32 registers, 0 bytes of shared memory, occupancy 88%, 4 warps, 3 stages\n"
        "kernel 'relu': grid 64, 2% of the time, 27 us, operands of 67.1 MB (2485 GB/s), "
        "18 registers, 4 warps, 3 stages\n"
        "all launches together: operands of 3.15 GB, each once, at 2266 GB/s, 78% of this "
        "device's memory rate"
    )
    for number, source in enumerate(programs):
        time_ms = 1.39 + 0.3 * number
        found = verdict(
            time_ms, 2.71, 0.571 / time_ms, "bf16x3 arithmetic", words, language="triton",
            precision_path="half", compute_pattern="tiled", kernels=3.0, error=0.2288,
            registers=168.0,
        )  # fmt: skip
        plant(history, source, found, note=f"template {number + 1}")
    _tried(history, programs[0])
    return history


def softmax_h100() -> History:
    """One program that divides each element, and one of smaller blocks that multiplies."""
    history = history_of(Task(name="1_23_softmax", source=SOFTMAX, size="gpu", category="level1"))
    words = (
        "  memory-bound: 64% of this device's memory rate (1.84e+03 GB/s); at that ceiling a call "
        "would take 187 us instead of 292 us\nkernel 'softmax_rows': 100% of the time, 32 "
        "registers, 32 bytes of shared memory, occupancy 100%"
    )
    for number, block in enumerate((2048, 1024)):
        source = SOFTMAX_KERNEL.replace("BLOCK = 2048", f"BLOCK = {block}", 1)
        if number:
            source = source.replace("- highest) / whole", "- highest) * (1.0 / whole)")
        found = verdict(
            0.292 + 0.05 * number, 0.293, 0.64 / (1 + number / 6), "memory", words,
            language="triton", compute_pattern="online", kernels=1.0, error=0.104, registers=32.0,
        )  # fmt: skip
        plant(history, source, found, note=f"block {block}")
    _tried(history, SOFTMAX_KERNEL)
    return history


def plant(history: History, source: str, found: Evaluation, note: str) -> None:
    elite = history.judge(Program(source), operator="template_seed", note=note, verdict=found)
    if elite is not None:
        history._elites[elite.program] = elite


def _tried(history: History, parent: str) -> None:
    """A slower child, one that is wrong, one of which nothing came."""
    digest = Program(parent).digest
    history.add(
        parent + "\n# wrong\n", [digest], operator="edit", status=Status.WRONG_VALUE,
        note="rows in halves", feedback="wrong only in the tail: columns 196608 to 197632 "
        + " ".join(f"row {n}: 196608.{n} for 196609.{n}," for n in range(40)),
    )  # fmt: skip
    history.fail("no_code: no code block", [digest], operator="edit")


STATES = {
    "rmsnorm, CPU": (rmsnorm_cpu, CPU),
    "matmul+relu, H100": (matmul_relu_h100, H100),
    "softmax, H100": (softmax_h100, H100),
}
