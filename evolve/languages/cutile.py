"""cuTile: blocks of threads that compute with tiles, which its compiler spreads over the threads.

A kernel is compiled at its first launch, by the program `tileiras`, into a cache; names and code of
a build's kernels are kept too, so that a profile knows them. Facts: its source at 1.7.0.
"""

import ast
import functools
import os
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from evolve.languages.base import Descriptors, Language, Package, Stubs, release
from evolve.languages.builds import BuildError, kept_folder, note_kernel
from evolve.languages.descriptors import pattern, precision, without_comments
from evolve.languages.syntax import decorated, parsed

_MAKER = "cuda.tile.kernel"
_OF_COMPILER = ("nvidia-cuda-tileiras", "nvidia-cuda-nvcc", "nvidia-nvvm")
_FOR_HOPPER = (13, 3)
_REMEDY = "pip install -U 'cuda-tile[tileiras]'"
_LEAST_CAPABILITY = 80
_MMA = re.compile(r"\b(?:ct|tile)\.(?:mma|mma_scaled|matmul)\(")
_REDUCED = re.compile(
    r"\b(?:ct|tile)\.(sum|max|min|prod|argmax|argmin|reduce|scan|cumsum|cumprod)\("
)
_PRECISIONS = {
    "half": re.compile(r"\b(?:ct|tile)\.b?float16\b"),
    "tf32": re.compile(r"\btfloat32\b"),
    "fp64": re.compile(r"\b(?:ct|tile)\.float64\b"),
}


def _finds(tree: ast.Module) -> bool:
    return bool(decorated(tree, _MAKER.__eq__))


def _describe(source: str) -> Descriptors:
    text = without_comments(source)
    tiled = bool(_MMA.search(text))
    access = "vector" if re.search(r"\b(?:ct|tile)\.load\(", text) else "scalar"
    narrow = (path for path, mark in _PRECISIONS.items() if mark.search(text))
    return {
        "memory_access": "blocked" if tiled else access,
        "parallelism": "threads+simd" if re.search(r"\b(?:ct|tile)\.bid\(", text) else "simd",
        "compute_pattern": pattern(text, len(set(_REDUCED.findall(text))), tiled),
        "precision_path": next(narrow, precision(text)),
        "kernels": float(len(re.findall(r"@(?:\w+\.)*kernel\b|\b(?:ct|tile)\.kernel\(", text))),
    }


def _missing_tools() -> str:
    """Its compiler: packages of one version, else the program of a toolkit."""
    found = dict(filter(None, map(_installed, _OF_COMPILER)))
    if _OF_COMPILER[0] not in found:
        home = os.environ.get("CUDA_PATH") or os.environ.get("CUDA_HOME") or "/usr/local/cuda"
        is_there = shutil.which("tileiras") or (Path(home) / "bin" / "tileiras").exists()
        return "" if is_there else f"there is no tileiras; {_REMEDY}"
    named = ", ".join(f"{name} {version}" for name, version in found.items())
    releases = {release(version) for version in found.values()}
    if len(found) < len(_OF_COMPILER) or len(releases) > 1:
        return (
            f"tileiras needs {', '.join(_OF_COMPILER)} of one version, here is {named}; {_REMEDY}"
        )
    return f"{named} is too old; {_REMEDY}" if min(releases) < _FOR_HOPPER else ""


def _installed(distribution: str) -> tuple[str, str] | None:
    try:
        return distribution, metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _unfit_gpu(source: str, capability: int) -> str:
    if capability >= _LEAST_CAPABILITY:
        return ""
    return f"cuTile is not for a GPU of capability {capability / 10}; write Triton"


def _caches(folder: Path | None, may_build: bool) -> Mapping[str, str]:
    return {"CUDA_TILE_CACHE_DIR": kept_folder("cutile", folder, may_build)}


def _keep_builds(source: str, directory: str | None, may_build: bool) -> None:
    """The compiler's errors as those of a build; where it builds, names and code of its kernels."""
    if not _finds(parsed(source)):
        return
    os.environ["CUDA_TILE_TEMP_DIR"] = str(Path.cwd() / "tileiras")  # read by the import
    try:
        from cuda.tile import TileError, kernel
    except (ImportError, OSError):  # a candidate that needs it meets the reason
        return
    folder = Path(directory) if directory and may_build else None
    kernel._compile = _noting(kernel._compile, TileError, folder)


def _noting(
    build: Callable[..., Any], refusal: type[Exception], folder: Path | None
) -> Callable[..., Any]:
    def compile_kernel(*arguments: Any, **options: Any) -> Any:
        try:
            code, name, *others = build(*arguments, **options)
        except refusal as error:
            raise BuildError(f"{type(error).__name__}: {error}") from error
        if folder:
            note_kernel(folder, name, "cubin", bytes(code))
        return code, name, *others

    return functools.update_wrapper(compile_kernel, build)


def _stubs(skipped: list[str]) -> Stubs:
    """Of the package as `_keep_builds` has imported it: that takes other programs too long."""
    module = sys.modules.get("cuda.tile")
    if module is None:
        return []

    def launch(_stream: Any, _grid: Any, kernel: Any, *_: Any, **__: Any) -> None:
        function = getattr(kernel, "_pyfunc", None)
        skipped.append(getattr(function, "__name__", "a cuTile kernel"))

    def launch_extended(stream: Any, blocks: Any, _threads: Any, *others: Any, **__: Any) -> None:
        launch(stream, blocks, *others)

    own = sys.modules["cuda.tile._cext"]
    return [
        (module, {"launch": launch}),
        (own, {"launch": launch, "launch_extended": launch_extended}),
    ]


_CONTRACT = """\
- Kernels in cuTile: functions under `@ct.kernel` in the module, launched by `ct.launch` from \
`forward` in torch's current stream; a block of the grid loads tiles, computes and stores them:

```python
import cuda.tile as ct
import torch
from torch import nn

TILE = 1024
TUNABLE = {"TILE": (256, 512, 1024, 2048)}


@ct.kernel
def scale(x, y, factor, size: ct.Constant[int]):
    at = ct.bid(0)
    value = ct.load(x, index=(at,), shape=(size,))
    ct.store(y, index=(at,), tile=value * factor)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        blocks = ct.cdiv(x.numel(), TILE)
        arguments = (x.view(-1), y.view(-1), 2.0, TILE)
        ct.launch(torch.cuda.current_stream(), (blocks,), scale, arguments)
        return y
```

  An index counts tiles, not elements: `index=(row, step)` of `shape=(M, K)` begins at element \
`(row * M, step * K)`. Shapes are powers of 2, and constants: `ct.Constant[int]` parameters. Where \
a tile crosses the edge, a load is undefined unless it says `padding_mode=ct.PaddingMode.ZERO` (or \
`NEG_INF`), and a store is cut; a tile wholly outside is undefined. Reductions: `ct.sum(value, \
axis=1, keepdims=True)`, `ct.max`. A product: `total = ct.zeros((M, N), dtype=ct.float32)`, `for \
step in range(ct.num_tiles(a, axis=1, shape=(M, K)))`, `total = ct.mma(left, right, total)`, which \
takes float32 without tensor cores, `value.astype(ct.bfloat16)` and `ct.tfloat32` with them; \
`ct.store(c, index=(row, column), tile=ct.astype(total, c.dtype))`. Hints of `@ct.kernel(...)`: \
`occupancy`, `num_ctas`. No `ct.tune`: numbers to tune stand in `TUNABLE`. Pass parameters as \
`self.weight.detach()`."""

CUTILE = Language(
    name="cutile",
    title="cuTile",
    devices=("cuda",),
    finds=_finds,
    describe=_describe,
    contract=_CONTRACT,
    imports=("cuda.tile",),
    helpers="`ct.cdiv`",
    fences=frozenset({"cutile"}),
    needs="cuda-tile with tileiras for the kernel",
    packages=(
        Package(
            module="cuda.tile",
            distribution="cuda-tile",
            least=(1, 4),
            newest=(1, 7),
            remedy="pip install 'evolve-kernels[cutile]'",
        ),
    ),
    compilers=_OF_COMPILER,
    missing_tools=_missing_tools,
    unfit_gpu=_unfit_gpu,
    compiles_late=True,
    caches=_caches,
    keep_builds=_keep_builds,
    stubs=_stubs,
)
