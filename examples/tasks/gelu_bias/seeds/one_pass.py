"""Bias and GELU in one pass: eager writes the sum to memory and reads it for the activation."""

import platform

import torch
import tvm_ffi.cpp
from torch import nn

VECTOR_BITS = 512

TUNABLE = {
    "ROWS_PER_TASK": (1, 4, 16, 64),
    "VECTOR_BITS": (256, 512),
}

SOURCE = r"""
#include <cstdint>
#include <cstring>

using tvm::ffi::TensorView;

constexpr int ROWS_PER_TASK = 4;  // a thread's share: more costs less, fewer balance better

static float* floats(TensorView tensor) {
  TVM_FFI_ICHECK(tensor.dtype().code == kDLFloat && tensor.dtype().bits == 32) << "needs float32";
  return static_cast<float*>(tensor.data_ptr());
}

// exp(x), bounded to [-87, 88], without a branch or a call, so that loops vectorise: x = n ln2 + r
// with |r| <= ln2/2, a polynomial for exp(r) (coefficients of Cephes), and 2^n put together from
// bits. Adding 1.5 * 2^23 rounds to the nearest integer and leaves it in the low bits of the sum.
static inline float exp_bounded(float x) {
  const float low = x < -87.0f ? -87.0f : x;
  const float bounded = low > 88.0f ? 88.0f : low;
  const float shifted = bounded * 1.44269504f + 12582912.0f;
  const float n = shifted - 12582912.0f;
  const float r = (bounded - n * 0.693359375f) - n * -2.12194440e-4f;  // ln2 in two parts
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  int32_t bits;
  std::memcpy(&bits, &shifted, 4);
  bits = (bits - 0x4B400000 + 127) << 23;
  float power;
  std::memcpy(&power, &bits, 4);
  return p * power;  // a NaN passes through p
}

// 0.5 v (1 + tanh(z)) is v / (1 + exp(-2 z)): one exponential, no cancellation where tanh is -1.
static inline float gelu(float v) {
  const float z = 0.79788456f * (v + 0.044715f * v * v * v);
  return v / (1.0f + exp_bounded(-2.0f * z));
}

static void activate_row(const float* x, const float* bias, float* y, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] = gelu(x[i] + bias[i]);
}

void gelu_bias(TensorView x, TensorView bias, TensorView y) {
  const int64_t n = x.size(-1), rows = x.numel() / n;
  const float *in = floats(x), *b = floats(bias);
  float* out = floats(y);
#pragma omp parallel for schedule(static, ROWS_PER_TASK)
  for (int64_t row = 0; row < rows; ++row) activate_row(in + row * n, b, out + row * n, n);
}
"""

# Halves or doubles the vector registers' width (only x86 knows the flag).
FLAGS = ["-O3", "-march=native", "-fopenmp"]
if platform.machine() == "x86_64":
    FLAGS.append(f"-mprefer-vector-width={VECTOR_BITS}")

# No -ffast-math: NaN must come out as it does from the reference.
kernel = tvm_ffi.cpp.load_inline(
    "gelu_bias_one_pass",
    cpp_sources=SOURCE,
    functions=["gelu_bias"],
    extra_cflags=FLAGS,
    extra_ldflags=["-fopenmp"],
)


class ModelNew(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.randn(features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        y = torch.empty_like(x)
        kernel.gelu_bias(x, self.bias.detach(), y)
        return y
