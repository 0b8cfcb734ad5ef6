"""Triton."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evolve.languages.base import Descriptors, Language, Package, Stubs
from evolve.languages.builds import kept_folder
from evolve.languages.descriptors import pattern, precision, without_comments
from evolve.languages.syntax import decorated, launched, parsed

_MAKERS = frozenset({"jit", "autotune", "heuristics"})
_REDUCED = re.compile(r"\btl\.(sum|max|min|reduce|argmax|argmin|cumsum|associative_scan)\(")
_TILED = re.compile(r"\btl\.(?:dot|make_block_ptr|make_tensor_descriptor)\(")
_NOT_INTERPRETED = {
    "it asks Triton for a GPU": r"active drivers|triton\.runtime\.driver",
    "it asks for a tensor on a GPU": r"\bis_cuda\b|CUDA tensor|cuda tensor|on (the )?(cuda|GPU)\b",
    "it asks torch for a GPU": r"not compiled with CUDA|No CUDA GPUs|NVIDIA driver|torch\.cuda\.",
    "it uses a feature that the interpreter has not": r"NotImplementedError|'InterpreterBuilder'"
    r" object has no attribute|in interpreter mode|inline_asm|extern_elementwise",
}  # fmt: skip
_NO_LIBRARY = "it calls libdevice, which the interpreter has not"


def launches_triton(source: str) -> bool:
    """Whether a source defines a Triton kernel and launches it: `kernel[grid](...)`."""
    tree = parsed(source)
    return bool(launched(tree) & decorated(tree, _makes_kernel))


def _makes_kernel(name: str) -> bool:
    package, _, maker = name.rpartition(".")
    is_triton = package.partition(".")[0] in ("triton", "") and ".experimental" not in package
    return is_triton and maker in _MAKERS


def describe_blocks(source: str, kernel: str) -> Descriptors:
    """Descriptors of kernels that compute with blocks, in Triton's names.

    Args:
        source: with `tl.` before the names of the language.
        kernel: the decorator of one.
    """
    text = without_comments(source)
    tiled = bool(_TILED.search(text))
    return {
        "memory_access": "blocked" if tiled else "vector" if "tl.arange(" in text else "scalar",
        "parallelism": "threads+simd" if "tl.program_id(" in text else "simd",
        "compute_pattern": pattern(text, len(set(_REDUCED.findall(text))), tiled),
        "precision_path": precision(text),
        "kernels": float(len(re.findall(rf"{re.escape(kernel)}\b", text))),
    }


def _beyond_interpreter(said: str, source: str) -> str:
    if "libdevice" in source and "NoneType" in said:
        return _NO_LIBRARY
    return next((why for why, words in _NOT_INTERPRETED.items() if re.search(words, said)), "")


def _caches(folder: Path | None, may_build: bool) -> Mapping[str, str]:
    return {"TRITON_CACHE_DIR": kept_folder("triton", folder, may_build)}


def _stubs(skipped: list[str]) -> Stubs:
    try:
        from triton.runtime.interpreter import InterpretedFunction
        from triton.runtime.jit import JITFunction
    except ImportError:
        return []

    def run(kernel: Any, *_: Any, **__: Any) -> None:
        skipped.append(getattr(kernel, "__name__", "a Triton kernel"))

    return [(InterpretedFunction, {"run": run}), (JITFunction, {"run": run})]


_CONTRACT = """\
- Kernels in Triton: functions under `@triton.jit` in the module, launched as `kernel[grid](...)` \
from `forward`. A load or store is masked where a block does not divide its dimension, and offsets \
are 64-bit where a tensor may exceed 2**31 elements."""

TRITON = Language(
    name="triton",
    title="Triton",
    devices=("cuda", "hip"),
    finds=lambda tree: bool(decorated(tree, _makes_kernel)),
    describe=lambda source: describe_blocks(source, "@triton.jit"),
    contract=_CONTRACT,
    imports=("triton", "triton.language"),
    helpers="tensor descriptors (`triton.tools.tensor_descriptor` or `tl.make_tensor_descriptor`), "
    "`triton.cdiv`, `triton.next_power_of_2`, `triton.set_allocator` with one that calls "
    "`torch.empty`",
    fences=frozenset({"triton"}),
    needs="triton for the kernel",
    packages=(Package(module="triton", distribution="triton", newest=(3, 9)),),
    preload=("triton", "triton.language"),
    compiles_late=True,
    interpreter={"TRITON_INTERPRET": "1"},
    beyond_interpreter=_beyond_interpreter,
    caches=_caches,
    stubs=_stubs,
)
