"""NVIDIA's tools on a candidate, at verification: once for each program, beside others' work.

A tool takes seconds to start, and uses the GPU as it likes: it stands still while windows are
timed. So tools look while the program that they look at is timed as well, which takes longer. The
findings of the tools on a program and task are kept; only a tool that gave no result looks again.
"""

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from threading import Lock

import torch

from evolve.core.digest import framed_digest
from evolve.core.evaluation import Label
from evolve.worker.base.faults import CandidateFault
from evolve.worker.base.feedback import KernelFacts, plain
from evolve.worker.base.host_facts import find_tool
from evolve.worker.base.infra import InfraFault
from evolve.worker.devices.base import Device
from evolve.worker.evidence.ncu import COUNTERS, count
from evolve.worker.evidence.sanitizer import NAME, NO_RESULT, sanitise_call
from evolve.worker.session.candidate_session import Candidate, CandidateSession
from evolve.worker.session.memory_budget import MemoryBudget
from evolve.worker.session.memory_model import room_for
from evolve.worker.session.prepared_task import PreparedTask

_ALL = 2  # the sanitizer's, one after the other, and the counters'
_PROCESSES = 2  # of each: the one that starts it, and the one that it starts
_KEPT = 256
_SOON_S = 8.0  # that memcheck worked; after a longer one racecheck has not ended in time
_NOT_IN_TIME = "not tried: memcheck worked "  # and would again, so that it is not tried later

Findings = Future[list[Label]]


class Tools:
    """Looks at programs with all tools, once at each.

    Args:
        session: Where processes come from.
        room: On the device, which a look takes for itself.
    """

    def __init__(self, session: CandidateSession, room: MemoryBudget) -> None:
        self._session = session
        self._budget = room
        self._looking = ThreadPoolExecutor()
        self._found: OrderedDict[str, Findings] = OrderedDict()
        self._changing = Lock()

    def close(self) -> None:
        """Start no more; running ones end with their processes."""
        self._looking.shutdown(wait=False)

    def look(
        self, candidate: Candidate, task: PreparedTask, own: Sequence[KernelFacts]
    ) -> Findings:
        """The tools' findings, new or stored; CandidateFault for an error that counts.

        Not to be waited for by a thread that has room on the device: the look may wait for it.

        Args:
            candidate: That has passed the checks.
            task: Of which one call is looked at.
            own: Facts of the candidate's own kernels.
        """
        key = framed_digest("tools", candidate.source, task.task.revision)
        with self._changing:
            known = self._found.get(key)
            kept = [] if known is None else _results(known)
            if known is None or kept is not None:
                known = self._looking.submit(self._look, candidate, task, own, kept or [])
                self._found[key] = known
            self._found.move_to_end(key)
            while len(self._found) > _KEPT:
                self._found.popitem(last=False)
        return known

    def _look(
        self,
        candidate: Candidate,
        task: PreparedTask,
        own: Sequence[KernelFacts],
        known: Sequence[Label],
    ) -> list[Label]:
        device = self._session.device
        room = room_for(task.cases, device, processes(task, device), judges=False)
        try:
            with self._budget.taken(room):
                return list(observe(self._session, candidate, task, own, known))
        except (InfraFault, OSError, torch.OutOfMemoryError) as error:
            return [*known, Label(f"{NO_RESULT}tools", plain(str(error), 160))]


def _results(found: Findings) -> list[Label] | None:
    """Results to keep if a tool is to look again; None if it is under way, or all have looked."""
    if not found.done():
        return None
    if (error := found.exception()) is not None:
        return None if isinstance(error, CandidateFault) else []
    kept = [label for label in found.result() if _is_result(label)]
    return kept if len(kept) < len(found.result()) else None


def _is_result(label: Label) -> bool:
    return not label.name.startswith(NO_RESULT) or label.evidence.startswith(_NOT_IN_TIME)


def processes(task: PreparedTask, device: Device) -> int:
    """How many are on the device at once; 0 if no tool is."""
    is_there = device.has_profiler and find_tool(NAME) is not None
    return _PROCESSES * _at_once(task, device) if is_there else 0


def observe(
    session: CandidateSession,
    candidate: Candidate,
    task: PreparedTask,
    own: Sequence[KernelFacts],
    known: Sequence[Label] = (),
) -> Iterator[Label]:
    """The findings of each tool, as labels.

    Side by side, as each takes seconds to start, but for racecheck: it takes longer than memcheck,
    so it has a chance only if that has soon given a result. Kernels of different processes take
    turns on the device, so counters are of one process.

    Args:
        session: Where processes come from.
        candidate: That has passed the checks.
        task: Of which one call is looked at.
        own: Facts of the candidate's own kernels.
        known: Results of an earlier look, whose tools are not asked again.

    Raises:
        CandidateFault: a tool has found an error that counts.
    """
    about = session, candidate, task
    kept = {label.name: label for label in known}
    looks = [partial(_sanitised, *about, own, kept)]
    if COUNTERS not in kept:
        looks.append(partial(count, *about, {fact.name for fact in own}))
    with ThreadPoolExecutor(_at_once(task, session.device)) as pool:
        for found in [pool.submit(look) for look in looks]:
            yield from found.result()
    yield from (label for label in known if label.name == COUNTERS)


def _sanitised(
    session: CandidateSession,
    candidate: Candidate,
    task: PreparedTask,
    own: Sequence[KernelFacts],
    known: Mapping[str, Label],
) -> list[Label]:
    if (tool := find_tool(NAME)) is None:
        return []
    look = partial(sanitise_call, session, candidate, task.smallest, tool)
    found, seconds = (known["memcheck"], 0.0) if "memcheck" in known else look("memcheck")
    if own and all(fact.shared_bytes == 0 for fact in own):
        return [found, Label("racecheck", "its kernels have no shared memory")]
    if found.name.startswith(NO_RESULT):
        return [found, Label(f"{NO_RESULT}racecheck", "not tried: memcheck gave no result")]
    if seconds > _SOON_S:
        return [found, Label(f"{NO_RESULT}racecheck", f"{_NOT_IN_TIME}{seconds:.1f} s")]
    return [found, look("racecheck")[0]]


def _at_once(task: PreparedTask, device: Device) -> int:
    """How many tools room and cores are there for."""
    most = _PROCESSES * _ALL
    may_all = room_for(task.cases, device, most) <= device.room and device.cores >= most
    return _ALL if may_all else 1
