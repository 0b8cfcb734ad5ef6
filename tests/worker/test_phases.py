"""What a call to the worker is at.

Invariants:
1. An evaluation says its phases in order, and its reply is the last line about it.
2. Who asks for no phases gets none.
3. A wait for a lock that another process holds is said, and the phase before it afterwards.
"""

import fcntl
import json
import subprocess
import sys
import threading
import time

from evolve.core.task import Task
from evolve.worker.base import phases
from evolve.worker.processes import lock_files
from evolve.worker.service.protocol import Request
from evolve.worker.service.server import Server


class Slow:
    """Stands for a judge: an audit that enters two phases."""

    class device:
        slots = 1

    def audit(self, task: Task) -> list[str]:
        phases.enter("preparing inputs")
        phases.enter("checking")
        return []


def lines_of(request: Request) -> list[dict]:
    lines: list[str] = []
    server = Server(Slow(), lines.append)
    server.accept(request)
    deadline = time.monotonic() + 10
    while not any("result" in line for line in lines) and time.monotonic() < deadline:
        time.sleep(0.01)
    return [json.loads(line) for line in lines]


def asked(*, said: bool) -> Request:
    task = Task(name="task", source="")
    return Request(7, "audit", {"task": task.to_json()}, phases=said)


def test_phases_come_in_order_and_before_the_reply():
    first, second, last = lines_of(asked(said=True))
    assert (first["phase"], second["phase"]) == ("preparing inputs", "checking")
    assert (first["id"], last["id"], last["result"]) == (7, 7, [])


def test_who_asks_for_no_phases_gets_none():
    [reply] = lines_of(asked(said=False))
    assert reply["result"] == []


def test_a_wait_for_another_judge_is_said_for_as_long_as_it_lasts(tmp_path, monkeypatch):
    monkeypatch.setattr(phases, "SOON_S", 0.05)
    path = tmp_path / "evolve-test.lock"
    fd = lock_files.opened(path)
    hold = (
        "import fcntl, sys\n"
        f"file = open({str(path)!r}); fcntl.flock(file, fcntl.LOCK_EX)\n"
        "print('held', flush=True); sys.stdin.readline()\n"
    )
    said: list[str] = []

    def tell(text: str) -> None:
        said.append(text)
        if text.startswith("waiting"):
            other.stdin.close()  # lets go of it

    with subprocess.Popen(
        [sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout.readline() == "held\n"
        with phases.telling(tell):
            phases.enter("timing")
            lock_files.wait_for(fd, fcntl.LOCK_EX)
    assert said == ["timing", "waiting for another judge on this machine", "timing"]


def test_a_wait_for_another_thread_of_the_same_judge_is_not_called_another_judge(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(phases, "SOON_S", 0.05)
    path = tmp_path / "evolve-test.lock"
    first, second = lock_files.opened(path), lock_files.opened(path)
    fcntl.flock(first, fcntl.LOCK_EX)
    said: list[str] = []
    threading.Timer(0.3, fcntl.flock, (first, fcntl.LOCK_UN)).start()
    with phases.telling(said.append):
        lock_files.wait_for(second, fcntl.LOCK_EX)
    assert said == []
