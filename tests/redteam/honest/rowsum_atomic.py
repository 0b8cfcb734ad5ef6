"""Threads add their parts into the outcome in whatever order they come: not the same bits twice.

task: rowsum
fidelity: screen
"""

from torch import nn
from tvm_ffi.cpp import load_inline

CPP = """
void row_sum(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  const float* in = static_cast<const float*>(x.data_ptr());
  float* out = static_cast<float*>(y.data_ptr());
  const int64_t n = x.size(-1), rows = y.numel(), parts = 8;
#pragma omp parallel for schedule(dynamic, 1) collapse(2)
  for (int64_t part = 0; part < parts; ++part) {
    for (int64_t row = 0; row < rows; ++row) {
      float sum = 0;
      for (int64_t i = n * part / parts; i < n * (part + 1) / parts; ++i) sum += in[row * n + i];
#pragma omp atomic
      out[row] += sum;
    }
  }
}
"""
kernels = load_inline(
    "atomic",
    cpp_sources=CPP,
    functions="row_sum",
    extra_cflags=["-O2", "-fopenmp"],
    extra_ldflags=["-fopenmp"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        y = x.new_zeros(x.shape[:-1])
        kernels.row_sum(x, y)
        return y
