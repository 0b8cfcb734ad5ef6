"""The files of the host-wide locks lie where any user may put something else, or hold them.

Invariants: whatever lies there, nobody hangs without a word; a message names the file, the reason
and the remedy; waits of the usual length are not spoken of.
"""

import multiprocessing
import os
import re
import resource
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from evolve.worker.base.infra import InfraFault
from evolve.worker.processes import lock_files
from evolve.worker.processes.host_locks import HostLock, try_to_hold

NOBODY = 65534
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def put_socket(path):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


OTHER_THINGS = {
    "a symbolic link": lambda path: path.symlink_to("/etc/passwd"),
    "a symbolic link ": lambda path: path.symlink_to(path.parent / "nothing"),  # dangling
    "no regular file": os.mkfifo,
    "no regular file ": Path.mkdir,
    "No such device": put_socket,
}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("why", OTHER_THINGS)
def test_what_is_no_file_is_refused_with_its_name_the_reason_and_the_remedy(folder, why):
    path = folder / "evolve-gpu.lock"
    OTHER_THINGS[why](path)
    said = rf"{re.escape(str(path))} .*{why.strip()}.*[Rr]emove it.*owner \(uid {os.geteuid()}\)"
    with pytest.raises(InfraFault, match=said):
        try_to_hold("gpu")
    with pytest.raises(InfraFault, match=said), HostLock("gpu").shared():
        pass


@pytest.mark.timeout(20)
@pytest.mark.parametrize("way", ["shared", "exclusive"])
def test_what_is_no_gate_is_refused_as_well(folder, way):
    os.mkfifo(folder / "evolve-gpu.gate")
    lock = HostLock("gpu")
    with pytest.raises(InfraFault, match=r"evolve-gpu\.gate"), getattr(lock, way)():
        pass


def open_files():
    return sorted(Path("/proc/self/fd").iterdir())


def test_what_is_refused_does_not_stay_open(folder):
    os.mkfifo(folder / "evolve-gpu.lock")
    before = open_files()
    for _ in range(3):
        with pytest.raises(InfraFault):
            try_to_hold("gpu")
    assert open_files() == before


def test_a_folder_that_is_not_there_is_named_with_the_variable_that_names_it(folder, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "gone"))
    with pytest.raises(InfraFault, match=r"gone/evolve-gpu\.lock .*TMPDIR"):
        try_to_hold("gpu")


def test_want_of_descriptors_is_not_blamed_on_the_file(folder):
    os.close(try_to_hold("gpu"))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            try_to_hold("gpu")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def hold_as(uid: int, folder: str, pipe) -> None:
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)
    tempfile.tempdir = folder
    pipe.send("begun")
    try:
        pipe.send("held" if try_to_hold("gpu") is not None else "taken")
    except (InfraFault, OSError) as error:
        pipe.send(f"{type(error).__name__}: {error}")


@pytest.fixture
def closed():
    """A lock's file, in a folder for all users, which only root may open; and another user."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o1777)
        path = Path(folder, "evolve-gpu.lock")
        path.touch(0o600)
        ours, theirs = multiprocessing.Pipe()
        child = multiprocessing.Process(target=hold_as, args=(NOBODY, folder, theirs))
        child.start()
        assert ours.poll(20)
        assert ours.recv() == "begun"
        yield path, ours
        child.join()


@AS_ROOT
def test_a_file_that_only_its_owner_may_open_is_named_with_him(closed):
    path, user = closed
    assert user.poll(20)
    said = user.recv()
    assert said.startswith(f"InfraFault: the lock {path} cannot be used: Permission denied")
    assert "owner (uid 0)" in said


@AS_ROOT
def test_a_file_that_another_user_is_about_to_open_to_all_is_waited_for(closed):
    path, user = closed
    assert not user.poll(0.2)
    path.chmod(0o666)
    assert user.poll(20)
    assert user.recv() == "held"


HOLDER = """
import sys, tempfile
tempfile.tempdir = sys.argv[1]
from evolve.worker.processes.host_locks import try_to_hold
held = try_to_hold("gpu")
print("held", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def holder(folder):
    """Another process, which holds the lock until it is told to let go."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def is_listed(path):
    """Whether the kernel lists its locks under the device number that the file seems to have.

    Of some file systems (btrfs) it does not.
    """
    file = path.stat()
    of_file = f"{os.major(file.st_dev):02x}:{os.minor(file.st_dev):02x}:{file.st_ino} "
    return of_file in Path("/proc/locks").read_text()


def waits_while(holder, way, seconds):
    """Wait for the lock in this way while it is held for so long."""
    release = threading.Timer(seconds, holder.communicate, ["\n"])
    release.start()
    with getattr(HostLock("gpu"), way)():
        pass
    release.join()


@pytest.mark.sample(1)
@pytest.mark.parametrize("way", ["shared", "exclusive"])
def test_a_long_wait_is_told_once_with_the_file_and_who_holds_it(
    folder, holder, way, monkeypatch, capfd
):
    monkeypatch.setattr(lock_files, "LONG_S", 0.1)
    path = folder / "evolve-gpu.lock"
    by = f", held by process {holder.pid};" if is_listed(path) else ";"
    waits_while(holder, way, 1.0)
    said = capfd.readouterr()
    (line,) = said.err.splitlines()
    assert line.startswith("evolve: ")
    assert f"{path}{by}" in line
    assert not said.out


def test_who_waits_behind_one_that_waits_is_told_of_him(folder, holder, monkeypatch, capfd):
    monkeypatch.setattr(lock_files, "LONG_S", 0.1)
    lock = HostLock("gpu")
    by = ", held by this process;" if is_listed(folder / "evolve-gpu.lock") else ";"

    def share():
        with lock.shared():
            pass

    threads = [threading.Thread(target=share) for _ in range(2)]
    for thread in threads:
        thread.start()
        time.sleep(0.3)
    holder.communicate("\n")
    for thread in threads:
        thread.join(10)
    first, second = capfd.readouterr().err.splitlines()
    assert "evolve-gpu.lock" in first
    assert f"evolve-gpu.gate{by}" in second


def test_a_wait_of_the_usual_length_is_not_told(folder, holder, capfd):
    waits_while(holder, "exclusive", 0.3)
    time.sleep(0.1)
    assert capfd.readouterr() == ("", "")
