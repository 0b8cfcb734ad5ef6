"""An exponential of its own: range reduction and a polynomial, right to about two roundings.

task: softmax
"""

import torch
from torch import nn
from tvm_ffi.cpp import load_inline

CPP = """
#include <algorithm>
#include <cmath>

static float exponential(float x) {
  x = std::max(x, -87.0f);
  const float whole = std::nearbyint(x * 1.44269504f);
  const float r = (x - whole * 0.693359375f) + whole * 2.12194440e-4f;
  const float p = 1 + r * (1 + r * (0.5f + r * (0.166666667f + r * (0.0416666667f +
                  r * (0.00833333333f + r * (0.00138888889f + r * 0.000198412698f))))));
  return std::ldexp(p, static_cast<int>(whole));
}

void softmax(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  const float* in = static_cast<const float*>(x.data_ptr());
  float* out = static_cast<float*>(y.data_ptr());
  const int64_t n = x.size(-1), rows = x.numel() / n;
  for (int64_t row = 0; row < rows; ++row, in += n, out += n) {
    const float largest = *std::max_element(in, in + n);
    float sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += out[i] = exponential(in[i] - largest);
    for (int64_t i = 0; i < n; ++i) out[i] *= 1 / sum;
  }
}
"""
kernels = load_inline("own_exp", cpp_sources=CPP, functions="softmax", extra_cflags=["-O3"])


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernels.softmax(x, y)
        return y
