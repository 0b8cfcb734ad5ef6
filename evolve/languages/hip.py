"""HIP C++, built by hipcc through the inline compilers of C++, for AMD's GPUs."""

from evolve.languages import inline
from evolve.languages.base import Language
from evolve.languages.cuda import INLINE_PACKAGES, MARKS, is_for_hip
from evolve.languages.descriptors import describe_cuda
from evolve.languages.syntax import arguments

DEFAULT_HOME = "/opt/rocm"


def _missing_tools() -> str:
    remedy = "install ROCm's hipcc, or set ROCM_HOME"
    return inline.missing_compiler("hipcc", ("ROCM_HOME", "ROCM_PATH"), DEFAULT_HOME, remedy)


_CONTRACT = """\
- Kernels in HIP C++, as text in a module-level string that includes `<hip/hip_runtime.h>`, built \
with `tvm_ffi.cpp.load_inline(NAME, cuda_sources=SOURCE, functions=[...], backend="hip")` and \
called with tensors; in the source they are `tvm::ffi::TensorView` with `data_ptr()`, `size(i)` \
and `numel()`. A wavefront has 64 threads. Launch on the current stream, obtained with \
`TVMFFIEnvGetStream(x.device().device_type, x.device().device_id)`, and on no other."""

HIP = Language(
    name="hip",
    title="HIP C++",
    devices=("hip",),
    finds=lambda tree: bool(arguments(tree) & MARKS) and is_for_hip(tree),
    describe=describe_cuda,
    contract=_CONTRACT,
    imports=("tvm_ffi.cpp",),
    needs="for the kernel hipcc with what kernel.py imports",
    packages=INLINE_PACKAGES,
    missing_tools=_missing_tools,
    keep_builds=inline.keep_builds,
    stubs=inline.stubs,
)
