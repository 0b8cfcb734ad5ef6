"""C++ for the CPU, built by `tvm_ffi.cpp` or `torch.utils.cpp_extension` when it is imported."""

import ast

from evolve.languages import inline
from evolve.languages.base import Language
from evolve.languages.cuda import INLINE_PACKAGES
from evolve.languages.cuda import MARKS as CUDA_MARKS
from evolve.languages.descriptors import describe_cpp
from evolve.languages.syntax import arguments

_MARKS = frozenset({"cpp_source", "cpp_sources"})  # of inline compilers

_CONTRACT = '''\
- Kernels in C++, as text in a module-level string, built when the module is imported and called \
with tensors:

```python
import torch
import tvm_ffi.cpp
from torch import nn

SOURCE = r"""
#include <cstdint>

void scale(tvm::ffi::TensorView x, double factor, tvm::ffi::TensorView y) {
  const float* in = static_cast<const float*>(x.data_ptr());
  float* out = static_cast<float*>(y.data_ptr());
  const int64_t n = x.numel();
#pragma omp parallel for simd schedule(static)
  for (int64_t i = 0; i < n; ++i) out[i] = in[i] * static_cast<float>(factor);
}
"""

kernel = tvm_ffi.cpp.load_inline(
    "scale", cpp_sources=SOURCE, functions=["scale"],
    extra_cflags=["-O3", "-march=native", "-fopenmp"], extra_ldflags=["-fopenmp"],
)
```

  `x.size(i)` and `x.ndim()` give shapes. Pass contiguous tensors, and parameters as \
`self.weight.detach()`. The standard is C++17; headers of the standard library, `<omp.h>` and \
intrinsics (`<immintrin.h>` on x86) may be included. Leave `-ffast-math` out: NaN and infinity \
come out as they do from the reference. Without it a sum is vectorised only under `#pragma omp \
simd reduction(+ : sum)`, and `std::exp`, `std::log` and `std::tanh` in a loop stay scalar calls: \
write a polynomial where they matter.'''


def _finds(tree: ast.Module) -> bool:
    """Beside CUDA C++ it is the declarations of that."""
    found = arguments(tree)
    return bool(found & _MARKS) and not found & CUDA_MARKS


CPP = Language(
    name="cpp",
    title="C++",
    devices=("cpu",),
    finds=_finds,
    describe=describe_cpp,
    contract=_CONTRACT,
    imports=("tvm_ffi.cpp",),
    needs="for the kernel apache-tvm-ffi, ninja and a C++ compiler",
    packages=INLINE_PACKAGES,
    preload=("tvm_ffi", "tvm_ffi.cpp"),
    keep_builds=inline.keep_builds,
    stubs=inline.stubs,
)
