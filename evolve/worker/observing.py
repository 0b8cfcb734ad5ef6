"""All of NVIDIA's tools on a candidate, at verification: side by side where the host allows it."""

from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from evolve.core.evaluation import Label
from evolve.worker.counters import count
from evolve.worker.device import Device
from evolve.worker.footprint import room_for
from evolve.worker.host import find_tool
from evolve.worker.sanitizer import NAME, TOOLS, sanitise_call
from evolve.worker.warm import WarmTask
from evolve.worker.workshop import Candidate, Workshop

_ALL = len(TOOLS) + 1
_PROCESSES = 2  # of each: the one that starts it, and the one that it starts


def processes(task: WarmTask, device: Device) -> int:
    """How many are on the device at once; 0 where no tool is."""
    is_there = device.has_profiler and find_tool(NAME) is not None
    return _PROCESSES * _at_once(task, device) if is_there else 0


def observe(
    workshop: Workshop, candidate: Candidate, task: WarmTask, own: Collection[str]
) -> Iterator[Label]:
    """What each tool finds, as labels; under the lock of the device.

    Side by side, as each takes seconds to start. Kernels of different processes take turns on the
    device, so what is counted is of one.

    Args:
        workshop: Where processes come from.
        candidate: That has passed the checks.
        task: Of which one call is looked at.
        own: Names of the candidate's kernels.

    Raises:
        CandidateFault: a tool has found an error that counts.
    """
    about = workshop, candidate, task
    looks = [partial(sanitise_call, *about, kind) for kind in TOOLS]
    looks.append(partial(count, *about, own))
    with ThreadPoolExecutor(_at_once(task, workshop.device)) as pool:
        for found in pool.map(lambda look: look(), looks):
            yield from found


def _at_once(task: WarmTask, device: Device) -> int:
    """How many tools room and cores are there for."""
    most = _PROCESSES * _ALL
    may_all = room_for(task.cases, device, most) <= device.room and device.cores >= most
    return _ALL if may_all else 1
