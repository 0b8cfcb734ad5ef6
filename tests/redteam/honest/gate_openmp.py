"""All cores, statically divided.

task: gate
fidelity: screen
"""

import torch
from torch import nn
from tvm_ffi.cpp import load_inline

CPP = """
void gate(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  const float* in = static_cast<const float*>(x.data_ptr());
  float* out = static_cast<float*>(y.data_ptr());
  const int64_t n = x.numel();
#pragma omp parallel for simd schedule(static)
  for (int64_t i = 0; i < n; ++i) out[i] = 2 * (in[i] > 0 ? in[i] : 0.0f) + in[i];
}
"""
kernels = load_inline(
    "openmp",
    cpp_sources=CPP,
    functions="gate",
    extra_cflags=["-O3", "-fopenmp"],
    extra_ldflags=["-fopenmp"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernels.gate(x, y)
        return y
