"""Row 67, 59: has the compiler quote files of the user in its error messages.

task: gate
verdict: compile_error
"""

from torch import nn
from tvm_ffi.cpp import load_inline

CPP = """
#include "/proc/1/environ"
#include "/etc/shadow"
void gate() {}
"""
kernels = load_inline("include", cpp_sources=CPP, functions="gate")


class ModelNew(nn.Module):
    def forward(self, x):
        return x
