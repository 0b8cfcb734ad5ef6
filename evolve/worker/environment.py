"""Facts that every evaluation is stored with."""

import functools
import importlib.metadata
import os
import platform
import shutil
import subprocess

from evolve.core.digest import framed_digest
from evolve.worker import cuda_flags
from evolve.worker.device import Device

JUDGE_VERSION = "29"
"""Counts what changes verdicts or times: budgets, families, stages, the clock, descriptors."""


@functools.lru_cache
def compiler_version() -> str:
    """First line that the C++ compiler says about itself; empty where there is none."""
    compiler = shutil.which(os.environ.get("CXX", "c++"))
    if compiler is None:
        return ""
    answer = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False)
    return answer.stdout.partition("\n")[0].strip()


def package_version(name: str) -> str:
    """Version of an installed distribution; empty where it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def evaluator_version(device: Device) -> str:
    """The judge's version, a digest of the libraries' and the compiler's, and the width asked for.

    A verdict is answered from the store under an equal version only.
    """
    is_usual = device.half_width == type(device).half_width
    return _version() if is_usual else f"{_version()}-w{device.half_width:g}"


@functools.lru_cache
def _version() -> str:
    found = versions()
    libraries = [found[name] for name in ("python", "torch", "triton", "tvm_ffi", "compiler")]
    libraries += filter(None, [found["nvcc_flags"]])
    return f"{JUDGE_VERSION}-{framed_digest(*libraries)[:8]}"


@functools.lru_cache
def versions() -> dict[str, str]:
    """Versions of what runs candidates; an empty one is not installed."""
    return {
        "python": platform.python_version(),
        "torch": package_version("torch"),
        "triton": package_version("triton"),
        "tvm_ffi": package_version("apache-tvm-ffi"),
        "compiler": compiler_version(),
        "nvcc_flags": cuda_flags.current(),
        "os": platform.platform(),
    }


def environment(
    device: Device, tier: str, precision: str, accumulation: str, timing: str
) -> dict[str, str]:
    """All that a number depends on besides the task and the program."""
    return {
        "evaluator_version": evaluator_version(device),
        **versions(),
        **device.describe(),
        "sandbox": tier,
        "precision": precision,
        "accumulation": accumulation,
        "timing": timing,
        "half_width": f"{device.half_width:g}",
    }
