"""An AMD GPU as the device under test (ROCm). Untested on hardware.

ROCm's torch looks like CUDA's, and the HIP runtime has the driver calls that the clock and the
shared memory need (`evolve.worker.base.driver_calls`), so all but the vendor's part is
`CudaDevice`'s. What the header of HIP does not promise is tried when the device is opened.
"""

import functools
import os
import time
from pathlib import Path

import torch

from evolve.core.errors import EvaluatorUnavailable
from evolve.worker.base import gpu_driver
from evolve.worker.devices.cuda.device import CudaDevice
from evolve.worker.devices.hip import smi, topology

_ALLOCATOR = "pinned_use_cuda_host_register:True,pinned_num_register_threads:8"
_VISIBLE = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
_HOMES = ("ROCM_HOME", "ROCM_PATH")
_TARGETS = ("TVM_FFI_ROCM_ARCH_LIST", "PYTORCH_ROCM_ARCH")  # of tvm_ffi's and torch's compilers
_SYSTEM = ("/sys/class", "/sys/dev", "/sys/devices")  # the runtime reads its topology there
_INFINITY_CACHE_BYTES = 256 << 20  # behind the L2 caches of gfx942 and gfx950 (CDNA 3 and 4)
_WITH_INFINITY_CACHE = ("gfx942", "gfx950")
_WAIT_S = 10.0
_VALUE = 0x5EED


class HipDevice(CudaDevice):
    """See the module. `capability` is 0: NVIDIA's numbers mean nothing here.

    Raises:
        UsageError: torch sees none, or is built for another vendor's.
        EvaluatorUnavailable: the HIP runtime lacks a call, or one of them does not do what the
            clock needs.
    """

    platform = "hip"

    def __init__(self) -> None:
        super().__init__()
        self.other_nodes = tuple(node for node in topology.render_nodes() if node not in self.nodes)
        self.readable += tuple(path for path in _SYSTEM if Path(path).is_dir())

    def _allocator(self) -> str:
        return _ALLOCATOR

    def _why_none(self) -> str:
        if torch.version.hip is None:
            return (
                f"device=hip: this torch ({torch.__version__}) is built without ROCm. Install a "
                "ROCm build of torch, or use device=cpu."
            )
        return (
            f"device=hip: torch {torch.__version__} (ROCm {torch.version.hip}) finds no usable "
            "GPU. Check `rocminfo`, HIP_VISIBLE_DEVICES, and that /dev/kfd can be opened; or use "
            "device=cpu."
        )

    @property
    def architecture(self) -> str:
        """Such as `gfx942`, without the features that are on."""
        return str(self._facts.gcnArchName).partition(":")[0]

    def _architecture(self) -> dict[str, str]:
        return {"architecture": self.architecture}

    def _versions(self) -> dict[str, str]:
        return {
            "hip": torch.version.hip or "",
            "driver": smi.driver_version(gpu_driver.pci_address()),
        }

    def _capability(self) -> int:
        return 0

    def _cache_bytes(self) -> int:
        behind = _INFINITY_CACHE_BYTES if self.architecture in _WITH_INFINITY_CACHE else 0
        return max(super()._cache_bytes(), behind)

    @functools.cached_property
    def _place(self) -> topology.Place | None:
        return topology.place_of(gpu_driver.pci_address())

    def _node_paths(self) -> tuple[str, ...]:
        # Without a number the index chooses, which counts the GPUs whose nodes are there.
        own = (self._place.node,) if self._place and self._uuid else topology.render_nodes()
        return ("/dev/kfd", *own)

    def _vendor_variables(self) -> dict[str, str]:
        """Runners see the one GPU of this process, and hipcc builds for it alone.

        The variable names the GPU's UUID if it has one: hiding the nodes of other GPUs changes its
        index.
        """
        names = _HOMES if self._uuid else (*_VISIBLE, *_HOMES)
        kept = {name: os.environ[name] for name in names if name in os.environ}
        seen = {"ROCR_VISIBLE_DEVICES": self._uuid} if self._uuid else {}
        return kept | seen | dict.fromkeys(_TARGETS, self.architecture)

    @property
    def _uuid(self) -> str:
        return self._place.uuid if self._place else ""

    def _processes(self) -> dict[int, int]:
        return smi.processes(gpu_driver.pci_address())

    def _open_clock(self) -> None:
        super()._open_clock()
        for named, check in _CHECKS:
            try:
                check()
            except (OSError, RuntimeError) as error:
                raise EvaluatorUnavailable(
                    f"device=hip: {named} does not work with ROCm {torch.version.hip} on "
                    f"{self.architecture}: {error}. Please send the output of `evolve doctor "
                    "--device hip --report`."
                ) from error


def _shares_memory() -> None:
    """What is written through one mapping of an allocation is read through another of its fd."""
    step = gpu_driver.granularity()
    made, fd = gpu_driver.allocate(step)
    try:
        other = gpu_driver.attach(fd, step)
        try:
            made.tensor().fill_(0x5A)
            torch.cuda.synchronize()
            if not bool((other.tensor() == 0x5A).all()):
                raise OSError("a second mapping of the memory has other values")
        finally:
            other.close()
    finally:
        os.close(fd)
        made.close()


def _waits_for_a_value() -> None:
    """A stream goes on when a word of such memory has the value.

    HIP's header promises that for memory of `hipMallocSignalMemory` only, which no other process
    can map.
    """
    made, fd = gpu_driver.allocate(gpu_driver.granularity())
    os.close(fd)
    memory = made.tensor()
    memory.zero_()
    word = memory.new_tensor([*_VALUE.to_bytes(4, "little")])
    other, waited = torch.cuda.Stream(), torch.cuda.Event()
    torch.cuda.synchronize()
    gpu_driver.wait_value(made.address, _VALUE)
    waited.record()
    with torch.cuda.stream(other):
        memory[:4].copy_(word)
    _await(waited)
    made.close()  # a stream that still waited would wait for ever without it


def _await(event: torch.cuda.Event) -> None:
    deadline = time.monotonic() + _WAIT_S
    while not event.query():
        if time.monotonic() > deadline:
            raise TimeoutError(f"a stream still waits {_WAIT_S:g} s after the value was written")
        time.sleep(0.001)


_CHECKS = (
    ("memory that two processes map (hipMemCreate, hipMemExportToShareableHandle)", _shares_memory),
    ("a stream that waits for a word of it (hipStreamWaitValue32)", _waits_for_a_value),
)
