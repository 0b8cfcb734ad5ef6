"""Row 62: memory that stands in no process's books, in the buffers of sockets.

task: gate
verdict: oom
"""

import os
import sys
import time

import torch
from torch import nn
from tvm_ffi.cpp import load_inline

CPP = """
void gate(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  const float* in = static_cast<const float*>(x.data_ptr());
  float* out = static_cast<float*>(y.data_ptr());
  for (int64_t i = 0, n = x.numel(); i < n; ++i) out[i] = 2 * (in[i] > 0 ? in[i] : 0.0f) + in[i];
}
"""
kernels = load_inline("gate", cpp_sources=CPP, functions="gate", extra_cflags=["-O3"])
FILL = """
import socket, time
pairs, block = [socket.socketpair() for _ in range(480)], bytes(1 << 15)
for pair in pairs:  # they count as full from the start: how fast they fill depends on the machine
    for end in pair:
        end.setblocking(False)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)
        try:
            while True:
                end.send(block)
        except BlockingIOError:
            pass
time.sleep(20)
"""
python = os.path.realpath(sys.executable)
for _ in range(20):
    os.posix_spawn(python, [python, "-I", "-S", "-c", FILL], {})
time.sleep(15)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernels.gate(x, y)
        return y
