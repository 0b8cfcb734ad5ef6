"""Versions of the compilers and libraries of candidates."""

import functools
import importlib.metadata
import os
import platform
import shutil
import subprocess

from evolve.languages.registry import languages
from evolve.worker.base import nvcc_flags

# They have an entry of their own, or decide nothing.
_LEFT_OUT = ("torch", "triton", "apache-tvm-ffi", "ninja")


@functools.lru_cache
def compiler_version() -> str:
    """First line that the C++ compiler says about itself; empty if there is none."""
    compiler = shutil.which(os.environ.get("CXX", "c++"))
    if compiler is None:
        return ""
    answer = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False)
    return answer.stdout.partition("\n")[0].strip()


def package_version(name: str) -> str:
    """Version of an installed distribution; empty if it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _of_languages() -> str:
    """Installed packages of languages, with their versions: `cuda-tile 1.7.0, helion 1.5.1`."""
    names = {
        name
        for one in languages().values()
        for name in (*(package.distribution for package in one.packages), *one.compilers)
    }
    found = {name: package_version(name) for name in sorted(names.difference(_LEFT_OUT))}
    return ", ".join(f"{name} {version}" for name, version in found.items() if version)


@functools.lru_cache
def versions() -> dict[str, str]:
    """Versions of the libraries of candidates; an empty one is not installed."""
    return {
        "python": platform.python_version(),
        "torch": package_version("torch"),
        "triton": package_version("triton"),
        "tvm_ffi": package_version("apache-tvm-ffi"),
        "compiler": compiler_version(),
        "nvcc_flags": nvcc_flags.current(),
        "languages": _of_languages(),
        "os": platform.platform(),
    }
