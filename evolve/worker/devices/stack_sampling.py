"""The owner of the code that a stopped process executes in a timed block, by the kernel (Linux).

Probes inside of a candidate's process can be noticed by it: it computes by itself while it is
probed, and by a library otherwise. Here nothing is inside: in some blocks, which are not scored,
the process is stopped once at a secret moment. Which thread was computing, and at which place, is
in the kernel's books (proc(5): `syscall`, `maps`).
"""

import bisect
import contextlib
import re
from collections import Counter
from collections.abc import Sequence
from functools import cache
from math import comb
from pathlib import Path

import torch

from evolve.core.evaluation import Label
from evolve.worker.build.elf import places_of
from evolve.worker.sandbox import procfs

# Libraries that compute; and code that only hands out work, memory and the interpreter's time.
_LIBRARY = re.compile(
    r"/lib(torch_cpu|mkl|openblas|scipy_openblas|blas|cblas|lapack|dnnl|onednn|blis)[^/]*$"
    r"|/(numpy|scipy)(\.libs)?/"
)
_NEITHER = re.compile(
    r"/(ld-linux|lib(c|m|dl|rt|pthread)[.-]|lib(python|stdc|gcc_s|gomp|iomp|c10|torch_python|tvm_ffi))[^/]*$"
    r"|/python[^/]*$|/lib-dynload/|^\["
)
_MAPPED = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) ..x. ([0-9a-f]+) \S+ \d+ *(.*)$", re.M)
_TORCH = (Path(torch.__file__).parent / "lib" / "libtorch_cpu.so").resolve()  # as maps name it
_VECTOR_FUNCTIONS = b"Sleef_"  # which the compiler's own C++ calls, of torch's library
_MIN_CALL_S = 1e-4  # of shorter calls much is torch's own overhead
_OWN_SHARE = 0.3  # of the samples that show a thread: less is a library's work, more the kernel's
_ALPHA = 0.05  # the chance to be wrong about that
OWN = "own code"
HIDDEN = "a process that hides"


def at_work(pid: int) -> str:
    """The computing thread of a stopped process.

    Returns:
        `OWN` if a thread executes code that is not known to be a library's, else the file name of
        the library that one executes; `HIDDEN` if we may not look, though outputs can be read of
        it; empty if no thread computes.
    """
    try:
        places = _executed(pid)
    except PermissionError:
        return HIDDEN
    except OSError:
        return ""
    owners = [whose for path, at in places if (whose := owner(path, at))]
    return OWN if OWN in owners else owners[0] if owners else ""


def owner(path: str, at: int) -> str:
    """The owner of the code at byte `at` of a mapped file, as `at_work` tells; empty: none."""
    if path == str(_TORCH) and (_is_vector_function(at) or not _vector_functions()):
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


def get_ready() -> None:
    """Read once: it takes a quarter of a second, in which a stopped process would wait."""
    _vector_functions()


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
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            found.append((thread / "syscall").read_text().split())
    return found


def library_label(case: str, seen: Sequence[str], seconds_per_call: float) -> Label | None:
    """A label if a library computed and own code had less than its share of the samples.

    A candidate that spends most of its time in torch's zeros and copies is found, too. Vector
    functions (Sleef) are not counted: the compiler's own C++ for `gelu_bias` was in them in 20 of
    21.

    Args:
        case: Its name.
        seen: The code at work in each sample (`at_work`).
        seconds_per_call: How long it takes.
    """
    names, own = _libraries(seen, seconds_per_call), seen.count(OWN)
    if not names or not _is_less(own, names.total()):
        return None
    ((name, _),) = names.most_common(1)
    evidence = f"{case}: {names.total()} samples of timed runs show {name} at work, {own} own code"
    return Label("library_at_work", evidence)


def is_undecided(seen: Sequence[str], seconds_per_call: float) -> bool:
    """Whether no thread was seen, or a library was, but too rarely to tell how much it does."""
    if seconds_per_call >= _MIN_CALL_S and seen and not any(seen):
        return True
    times, own = _libraries(seen, seconds_per_call).total(), seen.count(OWN)
    is_more = _at_most(own - 1, own + times) > 1 - _ALPHA
    return times > 0 and not _is_less(own, times) and not is_more


def _is_less(own: int, library: int) -> bool:
    """Whether so few of the samples that showed a thread reject `_OWN_SHARE`."""
    return _at_most(own, own + library) < _ALPHA


def _at_most(own: int, times: int) -> float:
    """The probability of so few samples of own code if its share is `_OWN_SHARE`."""
    share = _OWN_SHARE
    return sum(comb(times, k) * share**k * (1 - share) ** (times - k) for k in range(own + 1))


def _libraries(seen: Sequence[str], seconds_per_call: float) -> Counter[str]:
    """How often each was seen; of calls too short to tell, none."""
    is_long = seconds_per_call >= _MIN_CALL_S
    return Counter(name for name in seen if is_long and name not in ("", OWN))
