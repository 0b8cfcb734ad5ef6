"""The host-wide locks: one for all users of a host, whoever made its files."""

import multiprocessing
import os
import select
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from evolve.worker.processes import host_locks as locks
from evolve.worker.processes.host_locks import HostLock, try_to_hold
from tests.nobody import NOBODY

pytestmark = pytest.mark.quiet


def lock_as(uid: int, folder: str, pipe) -> None:
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)
    tempfile.tempdir = folder
    try:
        with HostLock("cpu").exclusive():
            pipe.send("held")
    except OSError as error:
        pipe.send(str(error))


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
def test_another_user_of_the_host_takes_the_lock_whoever_made_its_files():
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o1777)  # as /tmp, where Debian sets fs.protected_regular
        for uid in (NOBODY - 1, NOBODY, 0):
            ours, theirs = multiprocessing.Pipe()
            child = multiprocessing.Process(target=lock_as, args=(uid, folder, theirs))
            child.start()
            assert ours.poll(20)
            assert ours.recv() == "held"
            child.join()
            Path(folder, "evolve-cpu.gate").chmod(0o644)  # by a user with another umask


def test_judges_of_one_gpu_exclude_each_other_wherever_their_temporary_files_go(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(locks, "_OF_HOST", tmp_path)
    held = []
    for job in ("one", "other"):
        (tmp_path / job).mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / job))
        held += [try_to_hold("cuda-0"), try_to_hold("cpu")]
    assert [fd is not None for fd in held] == [True, True, False, True]
    for fd in filter(None, held):
        os.close(fd)


OTHER = """
import sys, tempfile
tempfile.tempdir = sys.argv[1]
from evolve.worker.processes.host_locks import HostLock
lock = HostLock("gpu")
for line in sys.stdin:
    kind = line.strip()
    with getattr(lock, kind)():
        print("in", flush=True)
        sys.stdin.readline()
    print("out", flush=True)
"""


class OtherJudge:
    """Another process of the host that does one thing after another."""

    def __init__(self, folder):
        self.process = subprocess.Popen(
            [sys.executable, "-c", OTHER, str(folder)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def wants(self, kind):
        print(kind, file=self.process.stdin, flush=True)

    def is_in(self, within_s=0.3):
        return bool(select.select([self.process.stdout], [], [], within_s)[0]) and (
            self.process.stdout.readline() == "in\n"
        )

    def ends(self):
        print(file=self.process.stdin, flush=True)
        assert self.process.stdout.readline() == "out\n"


@pytest.fixture
def judges(tmp_path):
    """Three of them."""
    judges = [OtherJudge(tmp_path) for _ in range(3)]
    yield judges
    for judge in judges:
        judge.process.kill()
        judge.process.communicate()


def test_checks_of_several_judges_go_on_together_and_timing_has_the_device_alone(judges):
    first, second, third = judges
    first.wants("shared")
    assert first.is_in(10.0)
    second.wants("shared")
    assert second.is_in(10.0)
    third.wants("exclusive")
    assert not third.is_in()
    first.ends()
    assert not third.is_in()
    second.ends()
    assert third.is_in(10.0)
    first.wants("shared")
    assert not first.is_in()
    second.wants("exclusive")
    assert not second.is_in()
    third.ends()
    assert first.is_in(10.0)
    first.ends()
    assert second.is_in(10.0)


def test_a_judge_that_waits_to_be_alone_is_not_overtaken_by_more_checks(judges):
    first, second, third = judges
    first.wants("shared")
    assert first.is_in(10.0)
    second.wants("exclusive")
    assert not second.is_in()
    third.wants("shared")
    assert not third.is_in()
    first.ends()
    assert second.is_in(10.0)
    second.ends()
    assert third.is_in(10.0)


@pytest.mark.parametrize("kind", ["shared", "exclusive"])
def test_a_judge_that_dies_holds_up_nobody(judges, kind):
    first, second, _ = judges
    first.wants(kind)
    assert first.is_in(10.0)
    second.wants("exclusive")
    assert not second.is_in()
    first.process.kill()
    assert second.is_in(10.0)


@pytest.fixture
def lock(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return HostLock("gpu")


def test_who_holds_it_with_others_may_take_it_again_while_somebody_waits_to_be_alone(lock):
    def alone():
        with lock.exclusive():
            pass

    with ThreadPoolExecutor(1) as threads:
        with lock.shared():
            waiting = threads.submit(alone)
            time.sleep(0.1)  # now it is at the gate
            with lock.shared():
                assert not waiting.done()
        waiting.result(5)


def test_threads_that_wait_to_be_alone_go_one_after_the_other_but_let_others_in_in_between(lock):
    order, inside = [], threading.Lock()

    def enter(way, name):
        with getattr(lock, way)():
            assert inside.acquire(blocking=False)  # nobody else, of whichever kind
            order.append(name)
            time.sleep(0.02)
            inside.release()

    with ThreadPoolExecutor(8) as threads:
        with lock.shared():
            waiting = [threads.submit(enter, "exclusive", "alone") for _ in range(6)]
            time.sleep(0.1)
            waiting.append(threads.submit(enter, "shared", "together"))
            time.sleep(0.1)
        for one in waiting:
            one.result(10)
    assert order == ["alone"] * 4 + ["together"] + ["alone"] * 2


def test_who_fails_alone_leaves_the_lock_to_the_next(lock):
    with pytest.raises(KeyError), lock.exclusive():
        raise KeyError
    with lock.shared():
        pass
    with lock.exclusive() as watch:
        time.sleep(0.01)
    assert watch.seconds >= 0.01


def test_threads_that_lend_it_and_another_judge_that_waits_do_not_wait_for_each_other(lock, judges):
    """One lends it while another has it alone, a third begins then, and another judge wants it."""
    begun, may_end, is_alone = (threading.Event() for _ in range(3))

    def lends():
        with lock.lent():
            begun.set()
            may_end.wait(20)

    def is_timed():
        with lock.exclusive():
            is_alone.set()
            time.sleep(0.5)

    def lends_shortly():
        with lock.lent():
            pass

    with ThreadPoolExecutor(3) as threads:
        waiting = [threads.submit(lends)]
        assert begun.wait(5)
        waiting.append(threads.submit(is_timed))
        assert is_alone.wait(5)
        waiting.append(threads.submit(lends_shortly))
        time.sleep(0.1)  # now it is at the lock
        judges[0].wants("exclusive")
        time.sleep(0.5)  # and the judge at its gate, or in before the third has taken it back
        may_end.set()
        is_in = judges[0].is_in(10.0)
        judges[0].ends() if is_in else judges[0].process.kill()
        assert is_in
        for one in waiting:
            one.result(10)
