"""Facts of an AMD GPU by AMD's management library, `amdsmi`; none without it.

ROCm brings the Python package, and torch uses it for the same purpose. Source: amdsmi 7.0.2,
`amdsmi_interface.py`.
"""

import functools
from importlib import import_module
from pathlib import Path
from typing import Any

_MODULE_VERSION = Path("/sys/module/amdgpu/version")


@functools.cache
def _library() -> Any:
    # The package looks for its C library when it is imported, and fails in several ways.
    try:
        library = import_module("amdsmi")
    except (ImportError, OSError, KeyError, AttributeError):
        return None
    try:
        library.amdsmi_init()
    except library.AmdSmiException:
        return None
    return library


@functools.cache
def _handle(address: str) -> Any:
    """Of the GPU at this PCI address, `0000:c1:00.0`."""
    library = _library()
    if library is None:
        return None
    try:
        handles = library.amdsmi_get_processor_handles()
        return next((one for one in handles if _address_of(library, one) == address), None)
    except library.AmdSmiException:
        return None


def _address_of(library: Any, handle: Any) -> str:
    return str(library.amdsmi_get_gpu_device_bdf(handle)).lower()


def driver_version(address: str) -> str:
    """Of the kernel driver; empty if it is not known."""
    library, handle = _library(), _handle(address)
    if handle is not None:
        try:
            return str(library.amdsmi_get_gpu_driver_info(handle)["driver_version"])
        except library.AmdSmiException:
            pass
    try:
        return _MODULE_VERSION.read_text().strip()
    except OSError:  # a driver of the kernel itself has no version of its own
        return ""


def processes(address: str) -> dict[int, int]:
    """Processes that compute on the GPU, by id, with the bytes of its memory that each has."""
    library, handle = _library(), _handle(address)
    if handle is None:
        return {}
    try:
        found = library.amdsmi_get_gpu_process_list(handle)
    except library.AmdSmiException:
        return {}
    return {one["pid"]: one["memory_usage"]["vram_mem"] for one in found}
