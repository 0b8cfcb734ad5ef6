"""The host-wide lock: one for all users of a host, whoever made its files."""

import multiprocessing
import os
import tempfile
from pathlib import Path

import pytest

from evolve.worker.locks import HostLock

NOBODY = 65534


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
