"""Which cores a worker keeps to where several work side by side, one for each GPU."""

import os
from pathlib import Path


def keep_to_share(part: int, parts: int) -> None:
    """Keep this process, and all that it starts, to one of equal parts of its cores.

    Threads of one physical core stay together, so that two workers that measure at the same time
    do not wait on the same one. Where there are fewer cores than parts, all are kept.
    """
    cores = sorted(os.sched_getaffinity(0), key=lambda core: (_first_sibling(core), core))
    ends = [len(cores) * at // parts for at in (part, part + 1)]
    os.sched_setaffinity(0, cores[slice(*ends)] or cores)


def _first_sibling(core: int) -> int:
    """The lowest number of a thread on the same physical core; its own where nobody tells."""
    path = Path(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list")
    try:
        return int(path.read_text().replace("-", ",").split(",")[0])
    except (OSError, ValueError):
        return core
