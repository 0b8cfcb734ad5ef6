"""The device that judges, in a prompt: the facts that a kernel's design depends on, no more."""

import re
from collections.abc import Iterator, Mapping

from evolve.core.compiled import EXACT_CONVOLUTIONS
from operators.prompting.ceiling import Rates

_UNTOLD = frozenset(
    {"sandbox", "evaluator_version", "rules", "precision", "accumulation", EXACT_CONVOLUTIONS, "os",
     "eager_convolutions", "languages",
     "python", "timing", "half_width", "clock_waits"}
)  # fmt: skip
_OF_GPUS = frozenset({"triton"})  # installed beside torch, but no program for a CPU uses it
_OF_HOST = frozenset(
    {"driver", "cores", "memory_bytes", "compiler", "nvcc_flags", "cpu", "tvm_ffi"}
)
_NAMES = {
    "capability": "compute capability",
    "shared_memory_bytes": "shared memory that a block may have, bytes",
    "warp_size": "threads of a warp",
}
# CUDA C++ Programming Guide, "Technical Specifications per Compute Capability": KB of shared memory
# and threads of a multiprocessor. All of these have 65536 registers.
_MULTIPROCESSORS = {
    "7.0": (96, 2048), "7.5": (64, 1024), "8.0": (164, 2048), "8.6": (100, 1536),
    "8.9": (100, 1536), "9.0": (228, 2048), "10.0": (228, 2048), "12.0": (100, 1536),
}  # fmt: skip
# NVIDIA's data sheets, the more specific name first.
_PEAK_GB_S = (
    (r"\bH200\b", 4800), (r"\bH100 NVL\b", 3900), (r"\bH100 PCIe\b", 2000), (r"\bH100\b", 3350),
    (r"\bA100-SXM4-80GB\b", 2039), (r"\bA100 80GB PCIe\b", 1935), (r"\bA100\b.*\b40GB\b", 1555),
    (r"\bL40S?\b", 864), (r"\bA10G?\b", 600), (r"\bL4\b", 300),
)  # fmt: skip
# NVIDIA's data sheets and architecture white papers.
_L2_MB = ((r"\bH[12]00\b", 50), (r"\bA100\b", 40), (r"\bL40S?\b", 96), (r"\bA10G?\b", 6))


def device_facts(device: Mapping[str, str], rates: Rates | None = None) -> list[tuple[str, str]]:
    """Facts about the device and its software, by the names that prompts use.

    Args:
        device: see `Context.device`.
        rates: measured on it.
    """
    return [*_told(device), *_by_capability(device), *(rates.facts() if rates else ())]


def _told(device: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    is_gpu = "capability" in device or "multiprocessors" in device
    left_out = _UNTOLD | (_OF_HOST if is_gpu else _OF_GPUS)
    if device.get("device") or device.get("cpu"):
        left_out = left_out | {"device_class"}  # says the same
    order = sorted(device, key=lambda name: (name != "device", name))
    for name in order:
        if device[name] and name not in left_out:
            yield _NAMES.get(name, name), device[name]


def _by_capability(device: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Facts that follow from the model and are in no driver's answer."""
    known = _MULTIPROCESSORS.get(device.get("capability", ""))
    if known is not None:
        shared, threads = known
        yield (
            "of one multiprocessor",
            f"65536 registers, {shared} KB of shared memory, {threads} threads",
        )
    name = device.get("device", device.get("device_class", ""))
    for fact, table, unit in (
        ("L2 cache", _L2_MB, "MB"),
        ("memory rate by the data sheet, which neither reading nor a copy exceeds", _PEAK_GB_S,
         "GB/s"),
    ):  # fmt: skip
        if value := next((value for known, value in table if re.search(known, name)), None):
            yield fact, f"{value} {unit}"
