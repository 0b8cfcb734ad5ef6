"""A GPU's driver simulated by a shared library: device memory is a file of this host's memory.

One text in C speaks for both drivers. With HIP's names it is compiled against the header of HIP
itself, which Triton's wheel carries, so that a call of another signature, or a structure of another
layout, does not compile.
"""

import subprocess
from importlib.util import find_spec
from pathlib import Path

LIBRARIES = {"cuda": "libcuda.so.1", "hip": "libamdhip64.so"}

_HIP_TYPES = """
#include <hip/hip_runtime_api.h>
typedef hipError_t error;
typedef hipMemGenericAllocationHandle_t handle;
typedef void* pointer;
typedef hipMemAllocationProp properties;
typedef hipMemAccessDesc access_of;
typedef hipMemAllocationHandleType handle_kind;
typedef hipMemAllocationGranularity_flags choice;
typedef hipStream_t stream_t;
#define NAMED(name) hip##name
_Static_assert(hipMemAllocationTypePinned == 1 && hipMemHandleTypePosixFileDescriptor == 1 &&
               hipMemLocationTypeDevice == 1 && hipMemAccessFlagsProtReadWrite == 3 &&
               hipStreamWaitValueEq == 1 && hipStreamNonBlocking == 1, "constants");
"""
_CUDA_TYPES = """
typedef int error;
typedef unsigned long long handle;
typedef unsigned long long pointer;
typedef struct { int type, requestedHandleTypes; struct { int type, id; } location; void* windows;
                 unsigned char flags[8]; } properties;
typedef struct { struct { int type, id; } location; int flags; } access_of;
typedef int handle_kind;
typedef int choice;
typedef void* stream_t;
#define NAMED(name) cu##name
"""
_MEMORY = """
#define STEP (2ul << 20)
static int of_device(const properties* wanted) {
  return wanted->type == 1 && wanted->requestedHandleTypes == 1 && wanted->location.type == 1 &&
         wanted->location.id == 0;
}
error NAMED(MemGetAllocationGranularity)(size_t* step, const properties* wanted, choice of) {
  *step = STEP;
  return of_device(wanted) && !of ? 0 : 1;
}
error NAMED(MemCreate)(handle* made, size_t size, const properties* wanted,
                       unsigned long long flags) {
  if (!of_device(wanted) || size % STEP) return 1;
  if (size > (1ul << 30)) return 2;
  int fd = memfd_create("device", 0);
  *made = (handle)(uintptr_t)(fd + 1);
  return ftruncate(fd, (off_t)size) ? 1 : 0;
}
error NAMED(MemExportToShareableHandle)(void* fd, handle of, handle_kind kind,
                                        unsigned long long flags) {
  *(int*)fd = dup((int)(uintptr_t)of - 1);
  return kind == 1 && !flags ? 0 : 1;
}
error NAMED(MemImportFromShareableHandle)(handle* made, void* sent, handle_kind kind) {
  int fd = dup(BY_ADDRESS ? *(int*)sent : (int)(uintptr_t)sent);
  *made = (handle)(uintptr_t)(fd + 1);
  return kind == 1 && fd >= 0 ? 0 : 1;
}
error NAMED(MemAddressReserve)(pointer* made, size_t size, size_t alignment, pointer wanted,
                               unsigned long long flags) {
  void* at = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  *made = (pointer)(uintptr_t)at;
  return at == MAP_FAILED || alignment || wanted || flags ? 1 : 0;
}
error NAMED(MemMap)(pointer at, size_t size, size_t offset, handle of, unsigned long long flags) {
  void* to = mmap((void*)(uintptr_t)at, size, PROT_NONE, MAP_SHARED | MAP_FIXED,
                  (int)(uintptr_t)of - 1, 0);
  return to == MAP_FAILED || offset || flags ? 1 : 0;
}
error NAMED(MemSetAccess)(pointer at, size_t size, const access_of* wanted, size_t count) {
  if (count != 1 || wanted->location.type != 1 || wanted->location.id || wanted->flags != 3)
    return 1;
  return mprotect((void*)(uintptr_t)at, size, PROT_READ | PROT_WRITE) ? 1 : 0;
}
error NAMED(MemUnmap)(pointer at, size_t size) {
  int prot = PROT_NONE, flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
  return mmap((void*)(uintptr_t)at, size, prot, flags, -1, 0) == MAP_FAILED ? 1 : 0;
}
error NAMED(MemAddressFree)(pointer at, size_t size) {
  return munmap((void*)(uintptr_t)at, size) ? 1 : 0;
}
error NAMED(MemRelease)(handle of) { return close((int)(uintptr_t)of - 1) ? 1 : 0; }
static uint32_t* awaited;
static uint32_t awaited_value;
/* Whether the stream still waits, where waits are queued. */
int fake_waits(void) { return awaited && *(volatile uint32_t*)awaited != awaited_value; }
static error await_word(pointer at, uint32_t value, unsigned compared, uint32_t mask) {
  if (compared != 1 || mask != 0xffffffff || WAITS == REFUSED) return 1;
  awaited = (uint32_t*)(uintptr_t)at;
  awaited_value = WAITS == LOST ? ~value : value;
  if (WAITS != BLOCKING) return 0;
  for (int i = 0; i < 5000; ++i, usleep(1000))
    if (*(volatile uint32_t*)(uintptr_t)at == value) return 0;
  return 1;
}
"""
_HIP_MEMORY = """
error hipStreamWaitValue32(stream_t on, void* at, uint32_t value, unsigned flags, uint32_t mask) {
  return on ? 1 : await_word(at, value, flags, mask);
}
hipError_t hipDeviceGetPCIBusId(char* address, int room, int device) {
  if (device || room < 13) return 1;
  strcpy(address, "0000:c1:00.0");
  return 0;
}
const char* hipGetErrorName(hipError_t code) {
  return code == 2 ? "hipErrorOutOfMemory" : "hipErrorInvalidValue";
}
"""
_CUDA_MEMORY = """
error cuStreamWaitValue32_v2(stream_t on, pointer at, uint32_t value, unsigned flags) {
  return on ? 1 : await_word(at, value, flags, 0xffffffff);
}
error cuGetErrorName(error code, const char** name) {
  *name = code == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_INVALID_VALUE";
  return 0;
}
"""
_CUDA_WINDOW = """
int cuCtxGetCurrent(void** context) { *context = context; return 0; }
int cuCtxSetCurrent(void* context) { return 0; }
int cuModuleLoadData(void** module, const void* image) { *module = module; return 0; }
int cuModuleGetFunction(void** function, void* module, const char* name) {
  *function = module;
  return strcmp(name, "copy");
}
int cuStreamCreate(void** stream, unsigned flags) { *stream = stream; return 0; }
int cuLaunchKernel(void* function, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by,
                   unsigned bz, unsigned shared, void* stream, void** arguments, void** extra) {
  memcpy(*(void**)arguments[0], *(void**)arguments[1], 16 * *(uint64_t*)arguments[2]);
  return 0;
}
int cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t size, void* stream) {
  memcpy(to, (void*)from, size);
  return 0;
}
int cuStreamSynchronize(void* stream) { return 0; }
int cuCtxResetPersistingL2Cache(void) { return 0; }
"""
_HIP_WINDOW = """
hipError_t hipStreamCreateWithFlags(hipStream_t* stream, unsigned flags) {
  *stream = (hipStream_t)stream;
  return flags == hipStreamNonBlocking ? 0 : 1;
}
hipError_t hipMemcpyDtoDAsync(hipDeviceptr_t to, hipDeviceptr_t from, size_t size,
                              hipStream_t stream) {
  memcpy(to, from, size);
  return 0;
}
hipError_t hipMemcpyDtoHAsync(void* to, hipDeviceptr_t from, size_t size, hipStream_t stream) {
  memcpy(to, from, size);
  return 0;
}
hipError_t hipStreamSynchronize(hipStream_t stream) { return 0; }
"""
_CUDA_WRITES = """
int cuStreamWriteValue32_v2(void* stream, uint64_t to, uint32_t value, unsigned flags) {
  *(volatile uint32_t*)to = value;
  return 0;
}
"""
_HIP_WRITES = """
hipError_t hipStreamWriteValue32(hipStream_t stream, void* to, uint32_t value, unsigned flags) {
  *(volatile uint32_t*)to = value;
  return 0;
}
"""
_HEADERS = """
#define _GNU_SOURCE
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
enum { BLOCKING, QUEUED, REFUSED, LOST };
"""
WRITES = {"cuda": "cuStreamWriteValue32_v2", "hip": "hipStreamWriteValue32"}


def build_driver(
    folder: Path,
    name: str,
    *,
    writes: bool = True,
    by_address: bool = False,
    waits: str = "blocking",
) -> Path:
    """The library of a driver, under its name in `folder`.

    Args:
        folder: to put it in.
        name: `cuda` or `hip`.
        writes: whether it has the call that writes a word in a stream.
        by_address: whether memory is imported by its descriptor's address.
        waits: whether a wait for a value is `blocking`, `queued` in the stream, `refused`, or
            `lost`, so that it never ends.
    """
    parts = {
        "cuda": (_CUDA_TYPES, _MEMORY, _CUDA_MEMORY, _CUDA_WINDOW, _CUDA_WRITES * writes),
        "hip": (_HIP_TYPES, _MEMORY, _HIP_MEMORY, _HIP_WINDOW, _HIP_WRITES * writes),
    }
    source, library = folder / f"{name}.c", folder / LIBRARIES[name]
    source.write_text("".join((_HEADERS, *parts[name])))
    triton = find_spec("triton")
    assert triton is not None
    assert triton.origin is not None
    include = Path(triton.origin).parent / "backends" / "amd" / "include"
    words = ["-D__HIP_PLATFORM_AMD__", f"-I{include}", f"-DBY_ADDRESS={int(by_address)}"]
    words.append(f"-DWAITS={waits.upper()}")
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-O1", *words, str(source), "-o", str(library)],
        check=True,
        timeout=60,
    )
    return library
