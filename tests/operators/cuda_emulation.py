"""Kernels in CUDA C++ on the CPU: a thread for each of theirs, one block after the other.

In the place of `torch.cuda._compile_kernel`. Slow, so launches have to be small.
"""

import ctypes
import hashlib
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch

HEADER = Path(__file__).with_name("cuda_emulation.h")
_FOLDER = Path(tempfile.gettempdir()) / "emulated-cuda-kernels"
_DYNAMIC = re.compile(r"extern __shared__ [^;]* memory\[\];")


class Kernel:
    """What `_compile_kernel` returns."""

    def __init__(self, source: str, name: str) -> None:
        source = re.sub(r"^#include <.*>$", "", source, flags=re.M)
        source = _DYNAMIC.sub("unsigned char* memory = emulated::memory.data();", source)
        text = f'#include "{HEADER}"\n{source}\nint main_(void** a, const unsigned* g) '
        text += f"{{ return emulated::launch(&{name}, a, g); }}\n"
        text += 'extern "C" int launch(void** a, const unsigned* g) { return main_(a, g); }\n'
        self._launch = ctypes.CDLL(str(_built(text))).launch

    def set_shared_memory_config(self, size: int) -> None:
        assert size <= 227 * 1024

    def __call__(
        self,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        args: Sequence[torch.Tensor | int | float],
        shared_mem: int = 0,
    ) -> None:
        kinds = {int: ctypes.c_int, float: ctypes.c_double}
        values = [
            ctypes.c_void_p(one.data_ptr())
            if isinstance(one, torch.Tensor)
            else kinds[type(one)](one)
            for one in args
        ]
        pointers = [ctypes.cast(ctypes.byref(value), ctypes.c_void_p) for value in values]
        sizes = (ctypes.c_uint * 7)(*grid, *block, shared_mem)
        self._launch((ctypes.c_void_p * len(pointers))(*pointers), sizes)


def _built(text: str) -> Path:
    _FOLDER.mkdir(exist_ok=True)
    name = hashlib.sha256((text + HEADER.read_text()).encode()).hexdigest()[:24]
    library = _FOLDER / f"{name}.so"
    if not library.exists():
        file = _FOLDER / f"{name}.cpp"
        file.write_text(text)
        command = ["g++", "-std=c++20", "-O2", "-w", "-shared", "-fPIC", "-pthread", str(file)]
        done = subprocess.run([*command, "-o", str(library)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[:3000]
    return library
