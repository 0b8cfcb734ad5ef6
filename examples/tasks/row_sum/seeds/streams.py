"""Row sums of several rows at once: several streams from memory keep more loads under way."""

import torch
import tvm_ffi.cpp
from torch import nn

TUNABLE = {
    "STREAMS": (2, 4, 8),
    "LANES": (16, 32),
}

SOURCE = r"""
#include <cstdint>

using tvm::ffi::TensorView;

constexpr int STREAMS = 4;  // rows read side by side
constexpr int LANES = 16;   // partial sums per row

static float* floats(TensorView tensor) {
  TVM_FFI_ICHECK(tensor.dtype().code == kDLFloat && tensor.dtype().bits == 32) << "needs float32";
  return static_cast<float*>(tensor.data_ptr());
}

static float row_total(const float* x, int64_t n) {
  float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += x[i];
  return sum;
}

static void totals(const float* x, int64_t n, float* y) {
  float lanes[STREAMS][LANES] = {};
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES) {
    for (int stream = 0; stream < STREAMS; ++stream) {
#pragma omp simd
      for (int lane = 0; lane < LANES; ++lane) lanes[stream][lane] += x[stream * n + i + lane];
    }
  }
  for (int stream = 0; stream < STREAMS; ++stream) {
    y[stream] = row_total(lanes[stream], LANES) + row_total(x + stream * n + i, n - i);
  }
}

void row_sum(TensorView x, TensorView y) {
  const int64_t n = x.size(-1), rows = x.numel() / n;
  const float* in = floats(x);
  float* out = floats(y);
#pragma omp parallel for schedule(static)
  for (int64_t row = 0; row < rows; row += STREAMS) {
    if (row + STREAMS <= rows) {
      totals(in + row * n, n, out + row);
    } else {
      for (int64_t last = row; last < rows; ++last) out[last] = row_total(in + last * n, n);
    }
  }
}
"""

kernel = tvm_ffi.cpp.load_inline(
    "row_sum_streams",
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
