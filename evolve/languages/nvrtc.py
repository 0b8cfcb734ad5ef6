"""CUDA C++ that torch compiles through NVRTC: in a tenth of a second, where nvcc takes tens.

Of `torch.cuda._compile_kernel(source, name)`, which torch has had since 2.9 and calls private: it
gives an object that is called with a grid, a block and arguments, and launches in torch's current
stream. Facts: its source in torch 2.9 and 2.13.
"""

import ast
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from evolve.core.digest import framed_digest
from evolve.languages.base import Language, Stubs
from evolve.languages.builds import BuildError, cubin_runs_on, first_errors
from evolve.languages.descriptors import describe_cuda
from evolve.languages.syntax import calls, parsed

_COMPILER = "torch.cuda._compile_kernel"
_NAME = "_compile_kernel"
_ELF = b"\x7fELF"
_ARCHITECTURE = "compute_capability"


def _finds(tree: ast.Module) -> bool:
    return _COMPILER in calls(tree)


def _missing_tools() -> str:
    try:
        import torch
    except (ImportError, OSError) as error:
        return f"torch cannot be imported ({error}); install it"
    if torch.version.cuda is None:
        return f"torch {torch.__version__} is built without CUDA; install a CUDA build of it"
    if not hasattr(torch.cuda, _NAME):
        return f"torch {torch.__version__} has no {_COMPILER}; install torch 2.11 or newer"
    try:
        from torch.utils.cpp_extension import CUDA_HOME
    except ImportError as error:  # of setuptools, which that module needs
        return f"torch cannot name the CUDA headers ({error}); pip install setuptools"
    if CUDA_HOME is None:
        return "torch finds no CUDA headers; install the CUDA toolkit, or set CUDA_HOME"
    try:
        torch.cuda._utils._get_gpu_rtc_library()
    except OSError as error:
        return f"torch cannot load NVRTC ({error}); install the CUDA libraries that torch asks for"
    return ""


def _unfit_gpu(source: str, capability: int) -> str:
    """A cubin runs on the generation that it is compiled for, from its own minor number on."""
    for node in ast.walk(parsed(source)):
        match node:
            case ast.keyword(arg="compute_capability", value=ast.Constant(value=str(wanted))):
                if not cubin_runs_on(wanted, capability):
                    return (
                        f"{_ARCHITECTURE}={wanted[:40]!r} is not for a GPU of capability "
                        f"{capability / 10}; leave it out, or write {str(capability)!r}"
                    )
    return ""


def _keep_builds(source: str, directory: str | None, may_build: bool) -> None:
    """Replace torch's compiler by one that finds what an earlier process has compiled."""
    if _NAME not in source:
        return
    from torch.cuda import _utils

    compiler: Any = _utils
    compiler._nvrtc_compile = _kept(compiler._nvrtc_compile, directory, may_build)


def _kept(
    build: Callable[..., tuple[bytes, str]], directory: str | None, may_build: bool
) -> Callable[..., tuple[bytes, str]]:
    """Files are named as Triton's are, so that a profile is compared with both in one way."""

    def compile_kernel(*arguments: Any, **options: Any) -> tuple[bytes, str]:
        key = framed_digest(repr(arguments), repr(sorted(options.items())))[:24]
        place = Path(directory or "/nonexistent") / f"nvrtc-{key}"
        if not may_build and (place / "kernel.json").exists():
            facts = json.loads((place / "kernel.json").read_text())
            return (place / facts["file"]).read_bytes(), facts["name"]
        try:
            code, name = build(*arguments, **options)
        except RuntimeError as error:
            raise BuildError(first_errors(str(error))) from error
        if may_build:
            place.mkdir(parents=True, exist_ok=True)
            # Not `.cubin`: of Triton's kernels a stack is spilled registers, here it may be arrays.
            file = "kernel.nvrtc" if code.startswith(_ELF) else "kernel.ptx"
            (place / file).write_bytes(code)
            (place / "kernel.json").write_text(json.dumps({"name": name, "file": file}))
        return code, name

    return compile_kernel


def _stubs(skipped: list[str]) -> Stubs:
    try:
        from torch.cuda._utils import _CudaKernel
    except ImportError:
        return []

    def launch(kernel: Any, *_: Any, **__: Any) -> None:
        skipped.append("an NVRTC kernel")

    return [(_CudaKernel, {"__call__": launch})]


_CONTRACT = """\
- Kernels in NVRTC: CUDA C++ as text in a module-level string, compiled when the module is \
imported, and launched from Python in the current stream:

```python
import torch
from torch import nn

SOURCE = r\"\"\"
extern "C" __global__ void scale(const float* x, float* y, double factor, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * static_cast<float>(factor);
}
\"\"\"

kernel = torch.cuda._compile_kernel(SOURCE, "scale")


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.numel()
        kernel(grid=((n + 255) // 256, 1, 1), block=(256, 1, 1), args=[x, y, 2.0, n])
        return y
```

  Arguments arrive as they are in Python: a tensor as a pointer to its first element, an `int` \
as a 32-bit `int`, a `float` as a `double`, so the kernel declares them so; offsets that may \
exceed 2**31 are computed in 64 bits in the kernel. Pass contiguous tensors, and parameters as \
`self.weight.detach()`. Grids and blocks have three numbers. Headers of CUDA may be included \
(`cuda_fp16.h`, `cuda_bf16.h`, `mma.h`), those of torch and of the C++ library may not; \
operators on half types are switched off, so use intrinsics (`__hmul`, `__float2bfloat16`). \
For more than 48 KiB of dynamic shared memory call `kernel.set_shared_memory_config(BYTES)` \
once, then launch with `shared_mem=BYTES`. Instructions of one generation (`wgmma`) need \
`torch.cuda._compile_kernel(SOURCE, NAME, compute_capability="90a")`; else leave that out."""

NVRTC = Language(
    name="nvrtc",
    title="NVRTC",
    devices=("cuda",),
    finds=_finds,
    describe=describe_cuda,
    contract=_CONTRACT,
    needs="for the kernel the NVRTC that comes with torch, and CUDA's headers",
    missing_tools=_missing_tools,
    unfit_gpu=_unfit_gpu,
    keep_builds=_keep_builds,
    stubs=_stubs,
)
