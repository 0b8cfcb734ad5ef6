"""The headers that `tvm_ffi.cpp` puts before each C++ source, precompiled: two fifths of a build.

The judge compiles them, once for each user and version; candidates can only read them. A build
takes those of its own flags, because other optimisation levels would give another library, and
reads the headers themselves where there are none.
"""

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

from evolve.core.digest import framed_digest
from evolve.languages.inline import variant_of
from evolve.worker.base.versions import compiler_version, package_version
from evolve.worker.sandbox import syscalls

_FLAGS = ("-std=c++17", "-fPIC", "-O2")  # those of tvm_ffi

VARIANTS = (("-O3",), ("-O3", "-march=native"), ("-O3", "-march=native", "-fopenmp"))
"""Further flags: those that models usually write, and those that prompts and seeds have."""

_FIRST = "tvm/ffi/container/tensor.h"
_OTHERS = ("dtype.h", "error.h", "extra/c_env_api.h", "function.h")  # in this order


def folder() -> Path:
    """In the user's cache, if it can be made; other versions have another."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    flags = [*_FLAGS, *map(variant_of, VARIANTS)]
    key = framed_digest("headers", package_version("apache-tvm-ffi"), compiler_version(), *flags)
    place = Path(base) / "evolve-kernels" / f"headers-{key[:16]}"
    with contextlib.suppress(OSError):
        place.mkdir(parents=True, exist_ok=True)
    return place


def precompile() -> None:
    """Compile them for each variant that is not there; nothing if that fails.

    Each takes two seconds and 70 MB.
    """
    found = importlib.util.find_spec("tvm_ffi")
    compiler = shutil.which(os.environ.get("CXX", "c++"))
    if not (found and found.origin and compiler):
        return
    include = f"-I{Path(found.origin).parent / 'include'}"
    for flags in VARIANTS:
        made = folder() / variant_of(flags) / f"{_FIRST}.gch"
        if not made.exists():
            with contextlib.suppress(OSError, subprocess.CalledProcessError):
                _compile([compiler, *_FLAGS, *flags, include], made)


def _compile(command: list[str], made: Path) -> None:
    text = "".join(f"#include <{name}>\n" for name in (_FIRST, *(f"tvm/ffi/{o}" for o in _OTHERS)))
    made.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder()) as place:
        source, output = Path(place) / "all.h", Path(place) / made.name
        source.write_text(text)
        subprocess.run(
            [*command, "-x", "c++-header", str(source), "-o", str(output)],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True,
            preexec_fn=_end_with_us,
        )  # fmt: skip
        output.chmod(0o644)
        output.rename(made)


def _end_with_us() -> None:
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
