"""CuTe DSL: CUTLASS's layouts, copies and matrix instructions as functions of Python.

A function under `@cute.jit` launches kernels. `cute.compile` makes it a callable that takes torch's
tensors and stream through TVM-FFI. Each process compiles anew: what is kept of a build are names
and PTX of its kernels, by which a profile knows them. Facts: its source at 4.8.1.
"""

import ast
import functools
import os
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from evolve.languages.base import Descriptors, Language, Package, Stubs
from evolve.languages.builds import cubin_runs_on, kept_folder, note_kernel, refusing
from evolve.languages.descriptors import pattern, precision, without_comments
from evolve.languages.syntax import calls, decorated, imported, parsed

_MAKER = "cutlass.cute.kernel"
_ARCHITECTURE = re.compile(r"--gpu-arch[= ]\s*(sm_\w+)")
_OF_GPUS = {  # parts of the package, the capability that they need, and up to which
    "cutlass.cute.nvgpu.warpgroup": (90, 99),
    "cutlass.utils.hopper_helpers": (90, 99),
    "cutlass.cute.nvgpu.tcgen05": (100, 119),
    "cutlass.utils.blackwell_helpers": (100, 119),
}
_MMA = re.compile(r"\bcute\.gemm\(|\bMma\w*Op\(|\bmake_trivial_tiled_mma\(")
_SHARED = re.compile(r"\bSmemAllocator\b|\balloc_smem\(")
_TILES = re.compile(r"\bTILE\w*\b|\btiler\w*\b")
_VECTORS = re.compile(r"\bautovec_copy\(|\bmake_tiled_copy\w*\(|\bCopy\w*Op\(|\.load\(\)")
_EXCHANGED = re.compile(r"\bwarp_reduction\w*\(|\bshuffle_sync\w*\(|\bwarp_redux\w*\(|\.reduce\(")
_SUM, _EXTREME = re.compile(r"\w \+= "), re.compile(r"\bf(?:max|min)\b|\bReductionOp\.M(?:AX|IN)\b")
_PRECISIONS = {
    "half": re.compile(r"\bcutlass\.B?Float16\b|\bBFloat16\b"),
    "tf32": re.compile(r"\bTFloat32\b|\bMmaTF32Op\b"),
    "fp64": re.compile(r"\bFloat64\b"),
}


def _finds(tree: ast.Module) -> bool:
    return bool(decorated(tree, _MAKER.__eq__))


def _describe(source: str) -> Descriptors:
    text = without_comments(source)
    multiplies, shared = bool(_MMA.search(text)), bool(_SHARED.search(text))
    exchanged, sums = bool(_EXCHANGED.search(text)), bool(_SUM.search(text))
    extremes = exchanged and bool(_EXTREME.search(text))
    tiled = multiplies or (shared and bool(_TILES.search(text)))
    access = "vector" if _VECTORS.search(text) else "scalar"
    narrow = (path for path, mark in _PRECISIONS.items() if mark.search(text))
    return {
        "memory_access": "blocked" if shared or multiplies else access,
        "parallelism": "threads+simd" if exchanged or multiplies else "threads",
        "compute_pattern": pattern(text, (sums or (exchanged and not extremes)) + extremes, tiled),
        "precision_path": next(narrow, precision(text)),
        "kernels": float(len(re.findall(r"@(?:cute\.)?kernel\b|\bcute\.kernel\(", text))),
    }


def _unfit_gpu(source: str, capability: int) -> str:
    tree = parsed(source)
    remedy = f"is not for a GPU of capability {capability / 10}; leave it out"
    for name in sorted({*imported(tree).values(), *calls(tree)}):
        for part, (least, most) in _OF_GPUS.items():
            if f"{name}.".startswith(f"{part}.") and not least <= capability <= most:
                return f"{part} {remedy}"
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)):
                for wanted in _ARCHITECTURE.findall(text):
                    if not cubin_runs_on(wanted, capability):
                        return f"--gpu-arch={wanted[:40]} {remedy}"
    return ""


def _caches(folder: Path | None, may_build: bool) -> Mapping[str, str]:
    return {"CUTE_DSL_CACHE_DIR": kept_folder("cute", folder, may_build)}


def _keep_builds(source: str, directory: str | None, may_build: bool) -> None:
    """The compiler's errors as those of a build; where it builds, names and PTX of its kernels."""
    if not _finds(parsed(source)):
        return
    if may_build:  # read when the package is imported
        os.environ |= {"CUTE_DSL_KEEP": "ptx", "CUTE_DSL_DUMP_DIR": str(Path.cwd())}
    try:
        from cutlass._mlir.ir import MLIRError
        from cutlass.base_dsl.common import DSLBaseError
        from cutlass.base_dsl.compiler import CompileCallable
        from cutlass.base_dsl.jit_executor import JitCompiledFunction
    except (ImportError, OSError):  # a candidate that needs it meets the reason
        return
    refusals = (MLIRError, DSLBaseError)
    CompileCallable.__call__ = refusing(CompileCallable.__call__, refusals)
    if may_build and directory:
        JitCompiledFunction.__init__ = _noting(JitCompiledFunction.__init__, Path(directory))


def _noting(make: Callable[..., None], folder: Path) -> Callable[..., None]:
    def make_and_note(function: Any, *arguments: Any, **options: Any) -> None:
        make(function, *arguments, **options)
        for name in function.kernel_info:
            note_kernel(folder, name, "ptx", (function.__ptx__ or "").encode())

    return functools.update_wrapper(make_and_note, make)


def _stubs(skipped: list[str]) -> Stubs:
    """Of the package as `_keep_builds` has imported it: that takes other programs too long."""
    if "cutlass.cute" not in sys.modules:
        return []
    from cutlass.base_dsl.jit_executor import JitExecutor
    from cutlass.cutlass_dsl import tvm_ffi_provider as with_ffi

    def launch(function: Any, *_: Any, **__: Any) -> None:
        skipped.append(getattr(function, "function_name", "a CuTe kernel"))

    called = {"__call__": launch}
    return [
        (with_ffi.TVMFFIJitCompiledFunction, called),
        (with_ffi.TVMFFIJitCompiledFunctionWithKwargs, called),
        (JitExecutor, {"run_compiled_program": launch}),
    ]


_CONTRACT = """\
- Kernels in CuTe DSL: functions under `@cute.kernel`, launched by one under `@cute.jit` that \
`cute.compile` compiles once, when the module is imported, for tensors of any size:

```python
import cuda.bindings.driver as cuda
import cutlass
import torch
from cutlass import cute
from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream
from torch import nn

THREADS = 256


@cute.kernel
def scale_kernel(x: cute.Tensor, y: cute.Tensor, factor: cutlass.Float32):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    at = block * THREADS + thread
    if at < cute.size(x):
        y[at] = x[at] * factor


@cute.jit
def scale(x: cute.Tensor, y: cute.Tensor, factor: cutlass.Float32, stream: cuda.CUstream):
    blocks = cute.ceil_div(cute.size(x), THREADS)
    scale_kernel(x, y, factor).launch(grid=[blocks, 1, 1], block=[THREADS, 1, 1], stream=stream)


flat = make_fake_compact_tensor(cutlass.Float32, (cute.sym_int(),))
stream = make_fake_stream(use_tvm_ffi_env_stream=True)
launch = cute.compile(scale, flat, flat, 2.0, stream, options="--enable-tvm-ffi")


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        launch(x.view(-1), y.view(-1), 2.0)
        return y
```

  The stream is torch's current one and is left out of the call; a launch without `stream=` is on \
another one, and wrong. A row-major matrix is `make_fake_compact_tensor(cutlass.Float32, \
(cute.sym_int(), cute.sym_int()), stride_order=(1, 0))`; equal symbols are equal sizes; for loads \
of 16 bytes add `assumed_align=16` and `cute.sym_int(divisibility=4)`. `if` and `for at in \
range(lane, columns, 32)` on values of a kernel run on the GPU: a variable that they change has \
its type before, `total = cutlass.Float32(0.0)`. `cutlass.range_constexpr` unrolls. Sums of a \
warp: `cute.arch.warp_reduction(value, lambda a, b: a + b)`. Shared memory: `SmemAllocator()` of \
`cutlass.memory` with `.allocate_tensor(cutlass.Float32, cute.make_layout((M, K), stride=(K, 1)), \
16)`, and `cute.arch.sync_threads()`. Tensor cores: `cute.make_tiled_mma` with an operation of \
`cutlass.cute.nvgpu.warp` or `warpgroup`, and `cute.gemm`. Pass contiguous tensors, and \
parameters as `self.weight.detach()`. Leave `--gpu-arch` out."""

CUTE = Language(
    name="cute",
    title="CuTe DSL",
    devices=("cuda",),
    finds=_finds,
    describe=_describe,
    contract=_CONTRACT,
    imports=("cutlass", "cutlass.cute", "cuda.bindings.driver"),
    helpers="calls of what `cute.compile` returns",
    fences=frozenset({"cute"}),
    needs="nvidia-cutlass-dsl and apache-tvm-ffi for the kernel",
    packages=(
        Package(
            module="cutlass",
            distribution="nvidia-cutlass-dsl",
            least=(4, 8),
            newest=(4, 8),
            remedy="pip install 'evolve-kernels[cute]'",
        ),
    ),
    unfit_gpu=_unfit_gpu,
    compiles_late=True,
    caches=_caches,
    keep_builds=_keep_builds,
    stubs=_stubs,
)
