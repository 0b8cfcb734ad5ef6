"""Squared ReLU gate in one pass; eager makes four, each through memory."""

import torch
import tvm_ffi.cpp
from torch import nn

TUNABLE = {"ROWS_PER_TASK": (1, 4, 16, 64)}

SOURCE = r"""
#include <cstdint>

using tvm::ffi::TensorView;

constexpr int ROWS_PER_TASK = 4;  // a thread's share: more costs less, fewer balance better

static float* floats(TensorView tensor) {
  TVM_FFI_ICHECK(tensor.dtype().code == kDLFloat && tensor.dtype().bits == 32) << "needs float32";
  return static_cast<float*>(tensor.data_ptr());
}

static void gate_row(const float* gate, const float* value, const float* weight, float* y,
                     int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const float open = gate[i] < 0.0f ? 0.0f : gate[i];  // written so that a NaN passes through
    y[i] = open * open * value[i] * weight[i];
  }
}

void squared_gate(TensorView gate, TensorView value, TensorView weight, TensorView y) {
  const int64_t n = gate.size(-1), rows = gate.numel() / n;
  const float *g = floats(gate), *v = floats(value), *w = floats(weight);
  float* out = floats(y);
#pragma omp parallel for schedule(static, ROWS_PER_TASK)
  for (int64_t row = 0; row < rows; ++row) {
    gate_row(g + row * n, v + row * n, w, out + row * n, n);
  }
}
"""

# Built once, when the module is imported. Outputs are made in Python and passed in.
kernel = tvm_ffi.cpp.load_inline(
    "squared_gate",
    cpp_sources=SOURCE,
    functions=["squared_gate"],
    extra_cflags=["-O3", "-march=native", "-fopenmp"],
    extra_ldflags=["-fopenmp"],
)


class ModelNew(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(features) + 0.5)

    def forward(self, gate: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        gate, value = gate.contiguous(), value.contiguous()
        y = torch.empty_like(gate)
        kernel.squared_gate(gate, value, self.weight.detach(), y)
        return y
