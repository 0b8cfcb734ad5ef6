"""Row 52: a kernel with the name of one of torch's, launched beside torch's own.

task: matmul
verdict: not_custom
"""

import torch
from torch import nn
from tvm_ffi.cpp import load_inline

CPP = """
void mm(tvm::ffi::TensorView x) {
  static_cast<float*>(x.data_ptr())[0] = 0;
}
"""
kernels = load_inline("aten", cpp_sources=CPP, functions="mm", extra_cflags=["-O3"])


class ModelNew(nn.Module):
    def forward(self, a, b):
        kernels.mm(torch.empty(1))
        return torch.mm(a, b)
