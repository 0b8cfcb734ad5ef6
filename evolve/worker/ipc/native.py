"""The worker's C library (`native.c`), built once for each judge of a GPU."""

import ctypes
import os
import shutil
import subprocess
from pathlib import Path

from evolve.core.errors import EvaluatorUnavailable

SOURCE = Path(__file__).with_name("native.c")
SEEN, LATE = 1, 0
TIMED, AT_LIMIT, SPOKEN, ASTRAY, DRIVER = 0, 1, 2, -10, 1000
CALL_BITS = 20  # of a number that tells window and call


class Piece(ctypes.Structure):
    """Bytes of an output: the word of the page with its address, where they begin, where to.

    With `aliased` the output may lie in the inputs.
    """

    _fields_ = (
        ("word", ctypes.c_int64),
        ("start", ctypes.c_int64),
        ("length", ctypes.c_int64),
        ("after", ctypes.c_int64),
        ("aliased", ctypes.c_int64),
        ("to", ctypes.c_void_p),
        ("early", ctypes.c_void_p),
    )


class Pause(ctypes.Structure):
    """After so many calls; the bytes of inputs that come then."""

    _fields_ = (("after", ctypes.c_int64), ("start", ctypes.c_uint64), ("end", ctypes.c_uint64))


class WindowArguments(ctypes.Structure):
    """`struct window` of the library; see there."""

    _fields_ = (
        ("inputs", ctypes.c_uint64),
        ("staged", ctypes.c_uint64),
        ("decoys", ctypes.c_uint64),
        ("bytes", ctypes.c_uint64),
        ("first", ctypes.c_uint64),
        ("flush", ctypes.c_uint64),
        ("flush_bytes", ctypes.c_uint64),
        ("gate", ctypes.c_uint64),
        ("go", ctypes.c_void_p),
        ("done", ctypes.c_void_p),
        ("given", ctypes.c_void_p),
        ("made", ctypes.c_void_p),
        ("page", ctypes.c_void_p),
        ("sequence", ctypes.c_int64),
        ("calls", ctypes.c_int64),
        ("spin_ns", ctypes.c_int64),
        ("limit_ns", ctypes.c_int64),
        ("pause_ns", ctypes.c_int64),
        ("fd", ctypes.c_int),
        ("pid", ctypes.c_int),
        ("pieces", ctypes.POINTER(Piece)),
        ("count", ctypes.c_int64),
        ("pauses", ctypes.POINTER(Pause)),
        ("pause_count", ctypes.c_int64),
        ("pool", ctypes.c_uint64),
        ("view", ctypes.c_uint64),
        ("pool_bytes", ctypes.c_uint64),
        ("claimed", ctypes.c_uint64),
        ("begun", ctypes.c_int64),
        ("ended", ctypes.c_int64),
    )


def build(folder: Path) -> str:
    """The path of the compiled library, in `folder`.

    Raises:
        EvaluatorUnavailable: there is no C compiler, or it fails.
    """
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        raise EvaluatorUnavailable(
            "a GPU's judge needs a C compiler, as Triton does: install one (apt-get install gcc), "
            "or set CC to its path"
        )
    library = folder / "native.so"
    built = subprocess.run(
        [compiler, "-O2", "-shared", "-fPIC", str(SOURCE), "-o", str(library), "-ldl", "-lpthread"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if built.returncode:
        raise EvaluatorUnavailable(f"{compiler} cannot build a library: {built.stderr[:400]}")
    library.chmod(0o755)
    return str(library)


def load(path: str) -> ctypes.CDLL:
    """The library, its functions with their types."""
    library = ctypes.CDLL(path)
    library.evolve_pool.argtypes = (ctypes.c_uint64, ctypes.c_uint64)
    library.evolve_wait.argtypes = (ctypes.c_void_p, *3 * (ctypes.c_int64,), ctypes.c_int)
    library.evolve_signal.argtypes = (ctypes.c_void_p, ctypes.c_int64)
    library.evolve_turn.argtypes = 2 * (ctypes.c_void_p,) + 3 * (ctypes.c_int64,)
    failed = ctypes.POINTER(ctypes.c_char_p)
    library.evolve_open_clock.argtypes = (ctypes.c_char_p, ctypes.c_int, ctypes.c_uint, failed)
    library.evolve_window.argtypes = (ctypes.POINTER(WindowArguments),)
    library.evolve_read.argtypes = (ctypes.POINTER(WindowArguments),)
    return library
