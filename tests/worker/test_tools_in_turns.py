"""A tool that looks at a program, beside others that are timed.

Invariants: it stands still in their turns and holds up none; its deadline does not come nearer
while it does; if its work does not end, it is ended, and no neighbour fails.
"""

import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from evolve.languages.cpp import CPP
from evolve.worker.judge.judge import Judge
from evolve.worker.processes.host_locks import HostLock
from evolve.worker.runner import tool_process
from evolve.worker.session import exclusive_device
from evolve.worker.session.candidate_session import Candidate
from evolve.worker.session.exclusive_device import DeviceLock
from tests.worker.serving import RELU_TASK, forward
from tests.worker.test_device_lock import Aside, states

pytestmark = pytest.mark.quiet


@pytest.fixture(autouse=True)
def _lock_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    tmp_path.chmod(0o755)


def test_a_tool_that_looks_at_a_program_stands_still_in_turns_and_holds_up_none(tmp_path):
    judge = Judge(Aside(), tmp_path / "cache")
    session, slow = judge.session, Candidate(forward("time.sleep(2)\nreturn right(x)"))
    with ThreadPoolExecutor(1) as pool:
        try:
            task = judge.warm(RELU_TASK)
            session.compile(slow, task)
            observed = pool.submit(session.observed, slow, task.smallest, ())
            while (
                not (
                    process := next(
                        (p for p in judge._device_lock._processes if p.is_observed), None
                    )
                )
                or len(process._family()) < 2
            ):
                time.sleep(0.05)
            start = time.monotonic()
            with judge._device_lock.alone():
                assert time.monotonic() - start < 1.0
                assert states(process) == {"T"}
                time.sleep(0.3)
            said = tool_process.read(observed.result(30))
            assert said.code == 0, said.text
        finally:
            judge.close()


def test_a_kernel_without_an_end_under_a_tool_costs_no_neighbour_its_turn(launcher, monkeypatch):
    class Busy(Aside):
        def is_idle(self):
            return not looked_at.alive

    monkeypatch.setattr(exclusive_device, "_TOOL_QUIET_S", 0.3)
    device_lock = DeviceLock(Busy(), HostLock("cpu"))
    with launcher.start(CPP, observed=True) as looked_at, launcher.start(CPP) as neighbour:
        device_lock.add(looked_at)
        looked_at.has_candidate = True
        with device_lock.alone([neighbour]):
            assert not looked_at.alive
        assert neighbour.alive


@pytest.mark.slow  # test_device_lock has the deadline of a process
def test_the_deadline_of_a_tool_does_not_come_nearer_while_it_stands_still():
    program = """
import subprocess, sys
from evolve.worker.runner import tool_process
tool_process.SECONDS = 1.0
tool = subprocess.Popen(["sleep", sys.argv[1]], stdout=-1, stderr=-1, text=True)
print("begun", flush=True)
print("worked a second or more:", tool_process._ended(tool)[2] >= 1.0, flush=True)
"""
    start = [sys.executable, "-c", program]
    with subprocess.Popen([*start, "0.5"], stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout.readline() == "begun\n"
        watching.send_signal(signal.SIGSTOP)
        time.sleep(2)
        watching.send_signal(signal.SIGCONT)
        assert watching.stdout.readline() == "worked a second or more: False\n"
