"""CUDA C++, built by nvcc through the inline compilers of C++."""

import ast
import re

from evolve.languages import inline
from evolve.languages.base import Language, Package
from evolve.languages.descriptors import describe_cuda
from evolve.languages.syntax import arguments

MARKS = frozenset({"cuda_source", "cuda_sources"})  # of inline compilers
INLINE_PACKAGES = (
    Package(module="tvm_ffi", distribution="apache-tvm-ffi", needed=True),
    Package(module="ninja", distribution="ninja", needed=True),
)
DEFAULT_HOME = "/usr/local/cuda"
_HIP_HEADER = re.compile(r"^[ \t]*#[ \t]*include[ \t]*[<\"]hip/hip_runtime", re.M)


def is_for_hip(tree: ast.Module) -> bool:
    """Whether a module that builds by the same names names HIP: as `backend`, or by its header."""
    for node in ast.walk(tree):
        match node:
            case ast.keyword(arg="backend", value=ast.Constant(value="hip")):
                return True
            case ast.Constant(value=str(text)) if _HIP_HEADER.search(text):
                return True
    return False


def _missing_tools() -> str:
    remedy = "install the CUDA toolkit, or set CUDA_HOME"
    return inline.missing_compiler("nvcc", ("CUDA_HOME", "CUDA_PATH"), DEFAULT_HOME, remedy)


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
    finds=lambda tree: bool(arguments(tree) & MARKS) and not is_for_hip(tree),
    describe=describe_cuda,
    contract=_CONTRACT,
    imports=("tvm_ffi.cpp",),
    needs="for the kernel nvcc with what kernel.py imports",
    packages=INLINE_PACKAGES,
    missing_tools=_missing_tools,
    keep_builds=inline.keep_builds,
    stubs=inline.stubs,
)
