"""How a candidate's failure travels inside the judge, until a stage makes an evaluation of it."""

import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from evolve.core.evaluation import Status
from evolve.core.protocols import BASELINES
from evolve.worker.ipc.messages import DRIVERS_SHORTAGE, ErrorKind, sanitise
from evolve.worker.sandbox.supervisor import End, Fate

CANDIDATE, EAGER = "candidate", "eager"  # sides of a comparison
TRUSTED = frozenset({EAGER, *BASELINES})  # sides that are the reference: never judged
MAX_FEEDBACK = 2000  # characters, about 500 tokens

# Not far apart: a candidate may write this, and very often.
_SHORTAGE = re.compile(
    r"Tried to allocate (\d+(?:\.\d+)?) (\w+)\b.{0,200}? of which (\d+(?:\.\d+)?) (\w+) is free",
    re.DOTALL,
)
_UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}

_BY_SIGNAL: dict[int, Status] = {
    signal.SIGSEGV: Status.ILLEGAL_ACCESS,
    signal.SIGBUS: Status.ILLEGAL_ACCESS,
    signal.SIGILL: Status.ILLEGAL_ACCESS,
    signal.SIGABRT: Status.ASSERT,
}
_BY_ERROR = {
    ErrorKind.EXCEPTION: Status.RUNTIME_EXCEPTION,
    ErrorKind.INTERFACE: Status.INVALID_INTERFACE,
    ErrorKind.COMPILE: Status.COMPILE_ERROR,
    ErrorKind.OOM: Status.OOM,
    ErrorKind.TREE: Status.WRONG_TREE,
    ErrorKind.ILLEGAL_ACCESS: Status.ILLEGAL_ACCESS,
    ErrorKind.ASSERT: Status.ASSERT,
}


class CandidateFault(Exception):
    """The candidate failed; becomes the status and feedback of its evaluation."""

    def __init__(self, status: Status, feedback: str) -> None:
        super().__init__(feedback)
        self.status = status
        self.feedback = clip(feedback)


class BusyFault(CandidateFault):
    """The device works outside of every turn; the process at work is inferred."""

    def __init__(self, feedback: str) -> None:
        super().__init__(Status.TIMING_UNBOUNDED, feedback)


class LateFault(CandidateFault):
    """Work was not done when it had to be: once or twice, a host or a driver may be the reason."""


class MovedFault(CandidateFault):
    """It has moved while it was stopped: once or twice this may be an effect of a virtual host.

    A processor that is taken away just when a thread stops counts as that thread's for so long.
    """

    def __init__(self, what: str) -> None:
        super().__init__(Status.TIMING_UNBOUNDED, f"the candidate's process {what}")


class SideFault(Exception):
    """A side that is not on trial (a baseline or an opponent) failed."""

    def __init__(self, side: str, fault: CandidateFault) -> None:
        super().__init__(f"{side} failed in the timed run: {fault.feedback}")
        self.side = side
        self.fault = fault


def candidate_fault_of(error: "CandidateFault | SideFault") -> CandidateFault:
    """A failure, on either side."""
    return error.fault if isinstance(error, SideFault) else error


@contextmanager
def blaming(side: str) -> Iterator[None]:
    """Failures inside are this side's doing."""
    try:
        yield
    except CandidateFault as fault:
        if side != CANDIDATE:
            raise SideFault(side, fault) from fault
        raise


def tells_of_a_full_device(fault: CandidateFault, capacity: int) -> bool:
    """Whether it says that it found no more memory free on the GPU than it asked for.

    As the driver words it, or as torch does, rounding both figures, anywhere in the text: its
    feedback is cut short. An honest program finds this if others fill the device, but any program
    may say so. One that asks for more than the `capacity` is the cause itself.
    """
    if fault.status is not Status.OOM:
        return False
    found = _SHORTAGE.findall(str(fault))
    return DRIVERS_SHORTAGE in str(fault) or any(
        _bytes(*one[2:]) <= _bytes(*one[:2]) <= capacity for one in found
    )


def _bytes(number: str, unit: str) -> float:
    return float(number) * _UNITS.get(unit, 1)


def clip(text: str) -> str:
    """Text that is safe and short enough to hand on as feedback."""
    text = sanitise(text).strip()
    return text if len(text) <= MAX_FEEDBACK else text[: MAX_FEEDBACK - 4] + " ..."


def from_error(kind: ErrorKind, text: str) -> CandidateFault:
    """The report of the runner's stub; it always counts as a failure."""
    return CandidateFault(_BY_ERROR[kind], text)


def from_fate(fate: Fate) -> CandidateFault:
    """The kernel's account of the end of the candidate's process."""
    printed = f"; it had printed: {fate.output[:400]}" if fate.output.strip() else ""
    if fate.end is End.OUT_OF_MEMORY:
        return CandidateFault(Status.OOM, "the process used more memory than allowed" + printed)
    if fate.end is End.TOO_MANY_FILES:
        return CandidateFault(Status.OOM, "the process wrote more files than allowed" + printed)
    if fate.end is End.EXITED:
        text = f"the process ended itself with exit code {fate.code} before it had answered"
        return CandidateFault(Status.KILLED, text + printed)
    if fate.end is End.STOPPED:
        return CandidateFault(Status.KILLED, "the process stopped answering" + printed)
    name = signal.Signals(fate.code).name if fate.code in set(signal.Signals) else str(fate.code)
    status = _BY_SIGNAL.get(fate.code, Status.KILLED)
    return CandidateFault(status, f"the process was ended by {name}{printed}")


def timeout(what: str, seconds: float) -> CandidateFault:
    """The candidate did not answer before a deadline."""
    return CandidateFault(Status.TIMEOUT, f"{what} took longer than {seconds:.0f} s")
