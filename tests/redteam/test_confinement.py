"""What the red team found missing in the sandbox.

Invariants:
- without namespaces of its own it can neither signal nor schedule anybody else;
- what it leaves in the build's directory or its own is bounded, and never troubles who removes it.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from evolve.core.evaluation import Status
from evolve.languages.cpp import CPP
from evolve.worker.base.faults import CandidateFault
from evolve.worker.devices.cpu.device import CpuDevice
from evolve.worker.processes.launcher import Launcher
from evolve.worker.sandbox import disk_quota
from evolve.worker.sandbox.policy import Mechanism

EXPOSED = int(~(Mechanism.PID_NAMESPACE | Mechanism.OWN_UID))
DEPTH = 3000


@pytest.fixture(scope="module")
def launcher():
    made = Launcher(CpuDevice(), "none", ())
    made.probe()
    yield made
    made.close()


def said(runner, source: str) -> str:
    """What comes of executing a source in a runner: the kind of exception, or nothing."""
    try:
        runner.load("candidate", source + "\nraise SystemError('it went well')", 20.0)
    except CandidateFault as fault:
        return fault.feedback
    raise AssertionError("no answer")


def test_without_namespaces_a_runner_reaches_nobody_else():
    launcher = Launcher(CpuDevice(), "none", (), EXPOSED)
    victim = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    attacks = (
        f"os.kill({victim.pid}, 9)",
        f"os.sched_setaffinity({victim.pid}, {{0}})",
        f"os.sched_setscheduler({victim.pid}, os.SCHED_BATCH, os.sched_param(0))",
        "open('/dev/shm/answers', 'w')",
    )
    try:
        launcher.probe()
        with launcher.start(CPP) as runner:
            for attack in attacks:
                feedback = said(runner, f"import os\n{attack}")
                assert "PermissionError" in feedback or "ProcessLookupError" in feedback, feedback
            assert "it went well" in said(runner, "import os\nos.kill(os.getpid(), 0)")
        assert victim.poll() is None
    finally:
        launcher.close()
        victim.kill()
        victim.wait()


def _nest(folder: Path) -> None:
    home = Path.cwd()
    os.chdir(folder)
    try:
        for _ in range(DEPTH):
            Path("d").mkdir()
            os.chdir("d")
        Path("file").write_text("x")
    finally:
        os.chdir(home)


def test_folders_of_any_depth_are_noticed_and_removed(tmp_path):
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "library.so").write_bytes(bytes(1 << 16))
    assert not disk_quota.excessive(str(tmp_path), 1 << 20)
    _nest(tmp_path)
    (tmp_path / "link").symlink_to("/usr")
    assert disk_quota.excessive(str(tmp_path), 1 << 20)
    disk_quota.empty(str(tmp_path))
    assert list(tmp_path.iterdir()) == []
    assert Path("/usr/lib").is_dir()


def test_a_directory_with_too_many_bytes_or_files_is_excessive(tmp_path):
    (tmp_path / "large").write_bytes(bytes(1 << 21))
    assert disk_quota.excessive(str(tmp_path), 1 << 20)
    assert not disk_quota.excessive(str(tmp_path), 1 << 22)


@pytest.mark.slow
def test_a_build_that_fills_the_disk_is_stopped(launcher):
    source = """
import time
for number in range(64):
    with open(f"build/{number}", "wb") as file:
        for _ in range(8):
            file.write(bytes(16 << 20))
    time.sleep(0.02)
"""
    runner = launcher.start(CPP)
    with runner, pytest.raises(CandidateFault) as caught:
        runner.load("candidate", source, 60.0, may_build=True)
    # A file system of its own is full; where it has none, the supervisor ends it.
    assert caught.value.status in (Status.OOM, Status.RUNTIME_EXCEPTION)
    assert re.search("files|No space left", caught.value.feedback), caught.value.feedback
