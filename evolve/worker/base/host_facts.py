"""GPUs and their tools as this interpreter finds them, even if parts are broken.

Opens no device and needs none, so that it also speaks if nothing can be judged.
"""

import csv
import ctypes
import importlib.util
import os
import platform
import re
import runpy
import shutil
import subprocess
import warnings
from pathlib import Path
from typing import Any

from evolve.languages.registry import languages

_PATIENCE_S = 30
_GPU_FIELDS = {
    "index": "index",
    "name": "name",
    "uuid": "uuid",
    "driver": "driver_version",
    "memory_mib": "memory.total",
    "used_mib": "memory.used",
    "busy_percent": "utilization.gpu",
    "mig": "mig.mode.current",
    "capability": "compute_cap",
}
_TOOLS = {
    "nvcc": (os.environ.get("CUDA_HOME", "/usr/local/cuda") + "/bin",),
    "ncu": ("/usr/local/cuda/bin", "/opt/nvidia/nsight-compute"),
    "compute-sanitizer": ("/usr/local/cuda/bin",),
    "hipcc": (os.environ.get("ROCM_HOME", os.environ.get("ROCM_PATH", "/opt/rocm")) + "/bin",),
}


def examine_host() -> dict[str, Any]:
    """Plain data: `torch`, `driver`, the `gpus` of both, `tools` by name, and versions.

    `languages` has why their programs cannot be built. An empty text stands for a missing value.
    """
    compiler = os.environ.get("CC", "cc")
    return {
        "python": platform.python_version(),
        "torch": _torch(),
        "languages": {one.name: one.missing() for one in languages().values() if one.is_for_gpus},
        "driver": {"gpus": _driver_gpus(), "cuda": _driver_cuda(), "slices": _mig_slices()},
        "visible": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "tools": {name: _tool(name) for name in _TOOLS}
        | {"c compiler": shutil.which(compiler) or ""},
    }


def promises_gpu() -> bool:
    """Whether torch should see a GPU, by its own version file and by the driver.

    In a tenth of a second: to import torch, and to ask all tools, takes many. A GPU for which this
    torch has no kernels is promised too.
    """
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return False
    try:
        version = runpy.run_path(str(Path(spec.origin).with_name("version.py")))
        is_others = version.get("hip") or is_metax(version["__version__"])
        needed = "" if is_others else str(version["cuda"] or "")
        driver = ctypes.CDLL("libcuda.so.1")
        count = ctypes.c_int(0)
        if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
            return False
    except (OSError, AttributeError, KeyError):
        return False
    return bool(needed and count.value) and major(_driver_cuda()) >= major(needed)


def is_metax(version: str) -> bool:
    """Whether a torch of this version is for MetaX's GPUs, though it says that it is for CUDA."""
    return "metax" in version.partition("+")[2]  # as in 2.8.0+metax3.5.3.9


def major(version: str) -> int:
    """The 12 of `12.8`; 0 if a text does not begin with a number."""
    first = version.partition(".")[0].strip()
    return int(first) if first.isdigit() else 0


def _torch() -> dict[str, Any]:
    """Torch's version and devices: its GPUs in its own count."""
    found: dict[str, Any] = {"version": "", "cuda": "", "hip": "", "problem": "", "gpus": []}
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            import torch

            found["version"] = torch.__version__
            found["cuda"], found["hip"] = torch.version.cuda or "", torch.version.hip or ""
            found["architectures"] = torch.cuda.get_arch_list()
            if torch.cuda.is_available():
                found["gpus"] = [_seen(index) for index in range(torch.cuda.device_count())]
        except (ImportError, OSError, RuntimeError, AssertionError) as error:
            found["problem"] = f"{type(error).__name__}: {error}"
    if warned and not found["problem"]:
        found["problem"] = str(warned[-1].message)
    found["problem"] = " ".join(found["problem"].split())[:300]
    return found


def _seen(index: int) -> dict[str, Any]:
    import torch

    facts = torch.cuda.get_device_properties(index)
    return {
        "index": index,
        "name": facts.name,
        "uuid": str(facts.uuid),
        "capability": f"{facts.major}.{facts.minor}",
        "architecture": str(getattr(facts, "gcnArchName", "")).partition(":")[0],  # AMD's
        "memory_mib": facts.total_memory >> 20,
    }


def _driver_gpus() -> list[dict[str, str]]:
    """The list of `nvidia-smi`; nothing if there is none, or it fails."""
    query = f"--query-gpu={','.join(_GPU_FIELDS.values())}"
    lines = _output(["nvidia-smi", query, "--format=csv,noheader,nounits"]).splitlines()
    rows = csv.reader(lines, skipinitialspace=True)
    return [
        dict(zip(_GPU_FIELDS, row, strict=True)) for row in rows if len(row) == len(_GPU_FIELDS)
    ]


def _mig_slices() -> list[str]:
    """Names of MIG slices, as `nvidia-smi -L` prints them."""
    return re.findall(r"^\s+MIG (\S+)\s+Device", _output(["nvidia-smi", "-L"]), re.M)


def _driver_cuda() -> str:
    """The newest CUDA that the driver serves, as `12.8`."""
    version = ctypes.c_int(0)
    try:
        code = ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
    except (OSError, AttributeError):
        return ""
    return "" if code else f"{version.value // 1000}.{version.value % 1000 // 10}"


def find_tool(name: str) -> str | None:
    """The path of one of the vendors' tools on this host."""
    return shutil.which(name) or shutil.which(name, path=os.pathsep.join(_TOOLS[name]))


def _tool(name: str) -> str:
    """A tool's path and version."""
    if (path := find_tool(name)) is None:
        return ""
    version = re.search(r"(?:release|[Vv]ersion:?) (\d[\d.]*)", _output([path, "--version"]))
    return f"{path}, {version[1].rstrip('.')}" if version else path


def _output(command: list[str]) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_PATIENCE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return "" if done.returncode else done.stdout
