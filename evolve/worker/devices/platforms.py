"""The vendor that a torch is built for. Several look like `torch.cuda`, so each device asks."""

import torch

from evolve.core.errors import UsageError
from evolve.worker.base.host_facts import is_metax

_BUILDS = {"cuda": "CUDA", "hip": "ROCm", "maca": "MetaX MACA"}
_REMEDIES = {
    "cuda": "Install a CUDA build of torch",
    "hip": "Install a ROCm build of torch (torch.version.hip is set there)",
}


def torch_platform() -> str:
    """`cuda`, `hip` (ROCm), `maca` (MetaX) or `cpu`: the vendor of the devices of this torch.

    ROCm's torch has `torch.version.hip`. MetaX's says that it is for CUDA, and so is asked by its
    version.
    """
    if torch.version.hip:
        return "hip"
    if is_metax(torch.__version__):
        return "maca"
    return "cuda" if torch.version.cuda else "cpu"


def require_platform(wanted: str) -> None:
    """Raise UsageError if this torch is for the devices of another vendor than `wanted`.

    A torch for the CPU passes: it has no device, and the kind of device says so itself.
    """
    found = torch_platform()
    if found not in (wanted, "cpu"):
        instead = f"device={found}" if found in _REMEDIES else "device=cpu"
        raise UsageError(
            f"device={wanted}: this torch ({torch.__version__}) is built for {_BUILDS[found]}. "
            f"{_REMEDIES[wanted]}, or use {instead}."
        )
