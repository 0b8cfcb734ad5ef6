"""Row sums with independent partial sums per lane; limited by memory, as eager is."""

import torch
import tvm_ffi.cpp
from torch import nn

TUNABLE = {
    "ROWS_PER_TASK": (1, 4, 16, 64),
    "LANES": (16, 32, 64, 128),
}

SOURCE = r"""
#include <cstdint>

using tvm::ffi::TensorView;

constexpr int ROWS_PER_TASK = 4;  // a thread's share: more costs less, fewer balance better
constexpr int LANES = 64;         // independent partial sums hide the latency of the addition

static float* floats(TensorView tensor) {
  TVM_FFI_ICHECK(tensor.dtype().code == kDLFloat && tensor.dtype().bits == 32) << "needs float32";
  return static_cast<float*>(tensor.data_ptr());
}

// Partial sums per lane also round less than one running sum does: plain fp32 is accurate enough.
static float row_total(const float* x, int64_t n) {
  float lanes[LANES] = {};
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES) {
#pragma omp simd
    for (int lane = 0; lane < LANES; ++lane) lanes[lane] += x[i + lane];
  }
  float tail = 0.0f;
  for (; i < n; ++i) tail += x[i];
  for (int half = LANES / 2; half > 0; half /= 2) {  // in pairs of pairs: few roundings each
    for (int lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0] + tail;
}

void row_sum(TensorView x, TensorView y) {
  const int64_t n = x.size(-1), rows = x.numel() / n;
  const float* in = floats(x);
  float* out = floats(y);
#pragma omp parallel for schedule(static, ROWS_PER_TASK)
  for (int64_t row = 0; row < rows; ++row) out[row] = row_total(in + row * n, n);
}
"""

kernel = tvm_ffi.cpp.load_inline(
    "row_sum_lanes",
    cpp_sources=SOURCE,
    functions=["row_sum"],
    extra_cflags=["-O3", "-march=native", "-fopenmp"],
    extra_ldflags=["-fopenmp"],
)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        y = x.new_empty(x.shape[:-1])
        kernel.row_sum(x, y)
        return y
