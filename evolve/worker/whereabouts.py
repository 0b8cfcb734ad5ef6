"""Whose code a process executes, as the kernel tells when it is stopped in a timed block (Linux).

Probes inside of a candidate's process can be noticed by it: it computes by itself while it is
probed, and by a library otherwise. Here nothing is inside: in some blocks, which are not scored,
the process is stopped once at a secret moment. Which thread was computing and where it stood is in
the kernel's books (proc(5): `syscall`, `maps`).
"""

import contextlib
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from evolve.core.evaluation import Label
from evolve.worker import procfs

# Code that computes for others; and what only hands out work, memory and the interpreter's time.
_LIBRARY = re.compile(
    r"/lib(torch_cpu|mkl|openblas|scipy_openblas|blas|cblas|lapack|dnnl|onednn|blis)[^/]*$"
    r"|/(numpy|scipy)(\.libs)?/"
)
_NEITHER = re.compile(
    r"/(ld-linux|lib(c|m|dl|rt|pthread)[.-]|lib(python|stdc|gcc_s|gomp|iomp|c10|torch_python|tvm_ffi))[^/]*$"
    r"|/python[^/]*$|/lib-dynload/|^\["
)
_MAPPED = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) ..x. [0-9a-f]+ \S+ \d+ *(.*)$", re.M)
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
        files = _executed(pid)
    except OSError:
        return ""
    owners = list(filter(None, map(owner, files)))
    return OWN if OWN in owners else owners[0] if owners else ""


def owner(path: str) -> str:
    """Whose code a mapped file holds, as `at_work` tells; empty where it is nobody's."""
    if _LIBRARY.search(path):
        return path.rpartition("/")[2]
    return "" if _NEITHER.search(path) else OWN


def _executed(pid: int) -> list[str]:
    """The file of each thread's code, empty for memory of none; of those that wait, nothing."""
    places = [int(words[-1], 16) for words in _calls(pid) if words[:1] == ["-1"]]
    if not places:
        return []
    mapped = [(int(a, 16), int(b, 16), path) for a, b, path in _MAPPED.findall(procfs.maps(pid))]
    return [path for start, end, path in mapped for place in places if start <= place < end]


def _calls(pid: int) -> list[list[str]]:
    """Of each thread: the system call that it is in (-1: none), its arguments, stack and place."""
    found = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):  # it has ended meanwhile
            found.append((thread / "syscall").read_text().split())
    return found


def library_label(case: str, seen: Sequence[str], seconds_per_call: float) -> Label | None:
    """Says so where it was a library that computed, and hardly ever the candidate's own code.

    Evidence for people, and no more: who leaves nearly all of its time to torch's zeros and copies
    is found too, and who calls the vector functions that torch's library holds (Sleef), as its
    compiler's own C++ does: by this, such a program of `gelu_bias` was seen in it in 20 of 21.

    Args:
        case: Its name.
        seen: Who was at work, glance by glance (`at_work`).
        seconds_per_call: How long it takes.
    """
    names = Counter(name for name in seen if name not in ("", OWN))
    times, own = names.total(), seen.count(OWN)
    if times < _FEWEST or own > _OWN_SHARE * times or seconds_per_call < _LEAST_CALL_S:
        return None
    ((name, _),) = names.most_common(1)
    evidence = f"{case}: {name} was at work in {times} glances at timed runs, own code in {own}"
    return Label("library_at_work", evidence)
