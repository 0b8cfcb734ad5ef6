"""What the kernel says of a process, whatever the process calls itself and its memory.

Invariants: no name changes what is read, nor fails whoever reads it; no name of a piece of memory
is taken for another mapping.
"""

import ctypes
import mmap
import os
import subprocess

import pytest

from evolve.worker.sandbox import procfs
from evolve.worker.sandbox.mappings import mappings_of
from evolve.worker.sandbox.supervisor import descendants

LIBC = ctypes.CDLL(None)
SET_NAME, GET_NAME = 15, 16  # of prctl(2)
NAMES = [b"\xff\xfe", b") R 1 1 1", b"\rRssAnon: all", b"\x0cVmHWM: 0 kB", b"\nVmHWM: 0 kB", b""]


@pytest.fixture
def rename():
    """Renames this process for a test."""
    before = ctypes.create_string_buffer(16)
    LIBC.prctl(GET_NAME, before)
    yield lambda name: LIBC.prctl(SET_NAME, name)
    LIBC.prctl(SET_NAME, before)


@pytest.mark.parametrize("name", NAMES)
def test_no_name_changes_what_is_read_of_a_process(rename, name):
    known = procfs.status(os.getpid()).keys()
    rename(name)
    for thread in (None, os.getpid()):
        fields = procfs.stat(os.getpid(), thread)
        assert fields[0] == "R"
        assert int(fields[1]) == os.getppid()
    found = procfs.status(os.getpid())
    assert found.keys() == known
    assert procfs.size_of(found["VmHWM"]) >= procfs.size_of(found["RssAnon"]) > 0


@pytest.mark.parametrize("end", ["\n", "\r", "\x0c", "\udcff"])
def test_a_name_of_memory_is_not_taken_for_a_mapping(end):
    own = os.memfd_create("inputs")
    os.ftruncate(own, mmap.PAGESIZE)
    facts = os.fstat(own)
    device = f"{os.major(facts.st_dev):02x}:{os.minor(facts.st_dev):02x}"
    line = f"1000-2000 r--s 00000000 {device} {facts.st_ino} /memfd:inputs"
    other = os.memfd_create(f"other{end}{line}")
    os.ftruncate(other, mmap.PAGESIZE)
    with mmap.mmap(own, mmap.PAGESIZE), mmap.mmap(other, mmap.PAGESIZE):
        (found,) = mappings_of(os.getpid(), own)
        assert found.end - found.start == mmap.PAGESIZE
        assert found.start != 0x1000
    os.close(other)
    os.close(own)


@pytest.mark.slow
def test_processes_that_end_while_they_are_looked_for_disturb_nobody():
    with subprocess.Popen(["sh", "-c", "while :; do (:) & (:) & wait; done"]) as busy:
        try:
            for _ in range(3000):
                assert busy.pid in descendants(os.getpid())
        finally:
            busy.kill()
