"""NVRTC where there is no GPU: of the package `nvidia-cuda-nvrtc`, or the host's."""

import ctypes
from functools import cache
from importlib import util
from pathlib import Path

import pytest
import triton
from torch.cuda import _utils
from torch.utils import cpp_extension

_NAMES = ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so")
_HEADERS = Path(triton.__file__).parent / "backends/nvidia/include"


@cache
def library() -> ctypes.CDLL | None:
    packages = util.find_spec("nvidia")
    folders = packages.submodule_search_locations or () if packages else ()
    found = [str(file) for folder in folders for file in Path(folder).glob("*/lib/libnvrtc.so.*")]
    for name in (*found, *_NAMES):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


def use(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bytes]]:
    """Let `torch.cuda._compile_kernel` compile for an H100; what it compiled, by mangled names."""
    monkeypatch.setattr(_utils, "_get_gpu_rtc_library", library)
    monkeypatch.setattr(cpp_extension, "include_paths", lambda *_: [str(_HEADERS)])
    compiled: list[tuple[str, bytes]] = []

    class Compiled:
        def __init__(self, source: str, name: str) -> None:
            code, mangled = _utils._nvrtc_compile(source, name, "90")
            compiled.append((mangled, code))

        def set_shared_memory_config(self, size: int) -> None:
            assert 0 < size <= 227 * 1024

    monkeypatch.setattr("torch.cuda._compile_kernel", Compiled)
    return compiled
