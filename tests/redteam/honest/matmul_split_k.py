"""Parts of the inner dimension in buffers of their own, added up by a second kernel.

task: matmul
"""

from torch import nn
from tvm_ffi.cpp import load_inline

CPP = """
void parts(tvm::ffi::TensorView a, tvm::ffi::TensorView b, tvm::ffi::TensorView c) {
  const float* left = static_cast<const float*>(a.data_ptr());
  const float* right = static_cast<const float*>(b.data_ptr());
  const int64_t m = a.size(0), k = a.size(1), n = b.size(1), count = c.size(0);
  for (int64_t part = 0; part < count; ++part) {
    float* out = static_cast<float*>(c.data_ptr()) + part * m * n;
    for (int64_t l = k * part / count; l < k * (part + 1) / count; ++l) {
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < n; ++j) out[i * n + j] += left[i * k + l] * right[l * n + j];
      }
    }
  }
}

void add_up(tvm::ffi::TensorView c, tvm::ffi::TensorView y) {
  const float* in = static_cast<const float*>(c.data_ptr());
  float* out = static_cast<float*>(y.data_ptr());
  for (int64_t i = 0, n = y.numel(); i < n; ++i) {
    out[i] = 0;
    for (int64_t part = 0; part < c.size(0); ++part) out[i] += in[part * y.numel() + i];
  }
}
"""
kernels = load_inline(
    "split_k", cpp_sources=CPP, functions=["parts", "add_up"], extra_cflags=["-O3"]
)


class ModelNew(nn.Module):
    def forward(self, a, b):
        partial = a.new_zeros(4, a.shape[0], b.shape[1])
        y = a.new_empty(a.shape[0], b.shape[1])
        kernels.parts(a, b, partial)
        kernels.add_up(partial, y)
        return y
