"""LayerNorm with the moments of blocks, combined as they come (Chan, Golub and LeVeque, 1979).

A row is read from memory once for its statistics, however long it is: each block is centred on its
own mean while it is in the first-level cache. E[x^2] - E[x]^2 would need one sweep less, but
cancels where the mean is large against the spread.
"""

import torch
import tvm_ffi.cpp
from torch import nn

TUNABLE = {
    "ROWS_PER_TASK": (1, 4, 16, 64),
    "LANES": (16, 32, 64, 128),
    "PREFETCH": (0, 1, 2),
    "BLOCK": (256, 512, 1024, 4096),
}

SOURCE = r"""
#include <algorithm>
#include <cmath>
#include <cstdint>

using tvm::ffi::TensorView;

constexpr int ROWS_PER_TASK = 4;  // a thread's share: more costs less, fewer balance better
constexpr int LANES = 64;         // independent partial sums hide the latency of the addition
constexpr int BLOCK = 512;        // elements that are centred together
constexpr int PREFETCH = 1;       // rows ahead that are asked for while a row is written; 0: none
constexpr int LINE = 16;          // floats in a cache line

static float* floats(TensorView tensor) {
  TVM_FFI_ICHECK(tensor.dtype().code == kDLFloat && tensor.dtype().bits == 32) << "needs float32";
  return static_cast<float*>(tensor.data_ptr());
}

struct Moments {
  float mean, variance;
};

// Sum of the lanes in pairs of pairs: each goes through log2(LANES) roundings only.
static float sum_of_lanes(float (&lanes)[LANES]) {
  for (int half = LANES / 2; half > 0; half /= 2) {
    for (int lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

// The sum of (x - centre)^POWER.
template <int POWER>
static float centred_sum(const float* x, float centre, int64_t n) {
  float lanes[LANES] = {};
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES) {
#pragma omp simd
    for (int lane = 0; lane < LANES; ++lane) {
      const float deviation = x[i + lane] - centre;
      lanes[lane] += POWER == 1 ? deviation : deviation * deviation;
    }
  }
  float tail = 0.0f;
  for (; i < n; ++i) tail += POWER == 1 ? x[i] - centre : (x[i] - centre) * (x[i] - centre);
  return sum_of_lanes(lanes) + tail;
}

static Moments row_moments(const float* x, int64_t n) {
  float mean = 0.0f, squares = 0.0f;  // of the elements before `start`
  for (int64_t start = 0; start < n; start += BLOCK) {
    const int64_t width = std::min<int64_t>(BLOCK, n - start);
    const float block_mean = centred_sum<1>(x + start, 0.0f, width) / width;
    const float share = static_cast<float>(width) / (start + width), step = block_mean - mean;
    mean += step * share;
    squares += centred_sum<2>(x + start, block_mean, width) + step * step * share * start;
  }
  return {mean, squares / n};
}

static void normalize_row(const float* x, const float* weight, const float* bias, Moments moments,
                          float eps, float* y, int64_t n) {
  const float mean = moments.mean, scale = 1.0f / std::sqrt(moments.variance + eps);
  int64_t i = 0;
  for (; i + LINE <= n; i += LINE) {
    if (PREFETCH > 0) __builtin_prefetch(x + PREFETCH * n + i);  // past the end it does nothing
#pragma omp simd
    for (int64_t j = i; j < i + LINE; ++j) y[j] = (x[j] - mean) * scale * weight[j] + bias[j];
  }
  for (; i < n; ++i) y[i] = (x[i] - mean) * scale * weight[i] + bias[i];
}

void layernorm(TensorView x, TensorView weight, TensorView bias, double eps, TensorView y) {
  const int64_t n = x.size(-1), rows = x.numel() / n;
  const float *in = floats(x), *w = floats(weight), *b = floats(bias);
  float* out = floats(y);
#pragma omp parallel for schedule(static, ROWS_PER_TASK)
  for (int64_t row = 0; row < rows; ++row) {
    const float* values = in + row * n;
    const Moments moments = row_moments(values, n);
    normalize_row(values, w, b, moments, static_cast<float>(eps), out + row * n, n);
  }
}
"""

# No -ffast-math: NaN and infinity must come out as they do from the reference.
kernel = tvm_ffi.cpp.load_inline(
    "layernorm_blocks",
    cpp_sources=SOURCE,
    functions=["layernorm"],
    extra_cflags=["-O3", "-march=native", "-fopenmp"],
    extra_ldflags=["-fopenmp"],
)


class ModelNew(nn.Module):
    def __init__(self, features: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.rand(features) + 0.5)
        self.bias = nn.Parameter(torch.randn(features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        y = torch.empty_like(x)
        kernel.layernorm(x, self.weight.detach(), self.bias.detach(), self.eps, y)
        return y
