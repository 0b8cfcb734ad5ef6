"""Figures of a compiled kernel, by which archives tell programs apart.

Read from the files of the candidate's build, so descriptors and no evidence. Shares are of
instructions as they stand in the code, not as often as they run.
"""

import re
import struct
from collections import Counter
from collections.abc import Iterator

_INSTRUCTION = re.compile(r"^[ \t]*(?:@!?%\w+[ \t]+)?([a-z][a-z0-9_]*(?:[.:]{1,2}\w+)*)[\s;]", re.M)
_MULTIPLIES = re.compile(r"(?:^|\.)w?mma(?:_async)?\.")
_ACCESSES = frozenset(("ld", "st", "atom", "red", "cp", "ldmatrix", "stmatrix"))
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_NV_INFO = 0x70000000  # type of the sections named .nv.info
_MAX_TEXT, _MAX_INFO = 1 << 22, 1 << 20  # characters and bytes that are looked at
_FRAME_SIZE = (0x04, 0x11)  # EIFMT_SVAL, EIATTR_FRAME_SIZE: a symbol and a size


def instruction_shares(ptx: str) -> dict[str, float]:
    """Shares of a kernel's instructions by descriptor; empty if there are none.

    `global_share` and `shared_share` access these memories, `matrix_share` multiplies matrices
    (PTX ISA 8.7, chapter 9).
    """
    kinds = Counter(map(_kind, _INSTRUCTION.findall(ptx[:_MAX_TEXT])))
    total = sum(kinds.values())
    counted = ("global", "shared", "matrix") if total else ()
    return {f"{kind}_share": round(kinds[kind] / total, 4) for kind in counted}


def _kind(opcode: str) -> str:
    root = opcode.partition(".")[0]
    if _MULTIPLIES.search(opcode):
        return "matrix"
    if root not in _ACCESSES:
        return ""
    if root.endswith("matrix") or (".shared" in opcode and root != "cp"):
        return "shared"
    return "global" if ".global" in opcode or root == "cp" else ""


def stack_bytes(cubin: bytes) -> int | None:
    """Bytes of stack that a thread of the kernel needs; None if the file does not say.

    Triton's kernels have no arrays of their own there: the ones shown are spilled registers.
    Layout: ELF for 64-bit machines; attributes as `cuobjdump -elf` names them.
    """
    try:
        return max((size for info in _infos(cubin) for size in _frames(info)), default=None)
    except (struct.error, ValueError, OverflowError):
        return None


def _infos(cubin: bytes) -> Iterator[bytes]:
    if not cubin.startswith(b"\x7fELF\x02\x01"):
        raise ValueError("not an ELF file for a 64-bit machine")
    header = _HEADER.unpack_from(cubin)
    first, size, count = header[6], header[11], header[12]
    left = _MAX_INFO
    for place in range(count):
        _, kind, _, _, offset, length, *_ = _SECTION.unpack_from(cubin, first + place * size)
        if kind == _NV_INFO:
            yield cubin[offset : offset + min(length, left)]
            left -= min(length, left)


def _frames(info: bytes) -> Iterator[int]:
    at = 0
    while at + 4 <= len(info):
        form, attribute, size = struct.unpack_from("<BBH", info, at)
        at += 4
        if (form, attribute) == _FRAME_SIZE:
            yield struct.unpack_from("<II", info, at)[1]
        if form == _FRAME_SIZE[0]:
            at += size
