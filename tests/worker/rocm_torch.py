"""ROCm's torch, simulated by a torch for the CPU: what it calls device memory is the host's.

To be installed in a process of its own. The driver below it is `fake_driver`'s.
"""

import contextlib
import ctypes
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

FACTS = SimpleNamespace(
    name="AMD Instinct MI300X",
    uuid="6e5f-0",
    total_memory=192 << 30,
    L2_cache_size=4 << 20,
    multi_processor_count=304,
    shared_memory_per_block=64 << 10,
    warp_size=64,
    major=9,
    minor=4,
    gcnArchName="gfx942:sramecc+:xnack-",
)
PROCESSES = [
    {"pid": 1, "mem": 5, "memory_usage": {"vram_mem": 7 << 30, "gtt_mem": 0, "cpu_mem": 0}}
]


class _OnHost(TorchFunctionMode):
    """Tensors of `cuda` are of the CPU; one of device memory begins at its address."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        options = dict(kwargs or {})
        options.pop("pin_memory", None)
        if str(options.get("device", "")).startswith("cuda"):
            options["device"] = "cpu"
        about = getattr(args[0], "__cuda_array_interface__", None) if args else None
        if func is torch.as_tensor and about:
            bytes_at = (ctypes.c_uint8 * about["shape"][0]).from_address(about["data"][0])
            return torch.frombuffer(bytes_at, dtype=torch.uint8)
        return func(*args, **options)


class _Event:
    """Done as soon as the driver's stream waits for nothing."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def record(self) -> None:
        """In the stream that the driver simulates."""

    def query(self) -> bool:
        return not self._library.fake_waits()


def install(library: str) -> None:
    """Have torch be that of ROCm 7.1 with one MI300X, over the driver in this file."""
    driver = ctypes.CDLL(library)
    torch.version.hip, torch.version.cuda = "7.1.0", None
    simulated = {
        "is_available": lambda: True,
        "init": lambda: None,
        "get_device_properties": lambda index: FACTS,
        "mem_get_info": lambda: (190 << 30, 192 << 30),
        "set_per_process_memory_fraction": lambda share: None,
        "current_device": lambda: 0,
        "synchronize": lambda: None,
        "empty_cache": lambda: None,
        "Stream": SimpleNamespace,
        "stream": lambda stream: contextlib.nullcontext(),
        "Event": lambda: _Event(driver),
        "MemPool": lambda allocator: SimpleNamespace(id=(0, 1)),
        "use_mem_pool": lambda pool: contextlib.nullcontext(),
    }
    for name, value in simulated.items():
        setattr(torch.cuda, name, value)
    torch.cuda.memory.CUDAPluggableAllocator = lambda *names: SimpleNamespace(
        allocator=lambda: None
    )
    sys.modules["amdsmi"] = _management()
    _OnHost().__enter__()


def _management() -> ModuleType:
    """The package `amdsmi` with that GPU and another."""
    found: Any = ModuleType("amdsmi")
    found.AmdSmiException = type("AmdSmiException", (Exception,), {})
    found.amdsmi_init = lambda: None
    found.amdsmi_get_processor_handles = lambda: ["0000:05:00.0", "0000:C1:00.0"]
    found.amdsmi_get_gpu_device_bdf = lambda handle: handle
    found.amdsmi_get_gpu_driver_info = lambda handle: {"driver_version": f"6.14 of {handle}"}
    found.amdsmi_get_gpu_process_list = lambda handle: PROCESSES if "C1" in handle else []
    return found
