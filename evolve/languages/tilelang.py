"""TileLang: tiles in shared memory and registers, from which CUDA C++ is written for nvcc.

A kernel is compiled when its function under `@tilelang.jit` is first called, into a cache: the
shared library there has the names by which a profile knows it. Launches are in torch's current
stream. Facts: its source at 0.1.15.
"""

import ast
import os
import re
import sys
import traceback
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from evolve.languages.base import Descriptors, Language, Package, Stubs
from evolve.languages.builds import first_errors, kept_folder, plain, refusing
from evolve.languages.cuda import CUDA
from evolve.languages.descriptors import pattern, precision, without_comments
from evolve.languages.syntax import decorated, parsed

_MAKERS = frozenset({"tilelang.jit", "tilelang.compile", "tilelang.language.prim_func"})
_FFI = "apache-tvm-ffi"
_REMEDY = "install tilelang in an interpreter of its own, and name it by device.python=PATH"
_GEMM, _SHARED = re.compile(r"\bT\.(?:wgmma_)?gemm\w*\("), re.compile(r"\bT\.alloc_shared\(")
_OPERANDS = 2  # of a product, in shared memory
_REDUCED = re.compile(r"\bT\.(?:reduce_(\w+)|cumsum)\(")
_VECTORS = re.compile(r"\bT\.(?:Parallel|vectorized|copy)\(")
_HALF, _DOUBLE = re.compile(r"\bb?float16\b"), re.compile(r"\bfloat64\b")


_OF_NVCC = "\nCompilation error:\n"  # between the CUDA C++ and nvcc's log
_REFUSALS = (  # TVM turns most of its errors into Python's
    *(ArithmeticError, AssertionError, AttributeError, LookupError, NameError, RuntimeError),
    *(SyntaxError, TypeError, ValueError),
)


def _finds(tree: ast.Module) -> bool:
    return bool(decorated(tree, _MAKERS.__contains__))


def _describe(source: str) -> Descriptors:
    text = without_comments(source)
    multiplies, shared = bool(_GEMM.search(text)), len(_SHARED.findall(text))
    reductions = set(_REDUCED.findall(text))
    access = "vector" if _VECTORS.search(text) else "scalar"
    return {
        "memory_access": "blocked" if shared or multiplies else access,
        "parallelism": "threads+simd" if multiplies or reductions else "threads",
        "compute_pattern": pattern(text, len(reductions), multiplies or shared >= _OPERANDS),
        "precision_path": _precision(text, multiplies),
        "kernels": float(max(1, len(re.findall(r"\bT\.Kernel\(", text)))),
    }


def _precision(text: str, multiplies: bool) -> str:
    """`T.gemm` of float32 tiles is TF32."""
    if _HALF.search(text):
        return "half"
    if _DOUBLE.search(text):
        return "fp64"
    return "tf32" if multiplies else precision(text)


def _unfit(version: str) -> str:
    """It needs an older TVM-FFI than C++ kernels do; its metadata says up to which."""
    try:
        asked, found = metadata.requires("tilelang") or (), metadata.version(_FFI)
    except metadata.PackageNotFoundError:
        return f"{_FFI} is not installed; pip install 'tilelang=={version}'"
    for each in asked:
        bound = re.search(r"<(\d[\d.]*)", each) if each.startswith(_FFI) else None
        if bound and _numbers(found) >= _numbers(bound[1]):
            wanted = f"{_FFI}<{bound[1]}"
            return f"tilelang {version} needs {wanted}, here is {found}; {_REMEDY}"
    return ""


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)[:3]]


def _missing_tools() -> str:
    """Why there is no nvcc: of its extra `nvcc`, or where that for CUDA C++ is looked for."""
    try:
        metadata.version("nvidia-cuda-nvcc")
    except metadata.PackageNotFoundError:
        why = CUDA.missing_tools()
        return f"{why}, or pip install 'tilelang[nvcc]'" if why else ""
    return ""


def _caches(folder: Path | None, may_build: bool) -> Mapping[str, str]:
    return {"TILELANG_CACHE_DIR": kept_folder("tilelang", folder, may_build)}


def _keep_builds(source: str, directory: str | None, may_build: bool) -> None:
    """Import the package, so that `_stubs` can replace its launches, and silence its compiler.

    The compiler's errors are those of a build.
    """
    if not _finds(parsed(source)):
        return
    os.environ["TILELANG_PRINT_ON_COMPILATION"] = "0"
    try:
        from tilelang.jit import JITImpl
        from tilelang.jit.exceptions import EagerJITBuildError, JITNoBuilderError
        from tilelang.jit.kernel import JITKernel
    except (ImportError, OSError):  # a candidate that needs it meets the reason
        return
    refusals = (*_REFUSALS, EagerJITBuildError, JITNoBuilderError)
    for owner, name in (
        (JITImpl, "_infer_jit_mode"),
        (JITImpl, "compile"),
        (JITKernel, "_compile_and_create_adapter"),
    ):
        setattr(owner, name, refusing(getattr(owner, name), refusals, _said))


def _said(error: Exception) -> str:
    """The error with the program's line that led to it; of nvcc's log the lines with errors."""
    text = str(error)
    if _OF_NVCC in text:
        return first_errors(text.partition(_OF_NVCC)[2])
    own = (Path(__file__).parent, Path(sys.modules["tilelang"].__file__ or "").parent)
    frames = [
        f"line {frame.lineno} in {frame.name}: {frame.line}\n"
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.line and not any(map(Path(frame.filename).is_relative_to, own))
    ]
    return plain(f"{''.join(frames[-1:])}{type(error).__name__}: {text}")


def _stubs(skipped: list[str]) -> Stubs:
    """Of the package as `_keep_builds` has imported it: that takes other programs too long."""
    module = sys.modules.get("tilelang.jit.kernel")
    if module is None:
        return []

    def launch(kernel: Any, *given: Any, **_: Any) -> Any:
        skipped.append(str(kernel.prim_func.attrs["global_symbol"]))
        return _left_unwritten(kernel.adapter, given)

    return [(module.JITKernel, {"__call__": launch})]


def _left_unwritten(adapter: Any, given: tuple[Any, ...]) -> Any:
    """Outputs that a kernel makes itself (`out_idx`), made as it makes them and not filled."""
    if not adapter.result_idx:
        return None
    adapter._ffi_callee_allocated_output_abi = False
    adapter.dynamic_symbolic_map = adapter._process_dynamic_symbolic()
    adapter._prepare_torch_device = lambda *_: None
    adapter._get_executable = lambda: lambda *_: None
    return adapter._convert_torch_func()(*given)


_CONTRACT = """\
- Kernels in TileLang: functions under `@tilelang.jit` in the module that return a `T.prim_func`; \
called with constants they give a kernel, compiled once, which is called with tensors:

```python
import tilelang
import tilelang.language as T
import torch
from torch import nn

BLOCK = 1024
TUNABLE = {"BLOCK": (256, 512, 1024, 2048)}


@tilelang.jit
def scale(block):
    n = T.dynamic("n")

    @T.prim_func
    def main(x: T.Tensor((n,), "float32"), y: T.Tensor((n,), "float32"), factor: T.float32):
        with T.Kernel(T.ceildiv(n, block), threads=256) as at:
            for i in T.Parallel(block):
                y[at * block + i] = x[at * block + i] * factor

    return main


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        scale(BLOCK)(x.view(-1), y.view(-1), 2.0)
        return y
```

  Sizes are `T.dynamic("n")`, or constants of the function, for each of which nvcc takes seconds. \
Loads and stores are checked against the sizes. Tiles: `T.alloc_shared((M, K), "float16")`, \
`T.alloc_fragment((M, N), "float32")` in registers; `T.clear`, `T.copy(a[row * M, step * K], \
left)`; elementwise loops `for i, j in T.Parallel(M, N)`; `for step in T.Pipelined(T.ceildiv(K, \
BLOCK), num_stages=3)`. Tensor cores: `T.gemm(left, right, total)`, which is TF32 for float32 \
tiles. Rows: `T.reduce_max(value, top, dim=1)`, `T.reduce_sum` of fragments. Pass the outputs, \
contiguous tensors, and parameters as `self.weight.detach()`. No `@tilelang.autotune`: numbers to \
tune stand in `TUNABLE`. Leave `target` and `execution_backend` out."""

TILELANG = Language(
    name="tilelang",
    title="TileLang",
    devices=("cuda",),
    finds=_finds,
    describe=_describe,
    contract=_CONTRACT,
    imports=("tilelang", "tilelang.language"),
    helpers="calls of functions under `@tilelang.jit`",
    fences=frozenset({"tilelang"}),
    needs="tilelang and nvcc for the kernel",
    packages=(
        Package(
            module="tilelang",
            distribution="tilelang",
            least=(0, 1),
            newest=(0, 1),
            remedy=_REMEDY,
            unfit=_unfit,
        ),
    ),
    missing_tools=_missing_tools,
    compiles_late=True,
    caches=_caches,
    keep_builds=_keep_builds,
    stubs=_stubs,
)
