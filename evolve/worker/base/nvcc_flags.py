"""Headers and flags for CUDA C++ besides a program's own: CUTLASS and the like.

nvcc always reads further options from NVCC_APPEND_FLAGS; so they reach every build,
through tvm_ffi as through torch. They are part of the judge's version, since they change programs.
"""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from evolve.core.errors import UsageError

VARIABLE = "NVCC_APPEND_FLAGS"
_ARCHITECTURES = ("TVM_FFI_CUDA_ARCH_LIST", "TORCH_CUDA_ARCH_LIST")  # before the driver is asked
_ALLOWED = re.compile(
    r"-O[0-3]|--use_fast_math|-use_fast_math|--?lineinfo|-std=c\+\+(?:17|20)"
    r"|--?expt-(?:relaxed-constexpr|extended-lambda)|--?extended-lambda"
    r"|-D\w+(?:=[\w.]+)?|--?maxrregcount=\d+|--?(?:ftz|fmad|prec-div|prec-sqrt)=(?:true|false)"
    r"|--?diag-suppress=[\d,]+|-arch=sm_\d+[af]?|-gencode=arch=compute_\d+[af]?,code=sm_\d+[af]?"
)
_ARCH = re.compile(r"(?<!\S)-arch=sm_(\d+)(\d)([af]?)(?!\S)")


def add_flags(include: Sequence[str], flags: Sequence[str]) -> None:
    """Have all CUDA C++ of this process and those that it starts compiled so.

    Raises:
        UsageError: a folder is not there, or a flag is not among those allowed.
    """
    for folder in include:
        if not Path(folder).is_dir() or re.search(r"\s", folder):
            raise UsageError(f"cuda.include: {folder} is no folder (or has a space): correct it")
    for flag in flags:
        if not _ALLOWED.fullmatch(flag):
            raise UsageError(
                f"cuda.flags: {flag} is not allowed. Optimisation and language flags are: -O3, "
                "--use_fast_math, -std=c++20, -DNAME=VALUE, --maxrregcount=N, -arch=sm_90a, ..."
            )
    words = [*(f"-I{Path(folder).absolute()}" for folder in include), *flags]
    if words:
        os.environ[VARIABLE] = " ".join(words)


def current() -> str:
    """The further options in force."""
    return os.environ.get(VARIABLE, "")


def variables() -> dict[str, str]:
    """Of the processes that build: the GPU that a flag names, for `load_inline` of each package.

    They would have nvcc build for the driver's answer too, which is 9.0 for 9.0a, without wgmma.
    """
    found = _ARCH.findall(current())
    return {
        name: f"{major}.{minor}{kind}" for major, minor, kind in found for name in _ARCHITECTURES
    }
