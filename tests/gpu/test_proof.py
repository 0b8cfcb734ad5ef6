"""What is known of a candidate's kernels, its baselines and the device's limits, on a GPU.

Invariants:
- the candidate's own kernels are told from a vendor's, in whatever way they were built;
- a library that does the main work makes no custom outcome, however it is called;
- shares of speed of light lie where the hardware says that they can.
"""

from dataclasses import replace

import pytest
import torch

from evolve.core.evaluation import Status
from evolve.core.task import Task
from evolve.worker.timing.reference_cost import count_cost
from tests.gpu.programs import RIGHT, TASK, torch_program

N = 2048

MATMUL = Task(
    name="matmul",
    size="gpu",
    accumulation="tf32",
    source=f"""
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, a, b):
        return a @ b

def get_inputs():
    return [torch.randn({N}, {N}), torch.randn({N}, {N})]

def get_init_inputs():
    return []
""",
)

CUDA = """
__global__ void gate_kernel(const float* in, float* out, int64_t n) {
  const int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  if (i < n) out[i] = 2 * (in[i] > 0 ? in[i] : 0.0f) + in[i];
}
"""

TORCH_EXTENSION = f'''
import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CUDA = """{CUDA}
torch::Tensor gate(torch::Tensor x) {{
  auto y = torch::empty_like(x);
  const int64_t n = x.numel();
  gate_kernel<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
  return y;
}}
"""
kernels = load_inline("gate", cpp_sources="torch::Tensor gate(torch::Tensor x);",
                      cuda_sources=CUDA, functions=["gate"])

class ModelNew(nn.Module):
    def forward(self, x):
        return kernels.gate(x)
'''

TRITON_MATMUL = """
import torch
import triton
import triton.language as tl
from torch import nn

@triton.jit
def product(a, b, c, N: tl.constexpr, B: tl.constexpr, K: tl.constexpr):
    rows = tl.program_id(0) * B + tl.arange(0, B)[:, None]
    columns = tl.program_id(1) * B + tl.arange(0, B)[None, :]
    sums = tl.zeros((B, B), tl.float32)
    for k in range(0, N, K):
        inner = k + tl.arange(0, K)
        left = tl.load(a + rows * N + inner[None, :])
        right = tl.load(b + inner[:, None] * N + columns)
        sums = tl.dot(left, right, sums, input_precision="tf32")
    tl.store(c + rows * N + columns, sums)

class ModelNew(nn.Module):
    def forward(self, a, b):
        c = torch.empty_like(a)
        n = a.shape[0]
        product[(n // 64, n // 64)](a, b, c, N=n, B=64, K=32)
        return c
"""

# The product by cuBLAS, called by its address; a kernel of one's own only copies it.
BORROWED = """
import ctypes
import torch
import triton
import triton.language as tl
from torch import nn

cublas = next(ctypes.CDLL(line.split()[-1]) for line in open("/proc/self/maps")
              if "libcublas.so" in line)
handle = ctypes.c_void_p()
one, zero = ctypes.c_float(1), ctypes.c_float(0)

@triton.jit
def copy(x, y, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + at, tl.load(x + at, mask=at < n), mask=at < n)

class ModelNew(nn.Module):
    def forward(self, a, b):
        if not handle:
            cublas.cublasCreate_v2(ctypes.byref(handle))
        n, c, d = a.shape[0], torch.empty_like(a), torch.empty_like(a)
        p = [ctypes.c_void_p(t.data_ptr()) for t in (a, b, c)]
        cublas.cublasSgemm_v2(handle, 0, 0, n, n, n, ctypes.byref(one), p[1], n, p[0], n,
                              ctypes.byref(zero), p[2], n)
        copy[(triton.cdiv(c.numel(), 1024),)](c, d, c.numel(), B=1024)
        return d
"""


# The work by torch within a graph, where no operation shows; a kernel of one's own copies it.
IN_A_GRAPH = """
import torch
import triton
import triton.language as tl
from torch import nn

@triton.jit
def copy(x, y, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + at, tl.load(x + at, mask=at < n), mask=at < n)

class ModelNew(nn.Module):
    graph = None

    def forward(self, x):
        if self.graph is None:
            self.x = x.clone()
            torch.relu(self.x) * 2 + self.x
            torch.cuda.synchronize()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.outcome = torch.relu(self.x) * 2 + self.x
        self.x.copy_(x)
        self.graph.replay()
        y = torch.empty_like(x)
        copy[(triton.cdiv(y.numel(), 1024),)](self.outcome, y, y.numel(), B=1024)
        return y
"""


def labels(verdict):
    return {label.name: label.evidence for label in verdict.labels}


def test_a_triton_kernel_is_the_candidates_own_and_near_the_memory_rate(worker):
    verdict = worker.evaluate(RIGHT, TASK, fidelity="reward")
    print(verdict.labels, verdict.descriptors, verdict.feedback, verdict.durations_s, sep="\n")
    assert verdict.custom
    assert verdict.descriptors["coverage"] > 0.95
    assert "(own)" in labels(verdict)["kernels"]
    (row,) = verdict.cases
    assert row.bound == "memory"
    assert 0.5 < row.speed_of_light < 1.05
    assert "registers" in verdict.feedback
    compiled = verdict.descriptors
    assert (compiled["tensor_cores"], compiled["spill_bytes"]) == ("no", 0)
    assert compiled["registers"] > 0
    assert 0 < compiled["global_share"] < 1


def test_an_extension_of_torch_is_custom_and_its_kernels_are_own(worker):
    verdict = worker.evaluate(TORCH_EXTENSION, TASK, fidelity="reward")
    print(verdict.labels, verdict.feedback, verdict.durations_s)
    assert verdict.status is Status.CORRECT, verdict.feedback
    assert verdict.custom
    assert verdict.descriptors["coverage"] > 0.95
    assert verdict.descriptors["registers"] > 0
    assert "tensor_cores" not in verdict.descriptors, "unknown, and not none"


def test_the_arithmetic_of_an_own_product_is_said(worker):
    verdict = worker.evaluate(TRITON_MATMUL, MATMUL, fidelity="reward")
    print(verdict.labels, verdict.feedback)
    assert verdict.status is Status.CORRECT, verdict.feedback
    assert labels(verdict)["effective_precision"].endswith("in tf32")
    assert verdict.descriptors["tensor_cores"] == "tf32"
    assert verdict.descriptors["matrix_share"] > 0
    assert verdict.descriptors["shared_bytes"] > 0
    (row,) = verdict.cases
    assert row.bound == "fp16 arithmetic"  # which has as many bits, and is quicker
    assert 0 < row.speed_of_light < 1


PARTIALS = """
import triton
import triton.language as tl
from torch import nn

@triton.jit
def partial_sums(x, parts, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n, other=0.0)
    tl.store(parts + tl.program_id(0), tl.sum(value * value, axis=0))

class ModelNew(nn.Module):
    def forward(self, x):
        count = triton.cdiv(x.numel(), 4096)
        parts = x.new_empty(count)
        partial_sums[(count,)](x, parts, x.numel(), BLOCK=4096)
        return parts.sum()
"""
ENERGY = replace(TASK, name="energy", source=TASK.source.replace("relu(x) * 2 + x", "sum(x * x)"))


def test_a_kernel_whose_partial_results_torch_adds_up_is_custom(worker):
    verdict = worker.evaluate(PARTIALS, ENERGY, fidelity="reward")
    print(verdict.status, verdict.feedback, verdict.labels, verdict.durations_s)
    assert verdict.status is Status.CORRECT, verdict.feedback
    assert verdict.custom
    assert verdict.descriptors["coverage"] > 0.5
    found = labels(verdict)
    assert found["torch_share"].endswith("of the operations: aten::sum")
    assert "aten_compute" not in found


def test_a_vendors_library_called_by_its_address_is_not_custom(worker):
    verdict = worker.evaluate(BORROWED, MATMUL, fidelity="reward")
    print(verdict.status, verdict.feedback, verdict.labels)
    assert verdict.status is Status.CORRECT, verdict.feedback
    assert {"library_call", "foreign_library"} & labels(verdict).keys()
    assert verdict.custom is False


def test_torch_within_a_graph_is_not_custom(worker):
    verdict = worker.evaluate(IN_A_GRAPH, TASK, fidelity="reward")
    print(verdict.status, verdict.feedback, verdict.labels)
    assert verdict.status is Status.CORRECT, verdict.feedback
    assert {"aten_compute", "decoy_kernel"} & labels(verdict).keys()
    assert verdict.custom is False


@pytest.mark.parametrize(
    ("layer", "shape", "kind"),
    [(torch.nn.Conv2d(3, 8, 3), (2, 3, 16, 16), "tf32"), (torch.nn.Linear(64, 8), (2, 64), "fp32")],
    ids=["convolution", "product"],
)
def test_operations_count_as_torch_lets_the_gpu_read_them(layer, shape, kind):
    cost = count_cost("probe", layer.cuda(), [torch.randn(shape, device="cuda")])
    assert cost.flops.keys() == {kind}


def test_plain_torch_is_at_the_rate_of_what_torch_reaches(worker):
    verdict = worker.evaluate(torch_program("return right(x)"), TASK, fidelity="reward")
    assert 0.1 < verdict.cases[0].speed_of_light < 0.5  # several passes over memory


@pytest.mark.parametrize("name", ["eager_ieee", "eager_tf32", "compile"])
def test_a_baseline_is_measured_once(worker, name):
    task = TASK if name == "compile" else MATMUL
    found = worker.ask("baselines", task=task.to_json(), names=[name])[name]
    print(name, found)
    assert found["ratio"] is not None, found
    if name == "compile":
        assert found["ratio"][1] > 1.2  # two passes over memory instead of six
    if name == "eager_tf32":
        assert found["ratio"][1] > 1.2
    if name == "eager_ieee":
        assert 0.95 < found["ratio"][0] < 1.05
    assert worker.ask("baselines", task=task.to_json(), names=[name])[name] == found
