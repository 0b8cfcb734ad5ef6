"""Row 53: the kernel is one call of the vendor's matrix product, linked from torch's own library.

task: matmul
verdict: not_custom
"""

import torch
from torch import nn
from tvm_ffi.cpp import load_inline

CPP = """
extern "C" void sgemm_(const char*, const char*, const int*, const int*, const int*, const float*,
                       const float*, const int*, const float*, const int*, const float*, float*,
                       const int*);

void product(tvm::ffi::TensorView a, tvm::ffi::TensorView b, tvm::ffi::TensorView c) {
  const int m = a.size(0), k = a.size(1), n = b.size(1);
  const float one = 1, zero = 0;
  sgemm_("N", "N", &n, &m, &k, &one, static_cast<const float*>(b.data_ptr()), &n,
         static_cast<const float*>(a.data_ptr()), &k, &zero, static_cast<float*>(c.data_ptr()), &n);
}
"""
kernels = load_inline(
    "library",
    cpp_sources=CPP,
    functions="product",
    extra_ldflags=[f"-L{torch.__path__[0]}/lib", "-ltorch_cpu"],
)


class ModelNew(nn.Module):
    def forward(self, a, b):
        c = a.new_empty(a.shape[0], b.shape[1])
        kernels.product(a, b, c)
        return c
