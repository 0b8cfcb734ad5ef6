"""Figures of a kernel compiled for an AMD GPU, under the names of `kernel_stats`.

Read from Triton's `.amdgcn` text, so descriptors and no evidence. Sources: LLVM's "User Guide for
AMDGPU Backend" (code object metadata) and AMD's ISA of CDNA 3 (names of instructions).
"""

import re
from collections import Counter

_INSTRUCTION = re.compile(r"^\t([a-z]\w*)", re.M)
_MULTIPLY = re.compile(r"^\tv_s?mfmac?_\w+?_\d+x\d+x\d+(?:_\d+b)?_?([a-z][a-z0-9]*)", re.M)
_SCRATCH = re.compile(r"^\s+\.private_segment_fixed_size:\s*(\d+)", re.M)
_MAX_TEXT = 1 << 22  # characters that are looked at
_OF_MEMORY = {"global": ("global_", "buffer_", "flat_"), "shared": ("ds_",),
              "matrix": ("v_mfma_", "v_smfmac_")}  # fmt: skip
_TYPES = {"f16": "fp16", "bf16": "bf16", "f32": "fp32", "f64": "fp64", "xf32": "tf32", "i8": "s8"}


def amd_figures(text: str) -> dict[str, float | str]:
    """Descriptors of a kernel's assembly; empty if there is none.

    Shares are of instructions as they stand in the code: `global_share` and `shared_share` access
    these memories, `matrix_share` multiplies matrices. `tensor_cores` has the types that they
    multiply, `spill_bytes` the bytes of scratch memory that a thread needs.
    """
    text = text[:_MAX_TEXT]
    kinds = Counter(map(_kind, _INSTRUCTION.findall(text)))
    total = sum(kinds.values())
    if not total:
        return {}
    found: dict[str, float | str] = {
        f"{kind}_share": round(kinds[kind] / total, 4) for kind in _OF_MEMORY
    }
    found["tensor_cores"] = "+".join(amd_operands(text)) or "no"
    if scratch := _SCRATCH.findall(text):
        found["spill_bytes"] = float(max(map(int, scratch)))
    return found


def amd_operands(text: str) -> list[str]:
    """Operand types of the matrix instructions in a kernel's assembly."""
    return sorted({_type(found) for found in _MULTIPLY.findall(text[:_MAX_TEXT])})


def _kind(opcode: str) -> str:
    return next((kind for kind, first in _OF_MEMORY.items() if opcode.startswith(first)), "")


def _type(named: str) -> str:
    """In the words of `kernel_stats`; of two operands' types the first is given."""
    return "fp8" if named.startswith(("fp8", "bf8", "f8f6f4")) else _TYPES.get(named, named)
