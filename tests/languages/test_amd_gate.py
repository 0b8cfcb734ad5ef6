"""The seeds in Triton compile for AMD's GPUs with the ordinary wheel, no GPU needed.

Invariants:
- the kernel of each, with its own block and number of warps, becomes code for gfx942 and gfx950,
  whose wavefronts have 64 threads.
"""

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

from evolve.tasks.shipped import library_folder

WAVEFRONT = 64
TYPES = {"n": "i32", "eps": "fp32", "BLOCK": "constexpr"}  # others are pointers to fp32
SEEDS = sorted(library_folder().glob("*/seeds/seed_triton.py"))


def imported(path: Path) -> ModuleType:
    """A shipped seed; Triton reads the text of its kernel from the file."""
    spec = importlib.util.spec_from_file_location(f"seed_of_{path.parents[1].name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compiled(seed: ModuleType, architecture: str) -> Any:
    (kernel,) = (one for one in vars(seed).values() if isinstance(one, JITFunction))
    types = {name: TYPES.get(name, "*fp32") for name in kernel.arg_names}
    source = ASTSource(kernel, types, {"BLOCK": seed.BLOCK})
    target = GPUTarget("hip", architecture, WAVEFRONT)
    return triton.compile(source, target=target, options={"num_warps": seed.NUM_WARPS})


def test_there_are_seeds_in_triton():
    assert {path.parents[1].name for path in SEEDS} >= {"softmax", "rmsnorm"}


@pytest.mark.parametrize("architecture", ["gfx942", "gfx950"])
@pytest.mark.parametrize("path", SEEDS, ids=[path.parents[1].name for path in SEEDS])
def test_a_seed_in_triton_compiles_for_an_amd_gpu(architecture, path, tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    found = compiled(imported(path), architecture)
    assert f'.amdgcn_target "amdgcn-amd-amdhsa--{architecture}"' in found.asm["amdgcn"]
    assert f".wavefront_size: {WAVEFRONT}" in found.asm["amdgcn"]
    assert found.asm["hsaco"].startswith(b"\x7fELF")
