"""Memory that a process has freed stays with it, and costs no faults the next time."""

import subprocess
import sys

import pytest

PROGRAM = """
import resource
import sys
from evolve.worker.base import heap

if "keep" in sys.argv:
    heap.keep_freed_memory()

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    bytearray(64 << 20)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults()
print(faults())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the heap of glibc")
def test_only_the_first_large_piece_of_memory_takes_faults():
    seen = {
        word: int(subprocess.check_output([sys.executable, "-c", PROGRAM, word], text=True))
        for word in ("keep", "usual")
    }
    assert seen["keep"] < 100
    assert seen["usual"] > 1000  # or it is of no use here
