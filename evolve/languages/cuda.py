"""CUDA C++, built by nvcc through the inline compilers of C++."""

from evolve.languages import inline
from evolve.languages.base import Language
from evolve.languages.descriptors import describe_cuda
from evolve.languages.syntax import arguments

MARKS = frozenset({"cuda_source", "cuda_sources"})  # of inline compilers

_CONTRACT = """\
- Kernels in CUDA C++, as text in a module-level string, built with \
`tvm_ffi.cpp.load_inline(NAME, cuda_sources=SOURCE, functions=[...])` and called with tensors; \
in the source they are `tvm::ffi::TensorView` with `data_ptr()`, `size(i)` and `numel()`. Launch \
on the current stream, obtained with `TVMFFIEnvGetStream(x.device().device_type, \
x.device().device_id)`, and on no other."""

CUDA = Language(
    name="cuda",
    title="CUDA C++",
    devices=("cuda",),
    finds=lambda tree: bool(arguments(tree) & MARKS),
    describe=describe_cuda,
    contract=_CONTRACT,
    imports=("tvm_ffi.cpp",),
    needs="for the kernel nvcc with what kernel.py imports",
    keep_builds=inline.keep_builds,
    stubs=inline.stubs,
)
