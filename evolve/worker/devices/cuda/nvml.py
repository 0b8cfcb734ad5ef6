"""Facts of a GPU by NVIDIA's management library; none without that library."""

import ctypes
import functools

_MAX_PROCESSES = 256
_SUCCESS = 0
_UNTOLD = (1 << 64) - 1  # bytes of a process, if the driver does not say


class _Process(ctypes.Structure):
    """`nvmlProcessInfo_t`, version 2 and later."""

    _fields_ = (
        ("pid", ctypes.c_uint),
        ("memory", ctypes.c_ulonglong),
        ("instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


@functools.cache
def _library() -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    return library if library.nvmlInit_v2() == _SUCCESS else None


@functools.cache
def _handle(uuid: str) -> ctypes.c_void_p | None:
    library, handle = _library(), ctypes.c_void_p()
    if library is None:
        return None
    code = library.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}".encode(), ctypes.byref(handle))
    return handle if code == _SUCCESS else None


def driver_version() -> str:
    """Of the kernel driver; empty if it is not told."""
    library, text = _library(), ctypes.create_string_buffer(80)
    if library is None or library.nvmlSystemGetDriverVersion(text, 80) != _SUCCESS:
        return ""
    return text.value.decode()


def node_of(uuid: str) -> str:
    """The path of the GPU's device node, the first if that is not known."""
    library, handle, minor = _library(), _handle(uuid), ctypes.c_uint(0)
    if library is not None and handle is not None:
        library.nvmlDeviceGetMinorNumber(handle, ctypes.byref(minor))
    return f"/dev/nvidia{minor.value}"


def processes(uuid: str) -> dict[int, int]:
    """Processes that compute on the GPU, by id in the driver's namespace; bytes that each has.

    Memory that it maps and another has made is not counted.
    """
    library, handle = _library(), _handle(uuid)
    if library is None or handle is None:
        return {}
    count, found = ctypes.c_uint(_MAX_PROCESSES), (_Process * _MAX_PROCESSES)()
    code = library.nvmlDeviceGetComputeRunningProcesses_v3(handle, ctypes.byref(count), found)
    told = found[: count.value] if code == _SUCCESS else []
    return {one.pid: one.memory if one.memory != _UNTOLD else 0 for one in told}
