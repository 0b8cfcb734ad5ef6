"""Memory that a candidate's processes hold where their own entries in /proc do not show it.

Invariants:
- a process whose first thread has ended counts like any other;
- in a network of its own, a socket counts as long as the kernel keeps it, open or not;
- sockets of other processes of the host do not count.
"""

import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from evolve.worker.sandbox.open_files import held_by
from evolve.worker.sandbox.supervisor import memory_of

HELD = 64 << 20
PAIRS = 20
FIRST_THREAD_ENDS = f"""
import ctypes, mmap, os, socket, threading, time
def work():
    memory = mmap.mmap(-1, {HELD}, flags=mmap.MAP_PRIVATE)
    memory[:] = bytes({HELD})
    pairs = [socket.socketpair() for _ in range({PAIRS})]
    while open(f"/proc/{{os.getpid()}}/stat").read().split()[2] != "Z":
        time.sleep(0.01)
    print("ready", flush=True)
    time.sleep(60)
threading.Thread(target=work).start()
ctypes.CDLL(None).syscall(60 if os.uname().machine == "x86_64" else 93, 0)
"""
SENT_AND_CLOSED = f"""
import ctypes, socket, time
if ctypes.CDLL(None).unshare(0x50000000):  # a user namespace, and a network
    print("refused", flush=True)
carrier = socket.socketpair()
for _ in range({PAIRS}):
    kept, sent = socket.socketpair()
    kept.send(b"held")
    socket.send_fds(carrier[0], [b"x"], [sent.fileno()])
    kept.close(), sent.close()
print("ready", flush=True)
time.sleep(60)
"""
IDLE = 'import time; print("ready", flush=True); time.sleep(60)'


@contextmanager
def running(script):
    """The number of a process that runs it, once it says that it is ready."""
    command = [sys.executable, "-I", "-S", "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            if process.stdout.readline() == "refused\n":
                pytest.skip("the host grants no user namespaces")
            yield process.pid
        finally:
            process.kill()


def one_buffer():
    """Bytes that count for one socket on this host."""
    with running(IDLE) as pid:
        none = held_by([pid]).buffers
    with running("import socket\npair = socket.socketpair()\n" + IDLE) as pid:
        return (held_by([pid]).buffers - none) // 2


def test_a_process_whose_first_thread_has_ended_counts_like_any_other():
    with running(FIRST_THREAD_ENDS) as pid:
        assert memory_of(pid) > HELD
        assert held_by([pid]).buffers == 2 * PAIRS * one_buffer()


def test_sockets_that_no_process_has_open_count_in_a_network_of_their_own():
    with running(SENT_AND_CLOSED) as pid:
        assert len(list(Path(f"/proc/{pid}/fd").iterdir())) < PAIRS
        assert held_by([pid]).buffers >= PAIRS * one_buffer()


def test_sockets_of_others_on_the_host_count_for_nobody():
    with running("import socket\npair = socket.socketpair()\n" + IDLE), running(IDLE) as pid:
        assert held_by([pid]).buffers == 0
