"""One list of driver calls, under the names of two drivers: CUDA's and the HIP runtime's.

The calls take the same arguments in the same order; structures have the same layout and constants
the same values, except where `DriverCalls` has a field. Sources: the CUDA driver API, and
`hip/hip_runtime_api.h` of HIP 7.1, which Triton's wheel carries (`triton/backends/amd/include`); a
test compiles against that header.

    CUDA driver                        HIP runtime (line of that header)
    cuMemGetAllocationGranularity      hipMemGetAllocationGranularity (9301)
    cuMemCreate                        hipMemCreate (9253)
    cuMemExportToShareableHandle       hipMemExportToShareableHandle (9269)
    cuMemImportFromShareableHandle     hipMemImportFromShareableHandle (9330)
    cuMemAddressReserve                hipMemAddressReserve (9237)
    cuMemMap, cuMemSetAccess           hipMemMap (9347), hipMemSetAccess (9403)
    cuMemUnmap, cuMemAddressFree       hipMemUnmap (9416), hipMemAddressFree (9221)
    cuMemRelease                       hipMemRelease (9374)
    cuStreamWaitValue32_v2             hipStreamWaitValue32 (3099), with a mask
    cuDeviceGetPCIBusId                hipDeviceGetPCIBusId (2135)
    cuGetErrorName(code, &text)        text = hipGetErrorName(code) (2724)
    of `native.c`:
    cuStreamCreate                     hipStreamCreateWithFlags (2808)
    cuLaunchKernel of a copy           hipMemcpyDtoDAsync (4816)
    cuMemcpyDtoHAsync_v2               hipMemcpyDtoHAsync (4797)
    cuStreamWriteValue32_v2            hipStreamWriteValue32 (3161)
    cuStreamSynchronize                hipStreamSynchronize (2905)
    cuCtxGetCurrent, cuCtxSetCurrent   none: a thread's device is the first one (2203)
    cuCtxResetPersistingL2Cache        none: there are no such cache lines to ask for
"""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

_MAPS = Path("/proc/self/maps")


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverCalls:
    """How one driver names its calls, and where it differs.

    Attributes:
        is_hip: whether they are the HIP runtime's, as `native.c` asks.
        library: the file's name.
        bundled_with_torch: whether torch may bring a copy of the library, which is the one to call.
        prefix: of all calls.
        wait_call: its name without the prefix.
        wait_extra: arguments of that call behind those of CUDA.
        error_text: of the library and a code, the error's name.
        imports_by_address: whether the call that imports memory may want the address of the
            descriptor. The header of HIP has a `void*` and does not say, and releases differ.
    """

    is_hip: bool
    library: str
    bundled_with_torch: bool
    prefix: str
    wait_call: str
    wait_extra: tuple[ctypes.c_uint32, ...]
    error_text: Callable[[ctypes.CDLL, int], bytes | None]
    imports_by_address: bool

    def path(self) -> str:
        """Of the library that this process has loaded, or its bare name."""
        if not self.bundled_with_torch:
            return self.library
        lines = (line.split(maxsplit=5) for line in _MAPS.read_text().splitlines())
        files = (Path(line[5]) for line in lines if len(line) == 6)
        return str(next((file for file in files if file.name.startswith(self.library)),
                        self.library))  # fmt: skip


def _text_by_pointer(library: ctypes.CDLL, code: int) -> bytes | None:
    text = ctypes.c_char_p()
    library.cuGetErrorName(code, ctypes.byref(text))
    return text.value


def _text_returned(library: ctypes.CDLL, code: int) -> bytes | None:
    name = library.hipGetErrorName
    name.restype = ctypes.c_char_p
    text: bytes | None = name(code)
    return text


CUDA_CALLS = DriverCalls(
    is_hip=False,
    library="libcuda.so.1",
    bundled_with_torch=False,
    prefix="cu",
    wait_call="StreamWaitValue32_v2",
    wait_extra=(),
    error_text=_text_by_pointer,
    imports_by_address=False,
)
HIP_CALLS = DriverCalls(
    is_hip=True,
    library="libamdhip64.so",
    bundled_with_torch=True,
    prefix="hip",
    wait_call="StreamWaitValue32",
    wait_extra=(ctypes.c_uint32(0xFFFFFFFF),),
    error_text=_text_returned,
    imports_by_address=True,
)


def driver_calls() -> DriverCalls:
    """Those of the driver that this torch is built for."""
    return HIP_CALLS if torch.version.hip else CUDA_CALLS
