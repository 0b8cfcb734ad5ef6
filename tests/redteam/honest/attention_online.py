"""Attention without a score matrix: keys one by one, rescaled as the maximum grows.

task: attention
"""

import torch
from torch import nn
from tvm_ffi.cpp import load_inline

CPP = """
#include <cmath>
#include <vector>

void attend(tvm::ffi::TensorView q, tvm::ffi::TensorView k, tvm::ffi::TensorView v,
            tvm::ffi::TensorView y) {
  const int64_t heads = q.size(0), length = q.size(1), width = q.size(2);
  const float* query = static_cast<const float*>(q.data_ptr());
  const float* keys = static_cast<const float*>(k.data_ptr());
  const float* values = static_cast<const float*>(v.data_ptr());
  float* out = static_cast<float*>(y.data_ptr());
  const float scale = 1 / std::sqrt(static_cast<float>(width));
  std::vector<float> sum(width);
  for (int64_t row = 0; row < heads * length; ++row) {
    const int64_t head = row / length * length;
    float largest = -INFINITY, total = 0;
    sum.assign(width, 0.0f);
    for (int64_t at = head; at < head + length; ++at) {
      float score = 0;
      for (int64_t i = 0; i < width; ++i) score += query[row * width + i] * keys[at * width + i];
      score *= scale;
      if (score > largest) {
        const float less = std::exp(largest - score);
        for (float& value : sum) value *= less;
        total *= less;
        largest = score;
      }
      const float weight = std::exp(score - largest);
      total += weight;
      for (int64_t i = 0; i < width; ++i) sum[i] += weight * values[at * width + i];
    }
    for (int64_t i = 0; i < width; ++i) out[row * width + i] = sum[i] / total;
  }
}
"""
kernels = load_inline("attend", cpp_sources=CPP, functions="attend", extra_cflags=["-O3"])


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        y = torch.empty_like(q)
        kernels.attend(q, k, v, y)
        return y
