"""Helion: loops over tiles in PyTorch's functions, which become one Triton kernel.

Its kernels are launched, compiled and cached as Triton's are, so `triton` has most of that. Its own
search over configurations, minutes for each shape, is off: a program names one, whose numbers are
tunables. Facts: its source at 1.5.0 and 1.5.1.
"""

import ast
import os
import re
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from evolve.languages.base import Descriptors, Language, Package, release
from evolve.languages.builds import kept_folder
from evolve.languages.descriptors import pattern, precision, without_comments
from evolve.languages.syntax import decorated
from evolve.languages.triton import TRITON

_MAKERS = frozenset({"helion.kernel", "helion.jit"})
_REDUCED = re.compile(r"\b(?:torch|x|hl)\.(sum|amax|amin|max|min|mean|var|logsumexp|reduce)\(")
_TILED = re.compile(r"\btorch\.(?:addmm|baddbmm|matmul|bmm|mm)\(|\bhl\.dot\(")
_TF32 = re.compile(r"\bdot_precision\s*=\s*[\"']tf32[\"']")
_OF_TORCH_2_13 = (2, 13)
_SETTINGS = {"HELION_AUTOTUNE_EFFORT": "none", "HELION_SKIP_CACHE": "1"}


def _finds(tree: ast.Module) -> bool:
    return bool(decorated(tree, _MAKERS.__contains__))


def _describe(source: str) -> Descriptors:
    text = without_comments(source)
    tiled = bool(_TILED.search(text))
    return {
        "memory_access": "blocked" if tiled else "vector",
        "parallelism": "threads+simd" if "hl.tile(" in text or "hl.grid(" in text else "simd",
        "compute_pattern": pattern(text, len(set(_REDUCED.findall(text))), tiled),
        "precision_path": "tf32" if _TF32.search(text) else precision(text),
        "kernels": float(len(re.findall(r"@helion\.(?:kernel|jit)\b|@kernel\b", text))),
    }


def _unfit(version: str) -> str:
    """Its 1.5.1 imports names that Inductor of torch 2.11 does not have; 1.5.0 does without."""
    try:
        torch = metadata.version("torch")
    except metadata.PackageNotFoundError:  # a build from source
        return ""
    if version == "1.5.0" or release(torch) >= _OF_TORCH_2_13:
        return ""
    return f"helion {version} is for torch 2.13, here is {torch}; pip install helion==1.5.0"


def _caches(folder: Path | None, may_build: bool) -> Mapping[str, str]:
    return {"HELION_CACHE_DIR": kept_folder("helion", folder, may_build)}


def _keep_builds(source: str, directory: str | None, may_build: bool) -> None:
    """Its search off, and the Triton that it writes in the process's own folder."""
    if "helion" in source:
        own = {"TORCHINDUCTOR_CACHE_DIR": str(Path.cwd() / "inductor")}
        os.environ.update(_SETTINGS | own)


_CONTRACT = """\
- Kernels in Helion: functions under `@helion.kernel` in the module, called with tensors from \
`forward`; each makes its output and fills it in loops over tiles:

```python
import helion
import helion.language as hl
import torch
from torch import nn

BLOCK = 1024
NUM_WARPS = 4
TUNABLE = {"BLOCK": (256, 512, 1024, 2048), "NUM_WARPS": (1, 2, 4, 8)}


@helion.kernel(config=helion.Config(block_sizes=[BLOCK], num_warps=NUM_WARPS))
def scale(x: torch.Tensor, factor: float) -> torch.Tensor:
    y = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        y[tile] = x[tile] * factor
    return y


class ModelNew(nn.Module):
    def forward(self, x):
        return scale(x.contiguous().view(-1), 2.0).view(x.shape)
```

  `config` is required, and one: no `configs`, no search. Its key `block_sizes` has a number for \
each dimension of each `hl.tile`, in their order; others are `num_warps`, `num_stages`, \
`reduction_loops`, `loop_orders`, `l2_groupings`, `indexing` and `pid_type`. `x[tile, :]` holds \
whole rows, which `torch.amax(..., dim=1, keepdim=True)` and `torch.sum` reduce. A product: \
`for m, n in hl.tile([M, N])`, inside `acc = hl.zeros([m, n], dtype=torch.float32)`, \
`for k in hl.tile(K): acc = torch.addmm(acc, a[m, k], b[k, n])`. Products of float32 are TF32 \
unless the decorator says `dot_precision="ieee"` or `"tf32x3"`. Statements outside of `hl.tile` \
run on the host: shapes and `torch.empty` only."""

HELION = Language(
    name="helion",
    title="Helion",
    devices=("cuda",),
    finds=_finds,
    describe=_describe,
    contract=_CONTRACT,
    imports=("helion", "helion.language"),
    helpers="calls of functions under `@helion.kernel`",
    fences=frozenset({"helion"}),
    needs="helion and triton for the kernel",
    packages=(
        Package(module="helion", distribution="helion", least=(1, 5), newest=(1, 5), unfit=_unfit),
        Package(module="triton", distribution="triton", least=(3, 5), newest=(3, 9)),
    ),
    compiles_late=True,
    caches=_caches,
    keep_builds=_keep_builds,
    stubs=TRITON.stubs,
)
