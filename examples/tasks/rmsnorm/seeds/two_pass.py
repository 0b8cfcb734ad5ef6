"""RMSNorm in two passes over one row at a time.

Eager makes five passes through memory. Here the second pass finds the row in the first-level cache,
so that the kernel reads and writes every element once. The processor's own prefetcher loses its way
between two passes; asking for the next row by hand keeps the memory busy.
"""

import torch
import tvm_ffi.cpp
from torch import nn

TUNABLE = {
    "ROWS_PER_TASK": (1, 4, 16, 64),
    "LANES": (16, 32, 64, 128),
    "PREFETCH": (0, 1, 2),
}

SOURCE = r"""
#include <cmath>
#include <cstdint>

using tvm::ffi::TensorView;

constexpr int ROWS_PER_TASK = 4;  // a thread's share: more costs less, fewer balance better
constexpr int LANES = 32;         // independent partial sums hide the latency of the addition
constexpr int PREFETCH = 1;       // rows ahead that are asked for while a row is written; 0: none
constexpr int LINE = 16;          // floats in a cache line

static float* floats(TensorView tensor) {
  TVM_FFI_ICHECK(tensor.dtype().code == kDLFloat && tensor.dtype().bits == 32) << "needs float32";
  return static_cast<float*>(tensor.data_ptr());
}

// Partial sums per lane also round less than one running sum does: plain fp32 is accurate enough.
static float sum_of_squares(const float* x, int64_t n) {
  float lanes[LANES] = {};
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES) {
#pragma omp simd
    for (int lane = 0; lane < LANES; ++lane) lanes[lane] += x[i + lane] * x[i + lane];
  }
  float tail = 0.0f;
  for (; i < n; ++i) tail += x[i] * x[i];
  for (int half = LANES / 2; half > 0; half /= 2) {  // in pairs of pairs: few roundings each
    for (int lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0] + tail;
}

static void scale_row(const float* x, const float* weight, float scale, float* y, int64_t n) {
  int64_t i = 0;
  for (; i + LINE <= n; i += LINE) {
    if (PREFETCH > 0) __builtin_prefetch(x + PREFETCH * n + i);  // past the end it does nothing
#pragma omp simd
    for (int64_t j = i; j < i + LINE; ++j) y[j] = x[j] * scale * weight[j];
  }
  for (; i < n; ++i) y[i] = x[i] * scale * weight[i];
}

void rmsnorm(TensorView x, TensorView weight, double eps, TensorView y) {
  const int64_t n = x.size(-1), rows = x.numel() / n;
  const float *in = floats(x), *w = floats(weight);
  float* out = floats(y);
#pragma omp parallel for schedule(static, ROWS_PER_TASK)
  for (int64_t row = 0; row < rows; ++row) {
    const float mean_square = sum_of_squares(in + row * n, n) / n;
    const float scale = 1.0f / std::sqrt(mean_square + static_cast<float>(eps));
    scale_row(in + row * n, w, scale, out + row * n, n);
  }
}
"""

# No -ffast-math: NaN and infinity must come out as they do from the reference.
kernel = tvm_ffi.cpp.load_inline(
    "rmsnorm_two_pass",
    cpp_sources=SOURCE,
    functions=["rmsnorm"],
    extra_cflags=["-O3", "-march=native", "-fopenmp"],
    extra_ldflags=["-fopenmp"],
)


class ModelNew(nn.Module):
    def __init__(self, features: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.rand(features) + 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        y = torch.empty_like(x)
        kernel.rmsnorm(x, self.weight.detach(), self.eps, y)
        return y
