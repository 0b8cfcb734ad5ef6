"""How much memory a candidate takes for itself, by the kernel's books and from outside (Linux).

The kernel marks the most pages that a process has held at once. A process can lower its own mark by
a file in /proc, which Landlock keeps from it, and leaves it behind if it replaces its program or
has another process work for it; both are seen, and then nothing is known.

A process controls its own pages, so three ways to evade the accounting are not seen: it can give
back pages that it was born with, code and heap of over a hundred megabytes, to take others in their
place; keep bytes in files that it has not mapped; and have a child work within the call that the
kernel is to reap without a word (SIGCHLD ignored).
"""

from dataclasses import dataclass
from pathlib import Path

from evolve.core.evaluation import Status
from evolve.worker.base.faults import CandidateFault
from evolve.worker.processes.runner_process import RunnerProcess
from evolve.worker.sandbox import procfs
from evolve.worker.sandbox.policy import Mechanism
from evolve.worker.session.candidate_session import SETUP_S, Candidate, CandidateSession
from evolve.worker.session.prepared_task import PreparedTask

_FORKED_WITHOUT_EXEC = 0x40  # of a process's flags: PF_FORKNOEXEC in linux/sched.h
_STEP = 1 << 20  # less is which pages of its code happened to be touched
_TIMES, _MIN_S = 5.0, 2.0  # for a busy host, and for the work of first calls
_RESET_MARK = "5"  # see `clear_refs` in proc(5)
_NOTHING = """
import torch

class ModelNew(torch.nn.Module):
    def forward(self):
        return torch.zeros(1)
"""


@dataclass(frozen=True, slots=True)
class MemoryMark:
    """The books of one process, in bytes. OSError if it has ended."""

    pid: int

    def held(self) -> int:
        """Bytes held now."""
        return self._entry("VmRSS")

    def highest(self) -> int | None:
        """The most since `reset`; None if its mark is not that of the process as it began."""
        flags = int(procfs.stat(self.pid)[6])
        return self._entry("VmHWM") if flags & _FORKED_WITHOUT_EXEC else None

    def ended(self) -> int:
        """Page faults of the processes that it had started and has waited for: more with each."""
        return int(procfs.stat(self.pid)[8])

    def reset(self) -> None:
        Path(f"/proc/{self.pid}/clear_refs").write_text(_RESET_MARK)

    def _entry(self, name: str) -> int:
        status = procfs.status(self.pid)
        if name not in status:
            raise OSError(f"process {self.pid} has no memory any more")
        return procfs.size_of(status[name])


def scratch_bytes(
    session: CandidateSession, candidate: Candidate, task: PreparedTask
) -> int | None:
    """The most that one call takes beyond weights, inputs and outputs, on the largest timed case.

    To a MiB. Memory allocated before counts, and so does its code. None if the system does not keep
    books that it cannot reach, or if the call is not right: this is no check, and changes no
    verdict. If it takes much longer than in the checks there is none either: others wait.
    """
    if Mechanism.LANDLOCK not in Mechanism(session.launcher.mechanisms):
        return None
    case = max(task.timed, key=lambda case: case.input_bytes)
    hidden = case.check("task", 0)
    try:
        with session.launched(candidate, [case]) as runner:
            mark = MemoryMark(runner.pid)
            _rehearse(session, runner)
            before = mark.held()
            setup_s = _patience(candidate.setup_s, SETUP_S)
            session.furnish(runner, candidate, [case], seconds=setup_s)
            ended = mark.ended()
            mark.reset()
            call_s = _patience(candidate.seconds.get(case.case.name), session.call_s)
            verdict = session.outcome(runner, case, hidden, limit_s=call_s).verdict
            alone = not runner.has_other_processes() and mark.ended() == ended
            highest = mark.highest()
    except (CandidateFault, OSError):
        return None
    if highest is None or not alone or verdict.status is not Status.CORRECT:
        return None
    outputs = sum(tensor.nbytes for tensor in hidden.expected.reference)
    taken = highest - before - case.arguments.size - hidden.inputs.size - outputs
    return max(0, round(taken / _STEP)) * _STEP


def _patience(before: float | None, most: float) -> float:
    """Seconds for work that took so many before; all that it may take if that is not known."""
    return most if before is None else min(most, max(_MIN_S, _TIMES * before))


def _rehearse(session: CandidateSession, runner: RunnerProcess) -> None:
    """Have it touch common pages (code, mostly) before it knows of the candidate."""
    runner.load("candidate", _NOTHING, SETUP_S)
    nothing = session.device.make_buffer([{"init": [], "state": {}}])
    with session.device.share(runner, nothing) as arguments:
        runner.construct(0, 0, arguments, SETUP_S)
    with session.device.share(runner, session.device.make_buffer([[]])) as inputs:
        runner.call(0, inputs, SETUP_S)
