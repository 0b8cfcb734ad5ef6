"""A few thousand partial sums by a kernel of its own; torch adds them up.

task: energy
fidelity: screen
"""

from torch import nn
from tvm_ffi.cpp import load_inline

CPP = """
void partial_sums(tvm::ffi::TensorView x, tvm::ffi::TensorView parts) {
  const float* in = static_cast<const float*>(x.data_ptr());
  float* out = static_cast<float*>(parts.data_ptr());
  const int64_t n = x.numel(), count = parts.numel(), length = (n + count - 1) / count;
  for (int64_t part = 0; part < count; ++part) {
    float lanes[16] = {};
    const int64_t end = n < (part + 1) * length ? n : (part + 1) * length;
    int64_t i = part * length;
    for (; i + 16 <= end; i += 16) {
      for (int lane = 0; lane < 16; ++lane) lanes[lane] += in[i + lane] * in[i + lane];
    }
    float sum = 0;
    for (; i < end; ++i) sum += in[i] * in[i];
    for (float lane : lanes) sum += lane;
    out[part] = sum;
  }
}
"""
kernels = load_inline(
    "partial_sums", cpp_sources=CPP, functions="partial_sums", extra_cflags=["-O3"]
)


class ModelNew(nn.Module):
    def forward(self, x):
        parts = x.new_empty((x.numel() + 1023) // 1024)
        kernels.partial_sums(x, parts)
        return parts.sum()
