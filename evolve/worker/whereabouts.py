"""Whose code a process executes, as the kernel tells when it is stopped in a timed block (Linux).

Probes inside of a candidate's process can be noticed by it: it computes by itself while it is
probed, and by a library otherwise. Here nothing is inside: in some blocks, which are not scored,
the process is stopped once at a secret moment. Which thread was computing and where it stood is in
the kernel's books (proc(5): `syscall`, `maps`).
"""

import bisect
import contextlib
import re
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import torch

from evolve.core.evaluation import Label
from evolve.worker import procfs
from evolve.worker.elf import places_of

# Code that computes for others; and what only hands out work, memory and the interpreter's time.
_LIBRARY = re.compile(
    r"/lib(torch_cpu|mkl|openblas|scipy_openblas|blas|cblas|lapack|dnnl|onednn|blis)[^/]*$"
    r"|/(numpy|scipy)(\.libs)?/"
)
_NEITHER = re.compile(
    r"/(ld-linux|lib(c|m|dl|rt|pthread)[.-]|lib(python|stdc|gcc_s|gomp|iomp|c10|torch_python|tvm_ffi))[^/]*$"
    r"|/python[^/]*$|/lib-dynload/|^\["
)
_MAPPED = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) ..x. ([0-9a-f]+) \S+ \d+ *(.*)$", re.M)
_TORCH = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
_VECTOR_FUNCTIONS = b"Sleef_"  # which the compiler's own C++ calls, of torch's library
_LEAST_CALL_S = 1e-4  # of short calls much is what torch takes to hand out work and memory
_FEWEST = 6
_OWN_SHARE = 0.05
OWN = "own code"


def at_work(pid: int) -> str:
    """Who computes in a stopped process.

    Returns:
        `OWN` where a thread executes code that is not known to be somebody else's, else the file
        name of the library that one executes; empty where nobody computes, or may know.
    """
    try:
        places = _executed(pid)
    except OSError:
        return ""
    owners = [whose for path, at in places if (whose := owner(path, at))]
    return OWN if OWN in owners else owners[0] if owners else ""


def owner(path: str, at: int) -> str:
    """Whose code lies at byte `at` of a mapped file, as `at_work` tells; empty: nobody's."""
    if path == str(_TORCH) and _is_vector_function(at):
        return ""
    if _LIBRARY.search(path):
        return path.rpartition("/")[2]
    return "" if _NEITHER.search(path) else OWN


def _is_vector_function(at: int) -> bool:
    places = _vector_functions()
    last = bisect.bisect_right(places, (at, 1 << 63)) - 1
    return last >= 0 and at < places[last][1]


@cache
def _vector_functions() -> list[tuple[int, int]]:
    return places_of(_TORCH, _VECTOR_FUNCTIONS)


def _executed(pid: int) -> list[tuple[str, int]]:
    """File and place in it of each thread's code; no name for memory of none; none that waits."""
    places = [int(words[-1], 16) for words in _calls(pid) if words[:1] == ["-1"]]
    if not places:
        return []
    return [
        (path, place - int(start, 16) + int(offset, 16))
        for start, end, offset, path in _MAPPED.findall(procfs.maps(pid))
        for place in places
        if int(start, 16) <= place < int(end, 16)
    ]


def _calls(pid: int) -> list[list[str]]:
    """Of each thread: the system call that it is in (-1: none), its arguments, stack and place."""
    found = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):  # it has ended meanwhile
            found.append((thread / "syscall").read_text().split())
    return found


def library_label(case: str, seen: Sequence[str], seconds_per_call: float) -> Label | None:
    """Says so where it was a library that computed, and hardly ever the candidate's own code.

    Who leaves nearly all of its time to torch's zeros and copies is found, too. Vector functions
    (Sleef) are nobody's: the compiler's own C++ for `gelu_bias` was seen in them in 20 of 21.

    Args:
        case: Its name.
        seen: Who was at work, glance by glance (`at_work`).
        seconds_per_call: How long it takes.
    """
    if is_undecided(seen, seconds_per_call) or not _is_suspicious(seen, seconds_per_call):
        return None
    names = _libraries(seen)
    ((name, _),) = names.most_common(1)
    evidence = (
        f"{case}: {name} was at work in {names.total()} glances at timed runs, own code in "
        f"{seen.count(OWN)}"
    )
    return Label("library_at_work", evidence)


def is_undecided(seen: Sequence[str], seconds_per_call: float) -> bool:
    """Whether it may be so, and was not seen often enough."""
    return _is_suspicious(seen, seconds_per_call) and _libraries(seen).total() < _FEWEST


def _is_suspicious(seen: Sequence[str], seconds_per_call: float) -> bool:
    times = _libraries(seen).total()
    is_library = times > 0 and seen.count(OWN) <= _OWN_SHARE * times
    return is_library and seconds_per_call >= _LEAST_CALL_S


def _libraries(seen: Sequence[str]) -> Counter[str]:
    return Counter(name for name in seen if name not in ("", OWN))
