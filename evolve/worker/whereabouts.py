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
    r"/(ld-linux|lib(c|m|dl|rt|pthread)[.-]|lib(python|stdc|gcc_s|gomp|iomp|c10|torch|tvm_ffi))[^/]*$"
    r"|/python[^/]*$|/lib-dynload/|^\["
)
_MAPPED = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) ..x. [0-9a-f]+ \S+ \d+ *(.*)$", re.M)
_LEAST_CALL_S = 1e-4  # of short calls much is what torch takes to hand out work and memory
_FEWEST = 4
_OWN_SHARE = 0.1
ENOUGH = 32  # looks into one case


def code_of(pid: int) -> list[str]:
    """Paths of the files whose code the threads of a stopped process execute.

    Empty for memory of no file; threads that wait in the kernel execute nothing. Nothing at all
    where nobody may know.
    """
    found: list[str] = []
    with contextlib.suppress(OSError):
        places = [int(words[-1], 16) for words in _calls(pid) if words[0] == "-1"]
        mapped = [
            (int(a, 16), int(b, 16), path) for a, b, path in _MAPPED.findall(procfs.maps(pid))
        ]
        for place in places:
            found += [path for start, end, path in mapped if start <= place < end]
    return found


def _calls(pid: int) -> list[list[str]]:
    """Of each thread: the system call that it is in (-1: none), its arguments, stack and place."""
    found = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):  # it has ended meanwhile
            found.append((thread / "syscall").read_text().split())
    return found


def library_label(case: str, seen: Sequence[str], seconds_per_call: float) -> Label | None:
    """Says so where it was a library that computed, and hardly ever the candidate's own code.

    Args:
        case: Its name.
        seen: As `code_of` tells, of some looks.
        seconds_per_call: How long it takes.
    """
    library = [path for path in seen if _LIBRARY.search(path)]
    own = sum(not _LIBRARY.search(path) and not _NEITHER.search(path) for path in seen)
    is_known = len(library) >= _FEWEST and seconds_per_call >= _LEAST_CALL_S
    if not is_known or own > _OWN_SHARE * len(library):
        return None
    ((name, _),) = Counter(path.rpartition("/")[2] for path in library).most_common(1)
    evidence = f"{case}: {name} was computing in {len(library)} looks, own code in {own}"
    return Label("foreign_library", evidence)
