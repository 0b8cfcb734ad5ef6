"""A GPU in the kernel's list of AMD's accelerators: its render node, and its unique number.

A process sees no GPU whose render node is not there: the runtime leaves it out (ROCm, "GPU
isolation techniques"; `topology_sysfs_check_node_supported` of its library `hsakmt`). Source of the
list: Linux, `drivers/gpu/drm/amd/amdkfd/kfd_topology.c`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

NODES = Path("/sys/class/kfd/kfd/topology/nodes")
RENDER_NODES = Path("/dev/dri")


@dataclass(frozen=True, slots=True)
class Place:
    """The device node and the UUID of one GPU.

    Attributes:
        node: the path of its render node.
        uuid: as `ROCR_VISIBLE_DEVICES` takes it; empty if no number is unique to the GPU.
    """

    node: str
    uuid: str


def place_of(address: str) -> Place | None:
    """Find the GPU at an address; None unless the list has exactly one there.

    Args:
        address: on the PCI bus, `0000:c1:00.0`.
    """
    listed = list(_properties())
    found = [one for one in listed if _is_at(one, address)]
    if len(found) != 1:
        return None
    (own,) = found
    number = own.get("unique_id", 0)
    is_unique = number and [one.get("unique_id") for one in listed].count(number) == 1
    node = RENDER_NODES / f"renderD{own['drm_render_minor']}"
    return Place(str(node), f"GPU-{number:016x}" if is_unique else "")


def render_nodes() -> tuple[str, ...]:
    """Paths of the render nodes of all GPUs."""
    return tuple(map(str, sorted(RENDER_NODES.glob("renderD*"))))


def _properties() -> Iterator[Mapping[str, int]]:
    """The properties of each GPU of the list."""
    for file in sorted(NODES.glob("*/properties")):
        try:
            lines = [line.split() for line in file.read_text().splitlines()]
        except OSError:  # one that a container may not see
            continue
        found = {line[0]: int(line[1]) for line in lines if len(line) == 2 and line[1].isdigit()}
        if found.get("simd_count") and found.get("drm_render_minor"):
            yield found


def _is_at(properties: Mapping[str, int], address: str) -> bool:
    """`location_id` has bus, device and function: 8, 5 and 3 bits."""
    domain, bus, rest = address.split(":")
    device, _, function = rest.partition(".")
    place = int(bus, 16) << 8 | int(device, 16) << 3 | int(function, 16)
    known = properties.get("domain", 0), properties.get("location_id")
    return known == (int(domain, 16), place)
