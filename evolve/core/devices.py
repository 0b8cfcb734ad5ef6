"""Kinds of devices that judge programs, and their differences.

A kind is a folder of `evolve/worker/devices`, an entry here and an option of `conf/device`. Another
package adds one by an entry point of the group `evolve.devices`: a name and a `DeviceKind`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from evolve.core.errors import UsageError
from evolve.core.registered import instance_of, loaded

GROUP = "evolve.devices"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceKind:
    """One kind of device.

    Attributes:
        name: `device=NAME`; the device class in verdicts begins with it.
        title: in messages.
        factory: `module:Class` of `evolve.worker.devices.base.Device`, imported by the worker only.
        is_gpu: whether there may be several of them, each with a worker, and whether compiling on
            the host leaves timing undisturbed.
        size: of a task's `SIZES`, taken if none is asked for.
        languages: that run there and do not name this kind themselves (`evolve.languages`).
        baselines: that `evolve bench` measures winners beside, besides eager.
        descriptors: that verdicts have on no other kind.
        evaluation_s: seconds that an evaluation of a usual task takes, for forecasts.
        is_untested: whether it has been written from documentation and no report of it at work on
            hardware is known; verdicts, guides and `evolve doctor` say so.
    """

    name: str
    title: str
    factory: str
    is_gpu: bool
    size: str
    baselines: tuple[str, ...]
    languages: tuple[str, ...] = ()
    descriptors: frozenset[str] = frozenset()
    evaluation_s: float = 10.0
    is_untested: bool = False


UNTESTED = "untested on hardware"
"""The words for `is_untested`."""

CPU = DeviceKind(
    name="cpu",
    title="CPU",
    factory="evolve.worker.devices.cpu.device:CpuDevice",
    is_gpu=False,
    size="cpu",
    baselines=("compile",),
    descriptors=frozenset({"memory_bytes"}),
    evaluation_s=5.0,
)
CUDA = DeviceKind(
    name="cuda",
    title="GPU",
    factory="evolve.worker.devices.cuda.device:CudaDevice",
    is_gpu=True,
    size="gpu",
    baselines=("eager_tf32", "compile"),
    descriptors=frozenset(  # of Triton kernels; of CUDA C++ the first three, and the coverage
        (
            *("registers", "shared_bytes", "occupancy", "tensor_cores", "spill_bytes"),
            *("global_share", "shared_share", "matrix_share", "coverage"),
        )
    ),
)
HIP = DeviceKind(
    name="hip",
    title="AMD GPU",
    factory="evolve.worker.devices.hip.device:HipDevice",
    is_gpu=True,
    size="gpu",
    baselines=("compile",),
    descriptors=frozenset(  # of Triton kernels; of HIP C++ the coverage
        {
            "tensor_cores",
            "spill_bytes",
            "global_share",
            "shared_share",
            "matrix_share",
            "coverage",
        }
    ),
    is_untested=True,
)


@cache
def device_kinds() -> Mapping[str, DeviceKind]:
    """All kinds that are known here, by name.

    Raises:
        UsageError: another package registers one that cannot be loaded.
    """
    own = {kind.name: kind for kind in (CPU, CUDA, HIP)}
    others = {kind.name: kind for kind in loaded(GROUP, instance_of(DeviceKind))}
    return own | others | own  # in this order, and none is replaced


def device_kind(name: str) -> DeviceKind:
    """The kind of this name.

    Raises:
        UsageError: there is none.
    """
    kinds = device_kinds()
    if name not in kinds:
        raise UsageError(f"device={name}: choose one of auto, {', '.join(kinds)}")
    return kinds[name]


def kind_of_class(device_class: str) -> str:
    """The name of the kind that a device class in a verdict is of; the CPU's for an unknown one."""
    return next((name for name in device_kinds() if device_class.startswith(name)), CPU.name)


def device_kind_of(device_class: str) -> DeviceKind:
    """The kind that a device class in a verdict is of; the CPU for an unknown one."""
    return device_kinds()[kind_of_class(device_class)]
