"""Row sums with all threads on one row at a time; partial sums meet behind a barrier."""

import torch
import tvm_ffi.cpp
from torch import nn

SOURCE = r"""
#include <cstdint>

using tvm::ffi::TensorView;

static float* floats(TensorView tensor) {
  TVM_FFI_ICHECK(tensor.dtype().code == kDLFloat && tensor.dtype().bits == 32) << "needs float32";
  return static_cast<float*>(tensor.data_ptr());
}

void row_sum(TensorView x, TensorView y) {
  const int64_t rows = x.size(0), n = x.size(1);
  const float* in = floats(x);
  float* out = floats(y);
  double total = 0.0;
#pragma omp parallel
  for (int64_t row = 0; row < rows; ++row) {
    double part = 0.0;
#pragma omp for
    for (int64_t i = 0; i < n; ++i) part += in[row * n + i];
#pragma omp critical
    total += part;
#pragma omp barrier
#pragma omp single
    {
      out[row] = static_cast<float>(total);
      total = 0.0;
    }
  }
}
"""

kernel = tvm_ffi.cpp.load_inline(
    "row_sum_shared",
    cpp_sources=SOURCE,
    functions=["row_sum"],
    extra_cflags=["-O3", "-march=native", "-fopenmp"],
    extra_ldflags=["-fopenmp"],
)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        y = x.new_empty(x.shape[0])
        kernel.row_sum(x, y)
        return y
